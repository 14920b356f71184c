//! Histograms of durations. In: how long something took. Out: the samples of a histogram. Several families with different
//! bounds can show the same observations, if the histogram counts at all of their bounds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use konverge_core::{MetricLabels, MetricSamples, metric_number};

/// controller-runtime's bounds for a reconcile, in nanoseconds.
pub(super) const RECONCILE: [u64; 40] = ms([
    5, 10, 25, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 1250, 1500, 1750, 2000, 2500,
    3000, 3500, 4000, 4500, 5000, 6000, 7000, 8000, 9000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000,
    60_000,
]);

/// The default bounds of Prometheus clients: 5 ms to 10 s.
pub(super) const COMMON: [u64; 11] = ms([5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000]);

/// client-go's bounds for its workqueue: 10 ns to 1000 s.
pub(super) const QUEUE: [u64; 12] = {
    let mut bounds = [10; 12];
    let mut i = 1;
    while i < bounds.len() {
        bounds[i] = bounds[i - 1] * 10;
        i += 1;
    }
    bounds
};

/// client-go's bounds for requests.
pub(super) const REQUEST: [u64; 12] = ms([5, 25, 100, 250, 500, 1000, 2000, 4000, 8000, 15_000, 30_000, 60_000]);

const fn ms<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
    let mut i = 0;
    while i < N {
        bounds[i] *= 1_000_000;
        i += 1;
    }
    bounds
}

/// Counts durations. An observation is two atomic additions.
pub(super) struct Latency {
    bounds: Box<[u64]>,
    /// One more than there are bounds: the last one has no upper bound.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Latency {
    /// A histogram that counts at all of these bounds.
    pub(super) fn at(bounds: &[&[u64]]) -> Latency {
        let mut bounds = bounds.concat();
        bounds.sort_unstable();
        bounds.dedup();
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Latency { bounds: bounds.into(), buckets, nanos: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, took: Duration) {
        // A u64 holds 584 years.
        let nanos = took.as_nanos() as u64;
        self.buckets[self.bounds.partition_point(|bound| *bound < nanos)].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Writes the histogram with these bounds only.
    pub(super) fn write(&self, bounds: &[u64], labels: MetricLabels<'_>, samples: &mut MetricSamples<'_>) {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(bounds.len());
        for (i, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            if let Some(bound) = self.bounds.get(i).filter(|bound| bounds.contains(bound)) {
                cumulative.push((label(*bound), count));
            }
        }
        samples.histogram(labels, &cumulative, count, self.nanos.load(Relaxed) as f64 / 1e9);
    }
}

/// The bound in seconds. client-go computes its workqueue bounds by multiplication, and two of them are not exact. Series of
/// both can only be added if ours have the same labels.
fn label(nanos: u64) -> String {
    match nanos {
        10_000 => "9.999999999999999e-06".into(),
        100_000 => "9.999999999999999e-05".into(),
        _ => metric_number(nanos as f64 / 1e9),
    }
}
