//! How often a watch may send requests. In: what happened, the time, a random number. Out: how long to wait. Pure: it
//! never sleeps and never reads the clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::token_bucket::{TokenBucket, ticks};

/// Waits between attempts that fail: the first one, and how far doubling goes. What client-go does.
const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);

/// A watch that was open for so long shows that the server works, even if no event came.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);

/// How many requests may follow each other at once: a list, its watch, and one more.
const BURST: u32 = 3;

/// How often a watch may send a request after the burst.
const REFILL: Duration = Duration::from_secs(1);

/// The waits between failures of one watch.
#[derive(Debug, Default)]
pub(crate) struct WatchBackoff {
    failures: u32,
    healthy_since: Option<Instant>,
}

impl WatchBackoff {
    /// The server answered, and the watch is open.
    pub(super) fn opened(&mut self, now: Instant) {
        self.healthy_since.get_or_insert(now);
    }

    /// Something came through the watch: the next failure is a first one.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after a failure. `random` is between 0 and 1: the wait is up to twice its base, so that watches
    /// that failed together do not retry together. The wait counts from `requested_at`, because a request that hung has
    /// waited already; but it is at least as long as after a first failure.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        requested_at: Instant,
        random: f64,
        longest: Option<Duration>,
    ) -> Duration {
        if self.healthy_since.take().is_some_and(|since| now.duration_since(since) >= HEALTHY_AFTER) {
            self.failures = 0;
        }
        let longest = longest.unwrap_or(LONGEST);
        let base = FIRST.saturating_mul(1 << self.failures.min(16)).min(longest);
        self.failures = self.failures.saturating_add(1);
        let jittered = |base: Duration| base.mul_f64(1.0 + random.clamp(0.0, 1.0)).min(longest.max(FIRST));
        jittered(base).saturating_sub(now.saturating_duration_since(requested_at)).max(jittered(FIRST.min(base)))
    }

    /// How many times the watch failed since it last worked.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

/// Limits the rate of requests even if all of them succeed, as when a server closes every watch at once.
#[derive(Debug)]
pub(crate) struct RequestLimiter {
    bucket: TokenBucket,
    /// Tick zero: the first request.
    start: Option<Instant>,
}

impl RequestLimiter {
    pub(super) fn new() -> Self {
        Self { bucket: TokenBucket::new(REFILL, BURST), start: None }
    }

    /// Plans one request, and says when it may be sent.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        let start = *self.start.get_or_insert(now);
        let tick = ticks(now.saturating_duration_since(start));
        let allowed = self.bucket.next_at().max(tick);
        self.bucket.take(tick);
        start + Duration::from_nanos(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_jittered() {
        let now = Instant::now();
        for (random, expect) in [
            (0.0, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]),
            (0.5, [1.2, 2.4, 4.8, 9.6, 19.2, 30.0, 30.0, 30.0]),
            (1.0, [1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]),
        ] {
            let mut backoff = WatchBackoff::default();
            let waits = expect.map(|_| backoff.failed(now, now, random, None).as_secs_f64());
            assert_eq!(waits, expect, "{random}");
        }
    }

    #[test]
    fn an_event_or_a_long_open_watch_resets_the_backoff() {
        let start = Instant::now();
        let mut backoff = WatchBackoff::default();
        let first = |backoff: &mut WatchBackoff, at: u64| {
            let now = start + Duration::from_secs(at);
            let wait = backoff.failed(now, now, 0.0, None);
            wait == FIRST
        };
        assert!(first(&mut backoff, 0));
        assert!(!first(&mut backoff, 1));
        backoff.succeeded();
        assert!(first(&mut backoff, 2));
        backoff.opened(start + Duration::from_secs(3));
        assert!(!first(&mut backoff, 4), "a short watch resets nothing");
        backoff.opened(start + Duration::from_secs(10));
        assert!(first(&mut backoff, 40), "a long one does");
        assert_eq!(backoff.failures(), 1);
    }

    #[test]
    fn the_time_that_a_request_hung_counts_as_waiting() {
        let start = Instant::now();
        let mut backoff = WatchBackoff::default();
        // How many seconds each request hangs, and how long the wait is after it.
        for (hung, wait) in [(0, 0.8), (1, 0.8), (1, 2.2), (2, 4.4), (10, 2.8), (20, 5.6), (30, 0.8), (5, 25.0)] {
            let waited = backoff.failed(start + Duration::from_secs(hung), start, 0.0, None);
            assert_eq!(waited.as_millis(), (wait * 1000.0) as u128, "after {hung} s");
        }
    }

    #[test]
    fn at_most_a_burst_and_one_a_second() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::new();
        let sent: Vec<f64> = (0..6).map(|_| (limiter.take(start) - start).as_secs_f64()).collect();
        assert_eq!(sent, [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]);
        let later = start + Duration::from_secs(60);
        assert_eq!(limiter.take(later), later, "the bucket fills up again");
    }
}
