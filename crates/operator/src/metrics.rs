//! Metrics for Prometheus. In: what the engine did, and what users count themselves. Out: one page in the text format. Counting is
//! a few atomic additions on handles that were looked up before; all else happens when the page is made.
//!
//! ```text
//!   controller  reconciles, workers, queue     ┐
//!   kind        objects, cache, watches        │ engine: `families` is the table of what is shown, under
//!   requests    calls to the API server        │ controller-runtime's names and under ours
//!   webhook     reviews of webhooks            │
//!   consensus   members and log of Raft        │
//!   process     memory, CPU, files             ┘
//!   custom      counters, gauges, histograms of users
//! ```
//!
//! These files know nothing else of the crate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime};

use konverge_core::{MetricKind, MetricsPage};
use konverge_runtime::{Leadership, Severity, Shards};
use parking_lot::RwLock;

mod consensus;
mod controller;
mod custom;
mod families;
mod kind;
mod latency;
mod name;
mod process;
mod requests;
mod webhook;

#[cfg(test)]
mod tests;

#[cfg_attr(not(feature = "ha"), allow(unused_imports, reason = "without Raft there are none"))]
pub(crate) use consensus::ConsensusMetrics;
pub(crate) use controller::{ControllerMetrics, ReconcileResult, WorkerMetrics};
pub use custom::{Buckets, Counter, Gauge, Histogram, Labelled, Timer};
pub(crate) use kind::{CacheMetrics, KindMetrics};
pub use name::MetricError;
pub(crate) use webhook::WebhookMetrics;

use custom::CustomFamily;
use process::Process;
use requests::Requests;

/// The media type of [`Metrics::page`].
pub const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of an operator: those of the framework under controller-runtime's names, and the user's own. Cheap to clone; all
/// clones are the same.
///
/// ```
/// use konverge::Metrics;
///
/// let metrics = Metrics::new();
/// let builds = metrics.counter_by("webapp_builds_total", "Builds by their end", ["result"])?;
/// builds.with(["success"]).inc();
/// assert!(metrics.page().contains("webapp_builds_total{result=\"success\"} 1"));
/// # Ok::<(), konverge::MetricError>(())
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    engine: Engine,
    custom: RwLock<BTreeMap<String, CustomFamily>>,
}

type CacheSource = Box<dyn Fn(&mut dyn FnMut(&str, &str, CacheMetrics)) + Send + Sync>;

/// Severities with the type of their events, in their order.
const SEVERITIES: [(Severity, &str, &str); 4] = [
    (Severity::Info, "Normal", "Info"),
    (Severity::Warning, "Warning", "Warning"),
    (Severity::Error, "Warning", "Error"),
    (Severity::Critical, "Warning", "Critical"),
];

/// What the engine counts into; the table of families reads it.
struct Engine {
    /// Times are kept as nanoseconds since then.
    epoch: Instant,
    controllers: RwLock<BTreeMap<String, Arc<controller::State>>>,
    kinds: RwLock<BTreeMap<(String, String), Arc<kind::State>>>,
    caches: RwLock<Vec<CacheSource>>,
    events: [AtomicU64; SEVERITIES.len()],
    requests: Requests,
    webhooks: RwLock<BTreeMap<String, Arc<webhook::State>>>,
    /// When the certificates of webhooks end: the one that is served, and its CA.
    certificates: RwLock<[Option<SystemTime>; 2]>,
    /// The names of elections that this instance takes part in, and who leads.
    elections: RwLock<BTreeMap<String, Leadership>>,
    consensus: RwLock<Vec<consensus::Source>>,
    /// The shards that objects are divided into, if they are.
    shards: RwLock<Option<Shards>>,
    process: Process,
}

impl Default for Engine {
    fn default() -> Self {
        Engine {
            epoch: Instant::now(),
            controllers: RwLock::default(),
            kinds: RwLock::default(),
            caches: RwLock::default(),
            events: Default::default(),
            requests: Requests::default(),
            webhooks: RwLock::default(),
            certificates: RwLock::default(),
            elections: RwLock::default(),
            consensus: RwLock::default(),
            shards: RwLock::default(),
            process: Process::start(),
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Metrics").field(&self.0.custom.read().keys()).finish()
    }
}

/// The names of the families that every operator exports, and what they are. The program `konverge` checks alerts and dashboards against them.
pub fn metric_families() -> impl Iterator<Item = (&'static str, MetricKind)> {
    families::TABLE.iter().map(|family| (family.name, family.kind))
}

impl Metrics {
    /// A registry with the engine's families and none of the user's.
    pub fn new() -> Metrics {
        Metrics::default()
    }

    /// The page for Prometheus, as of now.
    pub fn page(&self) -> String {
        self.page_at(Instant::now())
    }

    fn page_at(&self, now: Instant) -> String {
        let mut page = MetricsPage::default();
        for family in families::TABLE {
            let mut samples = page.family(family.name, family.help, family.kind);
            (family.write)(&self.0.engine, now, &mut samples);
        }
        for (name, family) in self.0.custom.read().iter() {
            family.write(name, &mut page);
        }
        page.finish()
    }

    /// The handles of a controller, whose families are shown from now on, at zero. The same name gives the same handles.
    pub(crate) fn controller(&self, name: &str) -> ControllerMetrics {
        let engine = &self.0.engine;
        let mut controllers = engine.controllers.write();
        let state = controllers.entry(name.into()).or_insert_with(|| Arc::new(controller::State::new(engine.epoch)));
        ControllerMetrics::of(state.clone())
    }

    /// The handles of a kind that is watched: `metrics.kind("apps", "Deployment")`.
    pub(crate) fn kind(&self, group: &str, kind: &str) -> KindMetrics {
        let mut kinds = self.0.engine.kinds.write();
        KindMetrics::of(kinds.entry((kind.into(), group.into())).or_default().clone())
    }

    /// Adds a function that calls back with kind, group and figures of each cache when the page is rendered.
    pub(crate) fn caches_from(
        &self,
        source: impl Fn(&mut dyn FnMut(&str, &str, CacheMetrics)) + Send + Sync + 'static,
    ) {
        self.0.engine.caches.write().push(Box::new(source));
    }

    /// The handles of the webhook at this path, whose families are shown from now on.
    pub(crate) fn webhook(&self, path: &str) -> WebhookMetrics {
        WebhookMetrics::of(self.0.engine.webhooks.write().entry(path.into()).or_default().clone())
    }

    /// Webhooks serve a certificate that ends then, of a CA that ends then.
    pub(crate) fn webhook_certificates(&self, serving: Option<SystemTime>, ca: Option<SystemTime>) {
        *self.0.engine.certificates.write() = [serving, ca];
    }

    /// This instance takes part in an election of this name.
    pub(crate) fn leader_election(&self, name: &str, leadership: Leadership) {
        self.0.engine.elections.write().insert(name.to_owned(), leadership);
    }

    /// Objects are divided into these shards.
    pub(crate) fn shards(&self, shards: Shards) {
        *self.0.engine.shards.write() = Some(shards);
    }

    /// A Kubernetes Event was recorded.
    pub(crate) fn event_recorded(&self, severity: Severity) {
        self.0.engine.events[severity as usize].fetch_add(1, Relaxed);
    }

    /// A request to the API server ended after `took`, with this status, or with none if there was no answer.
    pub(crate) fn requested(&self, method: &http::Method, host: &str, status: Option<u16>, took: std::time::Duration) {
        self.0.engine.requests.ended(method.as_str(), host, status, took);
    }
}
