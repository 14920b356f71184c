//! When an issuer is asked for its keys again. In: somebody has a token that no known key has signed, and the time. Out: whether the
//! issuer is asked, whether somebody has asked it already, or whether the token is refused at once. Pure.
//!
//! Anybody can send tokens with made-up key ids. So the issuer is asked a few times in a row at most, and then once in a while: keys
//! that it has changed are known after one interval at the latest, whoever sends what.

use std::time::{Duration, Instant};

/// How often an issuer is asked in a row. Several, so that a change of keys is noticed at once although a forged token came before.
const BURST: u32 = 5;

/// After this the issuer may be asked once more.
const INTERVAL: Duration = Duration::from_secs(10);

/// How many requests wait for keys at the same time. Each holds its connection meanwhile; more than these are refused at once.
const MAX_WAITING: usize = 256;

/// How long before keys expire others are asked for, as in go-oidc: clocks differ.
const EXPIRY_DELTA: Duration = Duration::from_secs(30);

/// When an issuer was asked.
#[derive(Debug)]
pub(super) struct Refresh {
    /// How often it may be asked now.
    left: u32,
    /// Since when `left` is as it is; none if the issuer may be asked as often as ever.
    since: Option<Instant>,
    running: bool,
    waiting: usize,
}

/// What somebody does who needs other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Asks the issuer, and waits.
    Begin,
    /// Waits for the answer that somebody else has asked for.
    Join,
    /// Refuses the token.
    NotNow,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { left: BURST, since: None, running: false, waiting: 0 }
    }
}

impl Refresh {
    /// Somebody needs other keys than those that are known, which the issuer wants to be kept until `fresh_until`.
    pub(super) fn ask(&mut self, fresh_until: Option<Instant>, now: Instant) -> Ask {
        if fresh_until.is_some_and(|until| now + EXPIRY_DELTA <= until) || self.waiting >= MAX_WAITING {
            return Ask::NotNow;
        }
        if !self.running {
            self.refill(now);
            let Some(left) = self.left.checked_sub(1) else { return Ask::NotNow };
            (self.left, self.since, self.running) = (left, self.since.or(Some(now)), true);
            self.waiting += 1;
            return Ask::Begin;
        }
        self.waiting += 1;
        Ask::Join
    }

    /// Somebody who was told to wait waits no longer.
    pub(super) fn left(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// The issuer has answered, or has not.
    pub(super) fn done(&mut self) {
        self.running = false;
    }

    fn refill(&mut self, now: Instant) {
        while let Some(since) = self.since.filter(|since| now >= *since + INTERVAL) {
            self.left += 1;
            self.since = (self.left < BURST).then(|| since + INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_not_asked_for_every_forged_token() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut refresh = Refresh::default();
        let mut ask = |now: Instant| {
            let asked = refresh.ask(None, now);
            if asked == Ask::Begin {
                refresh.done();
            }
            if asked != Ask::NotNow {
                refresh.left();
            }
            asked
        };
        for (second, expect) in
            [(0, Ask::Begin), (0, Ask::Begin), (1, Ask::Begin), (1, Ask::Begin), (2, Ask::Begin), (3, Ask::NotNow)]
        {
            assert_eq!(ask(at(second)), expect, "{second}");
        }
        let asked = (0..100_000).filter(|index| ask(at(4) + Duration::from_millis(*index)) == Ask::Begin).count();
        assert_eq!(asked, 10, "once in ten seconds");
        assert_eq!(ask(at(1000)), Ask::Begin);
    }

    #[test]
    fn those_who_wait_are_limited() {
        let now = Instant::now();
        let mut refresh = Refresh::default();
        assert_eq!(refresh.ask(None, now), Ask::Begin);
        assert!((1..MAX_WAITING).all(|_| refresh.ask(None, now) == Ask::Join));
        assert_eq!(refresh.ask(None, now), Ask::NotNow);
        refresh.left();
        assert_eq!(refresh.ask(None, now), Ask::Join);
    }

    #[test]
    fn keys_are_kept_as_long_as_the_issuer_says() {
        let now = Instant::now();
        for (seconds, expect) in [(0, Ask::Begin), (29, Ask::Begin), (30, Ask::NotNow), (3600, Ask::NotNow)] {
            let until = now + Duration::from_secs(seconds);
            assert_eq!(Refresh::default().ask(Some(until), now), expect, "{seconds}");
        }
    }
}
