//! How long a failing key waits. In: how often it failed, and a random number. Out: a delay. Never sleeps.

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
    /// The share of a delay, 0 to 1, that jitter may take off it at random, so that keys which failed together do not all come
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
    /// The delay after this many failures in a row, before jitter is taken off; none without a failure.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(steps) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = self.multiplier.max(1.0).powi(steps.min(1_000) as i32);
        // What does not fit, fits after the cut at the longest delay.
        Duration::try_from_secs_f64(self.initial.as_secs_f64() * factor).unwrap_or(self.max).min(self.max)
    }

    /// The delay with its random share taken off; `random` is from 0 to 1.
    pub(super) fn jittered(&self, failures: u32, random: f64) -> Duration {
        let share = self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0);
        let share = if share.is_nan() { 0.0 } else { share };
        self.delay(failures).mul_f64(1.0 - share)
    }

    /// Whether this many failures in a row are the end of trying.
    pub(super) fn is_exhausted(&self, failures: u32) -> bool {
        self.max_retries.is_some_and(|most| failures > most)
    }
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
    fn jitter_only_shortens() {
        let check = |jitter: f64, random: f64, millis: u64| {
            let backoff = Backoff { initial: Duration::from_secs(1), jitter, ..Backoff::default() };
            assert_eq!(backoff.jittered(1, random).as_millis() as u64, millis, "{jitter} {random}");
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
}
