//! Families of series whose labels others choose, such as the names of webhooks. In: keys and durations. Out: counters and histograms,
//! as many as a page can bear; what comes beyond is not counted.

use std::collections::BTreeMap;
use std::time::Duration;

use konverge_core::{MetricSamples, metric_number};

/// How many series each family may have. Whoever writes configurations or definitions can choose names without end.
const MAX_SERIES: usize = 5_000;

/// A histogram of durations. Its bounds are the same for all series of a family.
#[derive(Default)]
pub(crate) struct Durations {
    /// How many took at most as long as each bound, and longer than the one before; the last is for all others.
    took: Vec<u64>,
    seconds: f64,
}

impl Durations {
    pub(crate) fn add(&mut self, bounds: &[f64], took: Duration) {
        let seconds = took.as_secs_f64();
        self.took.resize(bounds.len() + 1, 0);
        self.took[bounds.partition_point(|bound| *bound < seconds)] += 1;
        self.seconds += seconds;
    }

    pub(crate) fn write(&self, family: &mut MetricSamples<'_>, labels: &[(&str, &str)], bounds: &[f64]) {
        let mut up_to = 0;
        let bucket = |(bound, took): (&f64, &u64)| {
            up_to += took;
            (metric_number(*bound), up_to)
        };
        let buckets: Vec<(String, u64)> = bounds.iter().zip(&self.took).map(bucket).collect();
        family.histogram(labels, &buckets, self.took.iter().sum(), self.seconds);
    }
}

pub(crate) fn count<K: Ord>(family: &mut BTreeMap<K, u64>, key: K) {
    if let Some(count) = series(family, key) {
        *count += 1;
    }
}

/// The series of a key; none if there are too many.
pub(crate) fn series<K: Ord, T: Default>(family: &mut BTreeMap<K, T>, key: K) -> Option<&mut T> {
    if family.len() >= MAX_SERIES && !family.contains_key(&key) {
        return None;
    }
    Some(family.entry(key).or_default())
}
