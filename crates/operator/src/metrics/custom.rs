//! Metrics of users: counters, gauges and histograms, with labels or without. In: names, which are checked, and
//! numbers. Out: families on the same page as the engine's. Counting is atomic and never waits.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::controller::OVERFLOW;
use super::name::{self, MetricError};
use super::{Metrics, families};
use konverge_core::{MetricKind, MetricLabels, MetricSamples, MetricsPage, metric_number};

/// Series of one family. A label that takes the name of each object would fill Prometheus; what comes after these is
/// counted together, under the label value `exceeded_cardinality_limit`.
const SERIES: usize = 10_000;

impl Metrics {
    /// Registers a counter: a number that only grows. Its name has to end in `_total`.
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, MetricError> {
        Ok(self.counter_by(name, help, [])?.with([]))
    }

    /// Registers a counter for each combination of values of these labels.
    pub fn counter_by<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Labelled<Counter, N>, MetricError> {
        self.register(name, help, MetricKind::Counter, labels, Counter::default)
    }

    /// Registers a gauge: a number that goes up and down.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, MetricError> {
        Ok(self.gauge_by(name, help, [])?.with([]))
    }

    /// Registers a gauge for each combination of values of these labels.
    pub fn gauge_by<const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
    ) -> Result<Labelled<Gauge, N>, MetricError> {
        self.register(name, help, MetricKind::Gauge, labels, Gauge::default)
    }

    /// Registers a gauge whose value is computed when the page is made. The function should return at once; if it panics, the
    /// gauge is left out.
    pub fn gauge_from(
        &self,
        name: &str,
        help: &str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), MetricError> {
        let family = CustomFamily { help: help.into(), kind: MetricKind::Gauge, series: Box::new(Asked(value)) };
        self.insert(name, &[], family)
    }

    /// Registers a histogram: how values are distributed.
    pub fn histogram(&self, name: &str, help: &str, buckets: Buckets) -> Result<Histogram, MetricError> {
        Ok(self.histogram_by(name, help, buckets, [])?.with([]))
    }

    /// Registers a histogram for each combination of values of these labels.
    ///
    /// ```
    /// # use konverge::{Buckets, Metrics};
    /// let metrics = Metrics::new();
    /// let builds = metrics.histogram_by("webapp_build_seconds", "How long builds take", Buckets::default(), ["app"])?;
    /// let timer = builds.with(["shop"]).start_timer();
    /// // … build …
    /// timer.stop();
    /// assert!(metrics.page().contains("webapp_build_seconds_count{app=\"shop\"} 1"));
    /// # Ok::<(), konverge::MetricError>(())
    /// ```
    pub fn histogram_by<const N: usize>(
        &self,
        name: &str,
        help: &str,
        buckets: Buckets,
        labels: [&str; N],
    ) -> Result<Labelled<Histogram, N>, MetricError> {
        let bounds: Arc<[f64]> = buckets.check(name)?.into();
        self.register(name, help, MetricKind::Histogram, labels, move || Histogram::new(bounds.clone()))
    }

    fn register<M: Series, const N: usize>(
        &self,
        name: &str,
        help: &str,
        kind: MetricKind,
        labels: [&str; N],
        make: impl Fn() -> M + Send + Sync + 'static,
    ) -> Result<Labelled<M, N>, MetricError> {
        let family = Arc::new(Family {
            labels: labels.map(String::from).into(),
            series: RwLock::default(),
            make: Box::new(make),
        });
        self.insert(name, &labels, CustomFamily { help: help.into(), kind, series: Box::new(family.clone()) })?;
        Ok(Labelled(family))
    }

    fn insert(&self, name: &str, labels: &[&str], family: CustomFamily) -> Result<(), MetricError> {
        name::check(name, family.kind, labels)?;
        let wanted = name::samples(name, family.kind);
        let clashes = |other: &str, kind| name::samples(other, kind).iter().any(|sample| wanted.contains(sample));
        if families::TABLE.iter().any(|known| clashes(known.name, known.kind)) {
            return Err(MetricError::Reserved { name: name.into() });
        }
        let mut custom = self.0.custom.write();
        if custom.iter().any(|(other, known)| clashes(other, known.kind)) {
            return Err(MetricError::Taken { name: name.into() });
        }
        custom.insert(name.into(), family);
        Ok(())
    }
}

