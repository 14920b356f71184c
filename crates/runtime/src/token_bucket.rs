//! A token bucket: how many acts are allowed over time. In: the time in ticks, nanoseconds since whatever the caller counts
//! from. Out: the tick at which the next act is allowed. Never sleeps and never asks the clock. The queue limits reconciles
//! with it, the recorder the events of one object, a watch its requests.

use std::time::Duration;

/// At most one token per `every` in the long run, and a burst at once after a rest. Kept as the one tick at which the bucket
/// is full again.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    every: u64,
    /// How long before it is full again the bucket has one token.
    spare: u64,
    full_at: u64,
}

impl TokenBucket {
    /// A full bucket. A burst of 0 counts as 1.
    pub(crate) fn new(every: Duration, burst: u32) -> Self {
        let every = ticks(every);
        Self { every, spare: every.saturating_mul(u64::from(burst.max(1)) - 1), full_at: 0 }
    }

    /// When the next token is there; a tick in the past when it is there already.
    pub(crate) fn next_at(&self) -> u64 {
        self.full_at.saturating_sub(self.spare)
    }

    /// Takes a token; before it is there ([`TokenBucket::next_at`]) that is a promise to wait for it.
    pub(crate) fn take(&mut self, now: u64) {
        self.full_at = self.full_at.max(now).saturating_add(self.every);
    }

    /// Takes a token if one is there.
    pub(crate) fn try_take(&mut self, now: u64) -> bool {
        let is_there = self.next_at() <= now;
        if is_there {
            self.take(now);
        }
        is_there
    }

    /// Whether all tokens are there: such a bucket is as good as a new one.
    pub(crate) fn is_full(&self, now: u64) -> bool {
        self.full_at <= now
    }
}

/// A span in ticks. Longer than five centuries is as long as that, which leaves room to add it to any tick.
pub(crate) fn ticks(span: Duration) -> u64 {
    const LONGEST: u64 = u64::MAX / 4;
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(span.subsec_nanos())).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let check = |every: u64, burst: u32, asks: &[(u64, bool)]| {
            let mut bucket = TokenBucket::new(Duration::from_nanos(every), burst);
            for (now, expect) in asks {
                assert_eq!(bucket.try_take(*now), *expect, "at {now}: {bucket:?}");
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

    #[test]
    fn a_bucket_is_full_after_a_rest() {
        let mut bucket = TokenBucket::new(Duration::from_nanos(10), 3);
        assert!(bucket.is_full(0));
        bucket.take(5);
        bucket.take(5);
        assert_eq!([24, 25].map(|now| bucket.is_full(now)), [false, true]);
    }
}
