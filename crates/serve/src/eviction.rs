//! Who makes room when all connections are taken. In: the connections that nobody uses now. Out: those to close, the first one first.
//! Pure; the server closes them.
//!
//! Connections that were never used go first: otherwise whoever opens many and sends nothing would close those of everybody else. But
//! a client that has just come needs a moment for its handshake and its request, also when others keep all the room with idle ones.

use std::time::Duration;

use tokio::time::Instant;

/// A connection that nobody uses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// It was accepted then, and no request of it was ever answered.
    Newcomer(Instant),
    /// Its last request was answered then.
    Idle(Instant),
}

/// How long a newcomer is left alone: a handshake and a request over a slow network take less.
const GRACE: Duration = Duration::from_secs(1);

/// The part of all connections whose newcomers are left alone: one in so many. More of them are a flood.
const NEWCOMERS_PART: usize = 4;

/// The connections to close, of a server that has room for `limit`: newcomers that are too many or had their time, then idle ones; of
/// each the oldest first.
pub(crate) fn order<T>(unused: impl Iterator<Item = (Unused, T)>, limit: usize, now: Instant) -> Vec<T> {
    let (mut newcomers, mut idle) = (Vec::new(), Vec::new());
    for (unused, connection) in unused {
        match unused {
            Unused::Newcomer(since) => newcomers.push((since, connection)),
            Unused::Idle(since) => idle.push((since, connection)),
        }
    }
    newcomers.sort_by_key(|(since, _)| *since);
    idle.sort_by_key(|(since, _)| *since);
    let too_many = newcomers.len().saturating_sub((limit / NEWCOMERS_PART).max(1));
    let newcomers = newcomers.into_iter().enumerate();
    let newcomers = newcomers.filter(|(at, (since, _))| *at < too_many || now.duration_since(*since) >= GRACE);
    newcomers.map(|(_, newcomer)| newcomer).chain(idle).map(|(_, connection)| connection).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each connection was accepted or became idle, in milliseconds; now is 10,000.
    fn check(what: &str, newcomers: &[u64], idle: &[u64], limit: usize, expect: &[u64]) {
        let start = Instant::now();
        let at = |milliseconds: &u64| start + Duration::from_millis(*milliseconds);
        let newcomers = newcomers.iter().map(|since| (Unused::Newcomer(at(since)), *since));
        let idle = idle.iter().map(|since| (Unused::Idle(at(since)), *since));
        assert_eq!(order(newcomers.chain(idle), limit, at(&10_000)), expect, "{what}");
    }

    #[test]
    fn who_goes_first() {
        check("nobody is unused", &[], &[], 8, &[]);
        check("the longest idle one", &[], &[7000, 3000, 9999], 8, &[3000, 7000, 9999]);
        check("one that never asked, though it is younger", &[8000], &[3000], 8, &[8000, 3000]);
        check("not one that has just come", &[9500, 9900], &[3000], 8, &[3000]);
        check("one of a flood, though it has just come", &[9900, 9500, 9700], &[3000], 8, &[9500, 3000]);
        check("all of a flood that had its time", &[8000, 9000, 7000], &[3000], 8, &[7000, 8000, 9000, 3000]);
        check("one of two that have just come, where there is hardly room", &[9900, 9950], &[], 2, &[9900]);
        check("nobody, if all have just come", &[9900], &[], 1, &[]);
    }
}