/// One metric for each combination of values of `N` labels. Cheap to clone.
pub struct Labelled<M, const N: usize>(Arc<Family<M>>);

impl<M, const N: usize> Clone for Labelled<M, N> {
    fn clone(&self) -> Self {
        Labelled(self.0.clone())
    }
}

impl<M, const N: usize> fmt::Debug for Labelled<M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Labelled").field(&self.0.labels).finish()
    }
}

#[expect(private_bounds, reason = "users have the three metrics there are")]
impl<M: Series, const N: usize> Labelled<M, N> {
    /// The metric with these label values, in the order of the labels. It is on the page from now on. This is a search behind a
    /// lock: on hot paths, keep the result.
    pub fn with(&self, values: [&str; N]) -> M {
        let key: Vec<String> = values.map(String::from).into();
        if let Some(known) = self.0.series.read().get(&key) {
            return known.clone();
        }
        let mut series = self.0.series.write();
        let full = series.len() >= SERIES && !series.contains_key(&key);
        let key = if full { vec![OVERFLOW.to_string(); N] } else { key };
        series.entry(key).or_insert_with(&self.0.make).clone()
    }

    /// Removes the metric with these label values from the page, for example because its object was deleted. Handles that are
    /// still held count into nothing.
    pub fn remove(&self, values: [&str; N]) -> bool {
        let key: Vec<String> = values.map(String::from).into();
        self.0.series.write().remove(&key).is_some()
    }
}

struct Family<M> {
    labels: Vec<String>,
    series: RwLock<BTreeMap<Vec<String>, M>>,
    make: Box<dyn Fn() -> M + Send + Sync>,
}

/// A family as the page sees it.
pub(super) struct CustomFamily {
    help: String,
    kind: MetricKind,
    series: Box<dyn Write + Send + Sync>,
}

impl CustomFamily {
    pub(super) fn write(&self, name: &str, page: &mut MetricsPage) {
        self.series.write(&mut page.family(name, &self.help, self.kind));
    }
}

trait Write {
    fn write(&self, samples: &mut MetricSamples<'_>);
}

impl<M: Series> Write for Arc<Family<M>> {
    fn write(&self, samples: &mut MetricSamples<'_>) {
        for (values, series) in self.series.read().iter() {
            let labels: Vec<(&str, &str)> =
                self.labels.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
            series.write(&labels, samples);
        }
    }
}

struct Asked<F>(F);

impl<F: Fn() -> f64> Write for Asked<F> {
    fn write(&self, samples: &mut MetricSamples<'_>) {
        // Someone else's code must not take the page away from everybody.
        if let Ok(value) = catch_unwind(AssertUnwindSafe(&self.0)) {
            samples.value(&[], value);
        }
    }
}

/// One line, or a histogram's several.
trait Series: Clone + Send + Sync + 'static {
    fn write(&self, labels: MetricLabels<'_>, samples: &mut MetricSamples<'_>);
}

/// A number that only grows. Cheap to clone; all clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Series for Counter {
    fn write(&self, labels: MetricLabels<'_>, samples: &mut MetricSamples<'_>) {
        samples.value(labels, self.get() as f64);
    }
}

