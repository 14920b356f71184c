//! How long a failing key waits, and how many takes a second the queue hands out. In: how often it failed, a throw of
//! the dice, the time in ticks (nanoseconds since the queue began). Out: a delay, or the tick at which a take is
//! allowed. Never sleeps and never asks the clock.

use std::time::Duration;

/// The delays between the tries of one key: `initial`, then `multiplier` times as long each time, up to `max`.
///
/// ```
/// use konverge_runtime::Backoff;
/// use std::time::Duration;
/// let backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(16), ..Backoff::default() };
/// let delays: Vec<u64> = (1..=6).map(|failures| backoff.delay(failures).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 16, 16]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
    /// By how much each delay is longer than the one before; less than 1 counts as 1.
    pub multiplier: f64,
    /// How often a key is tried again before it is given up until something wakes it; `None` is for ever.
    pub max_retries: Option<u32>,
    /// The share of a delay, 0 to 1, that the dice may take off it, so that keys which failed together do not all come
    /// back together.
    pub jitter: f64,
}

impl Default for Backoff {
    /// Half a second, doubled up to five minutes, a fifth of it random, for ever.
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(300),
            multiplier: 2.0,
            max_retries: None,
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// The delay after this many failures in a row, before the dice are thrown; none without a failure.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(steps) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = self.multiplier.max(1.0).powi(steps.min(1_000) as i32);
        // What does not fit, fits after the cut at the longest delay.
        Duration::try_from_secs_f64(self.initial.as_secs_f64() * factor).unwrap_or(self.max).min(self.max)
    }

    /// The delay with its random share taken off; `dice` is from 0 to 1.
    pub(super) fn thrown(&self, failures: u32, dice: f64) -> Duration {
        let share = self.jitter.clamp(0.0, 1.0) * dice.clamp(0.0, 1.0);
        let share = if share.is_nan() { 0.0 } else { share };
        self.delay(failures).mul_f64(1.0 - share)
    }

    /// Whether this many failures in a row are the end of trying.
    pub(super) fn is_exhausted(&self, failures: u32) -> bool {
        self.max_retries.is_some_and(|most| failures > most)
    }
}

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
    fn delays_grow_up_to_the_longest_and_never_overflow() {
        let check = |backoff: Backoff, expect: &[(u32, u64)]| {
            for (failures, millis) in expect {
                assert_eq!(backoff.delay(*failures).as_millis() as u64, *millis, "{backoff:?} after {failures}");
            }
        };
        let of = |initial, max, multiplier| Backoff {
            initial: Duration::from_millis(initial),
            max: Duration::from_millis(max),
            multiplier,
            ..Backoff::default()
        };
        check(Backoff::default(), &[(0, 0), (1, 500), (2, 1_000), (10, 256_000), (11, 300_000), (u32::MAX, 300_000)]);
        check(of(5_000, 300_000, 2.0), &[(1, 5_000), (6, 160_000), (7, 300_000)]);
        check(of(100, 1_000, 1.5), &[(1, 100), (2, 150), (3, 225)]);
        check(of(60_000, 60_000, 1.0), &[(1, 60_000), (99, 60_000)]);
        check(of(1_000, 9_000, 0.5), &[(1, 1_000), (5, 1_000)]);
        check(of(1_000, 9_000, f64::NAN), &[(1, 1_000), (5, 1_000)]);
        check(of(1_000, 9_000, f64::INFINITY), &[(1, 1_000), (2, 9_000)]);
        check(of(5_000, 1_000, 2.0), &[(1, 1_000)]);
    }

    #[test]
    fn dice_only_shorten() {
        let check = |jitter: f64, dice: f64, millis: u64| {
            let backoff = Backoff { initial: Duration::from_secs(1), jitter, ..Backoff::default() };
            assert_eq!(backoff.thrown(1, dice).as_millis() as u64, millis, "{jitter} {dice}");
        };
        check(0.2, 0.0, 1_000);
        check(0.2, 0.5, 900);
        check(0.2, 1.0, 800);
        check(0.0, 1.0, 1_000);
        check(7.0, 1.0, 0);
        check(-1.0, 1.0, 1_000);
        check(f64::NAN, 0.5, 1_000);
        check(0.2, f64::NAN, 1_000);
    }

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
