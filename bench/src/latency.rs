//! Latencies and their percentiles. In: one duration for each operation. Out: percentiles. No duration is dropped.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Measured durations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    /// No durations, with capacity for some.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Adds a duration.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    /// Adds all durations of another.
    pub(crate) fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    /// The number of durations.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest duration that this share of all (0 to 1) does not exceed; zero if there are none.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The same in milliseconds.
    pub(crate) fn millis(&self, share: f64) -> f64 {
        self.quantile(share).as_secs_f64() * 1e3
    }

    /// Median, 99th percentile and maximum as text.
    pub(crate) fn summary(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| self.millis(share));
        format!("p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let of = |numbers: &[u64]| Latencies(numbers.iter().map(|ms| Duration::from_millis(*ms)).collect());
        for (numbers, share, expect) in [
            (&[][..], 0.5, 0),
            (&[7], 0.0, 7),
            (&[7], 1.0, 7),
            (&[3, 1, 2], 0.5, 2),
            (&[4, 3, 2, 1], 0.5, 2),
            (&[4, 3, 2, 1], 0.51, 3),
            (&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.99, 10),
        ] {
            assert_eq!(of(numbers).quantile(share).as_millis(), expect, "{numbers:?} {share}");
        }
    }
}