/// A number that goes up and down. Cheap to clone; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Float>);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// Adds a number, which may be negative.
    pub fn add(&self, change: f64) {
        self.0.add(change);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Subtracts one.
    pub fn dec(&self) {
        self.add(-1.0);
    }

    /// The current value.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

impl Series for Gauge {
    fn write(&self, labels: MetricLabels<'_>, samples: &mut MetricSamples<'_>) {
        samples.value(labels, self.get());
    }
}

/// A distribution of values over [`Buckets`]. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Spread>);

#[derive(Debug)]
struct Spread {
    bounds: Arc<[f64]>,
    /// One more than there are bounds.
    buckets: Vec<AtomicU64>,
    sum: Float,
}

impl Histogram {
    fn new(bounds: Arc<[f64]>) -> Histogram {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram(Arc::new(Spread { bounds, buckets, sum: Float::default() }))
    }

    /// Counts a value.
    pub fn observe(&self, value: f64) {
        let Spread { bounds, buckets, sum } = &*self.0;
        // What is not a number is larger than every bound, as in Go.
        buckets[bounds.partition_point(|bound| value > *bound || value.is_nan())].fetch_add(1, Relaxed);
        sum.add(value);
    }

    /// Counts a duration, in seconds.
    pub fn observe_duration(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// Counts the time from now until the timer is stopped or dropped.
    pub fn start_timer(&self) -> Timer {
        Timer { histogram: Some(self.clone()), began: Instant::now() }
    }
}

impl Series for Histogram {
    fn write(&self, labels: MetricLabels<'_>, samples: &mut MetricSamples<'_>) {
        let Spread { bounds, buckets, sum } = &*self.0;
        let mut count = 0;
        let mut shown = Vec::with_capacity(bounds.len());
        for (i, bucket) in buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            shown.extend(bounds.get(i).map(|bound| (metric_number(*bound), count)));
        }
        samples.histogram(labels, &shown, count, sum.get());
    }
}

/// Measures the time until it is dropped, so that work that returns early by `?` is measured, too.
#[derive(Debug)]
#[must_use = "it measures until it is dropped"]
pub struct Timer {
    histogram: Option<Histogram>,
    began: Instant,
}

impl Timer {
    /// Stops, counts the time, and returns it.
    pub fn stop(mut self) -> Duration {
        let took = self.began.elapsed();
        if let Some(histogram) = self.histogram.take() {
            histogram.observe_duration(took);
        }
        took
    }

    /// Stops without counting.
    pub fn discard(mut self) {
        self.histogram = None;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(histogram) = self.histogram.take() {
            histogram.observe_duration(self.began.elapsed());
        }
    }
}

/// The upper bounds of a histogram's buckets. Values above the last bound are counted, too.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets(Vec<f64>);

impl Buckets {
    /// These bounds, in rising order.
    pub fn new(bounds: impl Into<Vec<f64>>) -> Buckets {
        Buckets(bounds.into())
    }

    /// `count` bounds, each `factor` times the one before.
    pub fn exponential(first: f64, factor: f64, count: usize) -> Buckets {
        Buckets(std::iter::successors(Some(first), |bound| Some(bound * factor)).take(count).collect())
    }

    /// `count` bounds, each `step` more than the one before.
    pub fn linear(first: f64, step: f64, count: usize) -> Buckets {
        Buckets((0..count).map(|i| first + step * i as f64).collect())
    }

    fn check(self, name: &str) -> Result<Vec<f64>, MetricError> {
        let refuse = |why| Err(MetricError::Buckets { name: name.into(), why });
        if self.0.is_empty() || self.0.len() > 1000 {
            return refuse("a histogram has 1 to 1000 buckets");
        }
        if self.0.iter().any(|bound| !bound.is_finite()) || !self.0.is_sorted_by(|a, b| a < b) {
            return refuse("the bounds of buckets are finite and rise");
        }
        Ok(self.0)
    }
}

impl Default for Buckets {
    /// Seconds, from 5 ms to 10 s.
    fn default() -> Self {
        Buckets(vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
    }
}

/// A float that many may add to.
#[derive(Debug, Default)]
struct Float(AtomicU64);

impl Float {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    fn add(&self, change: f64) {
        let added = |bits| Some((f64::from_bits(bits) + change).to_bits());
        let _ = self.0.fetch_update(Relaxed, Relaxed, added);
    }
}
