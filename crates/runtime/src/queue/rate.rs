//! How many takes the queue hands out over time. In: the time in ticks, nanoseconds since the queue began. Out: the tick
//! at which the next take is allowed. Never sleeps and never asks the clock.

use std::time::Duration;

/// At most one take per `every` in the long run, and `burst` at once after a rest: a token bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// A token comes back after this long.
    pub every: Duration,
    /// How many tokens the bucket holds; 0 counts as 1.
    pub burst: u32,
}

/// The bucket of a [`Rate`], kept as the one tick at which it will be full again.
#[derive(Debug)]
pub(super) struct Bucket {
    every: u64,
    spare: u64,
    full_at: u64,
}

impl Bucket {
    pub(super) fn new(rate: &Rate) -> Self {
        let every = ticks(rate.every);
        Self { every, spare: every.saturating_mul(u64::from(rate.burst.max(1)) - 1), full_at: 0 }
    }

    /// When the next token is there; a tick in the past when it is there already.
    pub(super) fn opens_at(&self) -> u64 {
        self.full_at.saturating_sub(self.spare)
    }

    /// Takes a token that is there.
    pub(super) fn take(&mut self, now: u64) {
        self.full_at = self.full_at.max(now).saturating_add(self.every);
    }
}

/// A span in ticks. Five centuries are for ever, and leave room to add them to any tick.
pub(super) fn ticks(span: Duration) -> u64 {
    const FOR_EVER: u64 = u64::MAX / 4;
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(span.subsec_nanos())).min(FOR_EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let check = |every: u64, burst: u32, asks: &[(u64, bool)]| {
            let mut bucket = Bucket::new(&Rate { every: Duration::from_nanos(every), burst });
            for (now, expect) in asks {
                let open = bucket.opens_at() <= *now;
                assert_eq!(open, *expect, "at {now}: {bucket:?}");
                if open {
                    bucket.take(*now);
                }
            }
        };
        check(
            10,
            1,
            &[(0, true), (0, false), (9, false), (10, true), (19, false), (20, true), (500, true), (500, false)],
        );
        check(10, 0, &[(0, true), (0, false), (10, true)]);
        check(10, 3, &[(0, true), (0, true), (0, true), (0, false), (10, true), (10, false), (100, true), (100, true)]);
        check(0, 1, &[(0, true), (0, true)]);
    }
}
