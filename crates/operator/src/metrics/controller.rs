//! The metrics of one controller: reconciles, workers, workqueue. In: calls from the engine's hot path. Out: atomics that the
//! table of families reads. A reconcile costs four atomic additions here and no allocation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use konverge_runtime::QueueStats;
use parking_lot::{Mutex, RwLock};

use super::latency::{Latency, QUEUE, RECONCILE};

/// How a reconcile ended, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReconcileResult {
    /// It succeeded, and waits for a change.
    Success,
    /// It succeeded, and runs again after a while.
    RequeueAfter,
    /// It failed with an error that is retried.
    Error,
    /// It failed with an error that is not retried until the object changes.
    TerminalError,
    /// It panicked.
    Panic,
    /// It took longer than its time limit.
    Timeout,
}

impl ReconcileResult {
    fn index(self) -> usize {
        match self {
            ReconcileResult::Success => 0,
            ReconcileResult::RequeueAfter => 2,
            ReconcileResult::Error
            | ReconcileResult::TerminalError
            | ReconcileResult::Panic
            | ReconcileResult::Timeout => ERROR,
        }
    }
}

/// controller-runtime's four results. The engine has no immediate requeue, so `requeue` stays at zero.
pub(super) const RESULTS: [&str; 4] = ["success", "requeue", "requeue_after", "error"];
/// The index of `error` among them.
pub(super) const ERROR: usize = 3;

/// Returns the figures of the engine's queue; `None` once the queue is dropped.
type Stats = Box<dyn Fn() -> Option<QueueStats> + Send + Sync>;

pub(super) struct State {
    epoch: Instant,
    pub results: [AtomicU64; RESULTS.len()],
    pub terminal: AtomicU64,
    pub panics: AtomicU64,
    pub timeouts: AtomicU64,
    /// Also the work duration of the workqueue: both begin and end together.
    pub took: Latency,
    pub max_concurrent: AtomicU64,
    /// What the queue had counted when the page was last rendered: the queue may be dropped, the counter stays.
    adds: AtomicU64,
    pub gave_up: AtomicU64,
    /// The same.
    retries: AtomicU64,
    pub waited: Latency,
    queue: RwLock<Option<Stats>>,
    /// One for each worker: 0 while it is idle, otherwise when its reconcile began, in nanoseconds since the epoch.
    slots: Mutex<Vec<Arc<AtomicU64>>>,
}

/// What workers do at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Running {
    pub workers: usize,
    pub total: Duration,
    pub longest: Duration,
}

impl State {
    pub(super) fn new(epoch: Instant) -> State {
        State {
            epoch,
            results: Default::default(),
            terminal: AtomicU64::default(),
            panics: AtomicU64::default(),
            timeouts: AtomicU64::default(),
            took: Latency::at(&[&RECONCILE, &QUEUE]),
            max_concurrent: AtomicU64::default(),
            adds: AtomicU64::default(),
            gave_up: AtomicU64::default(),
            queue: RwLock::default(),
            retries: AtomicU64::default(),
            waited: Latency::at(&[&QUEUE]),
            slots: Mutex::default(),
        }
    }

    pub(super) fn running(&self, now: Instant) -> Running {
        let now = nanos_since(self.epoch, now);
        let mut running = Running::default();
        for began in self.slots.lock().iter().map(|slot| slot.load(Relaxed)).filter(|began| *began != 0) {
            let took = Duration::from_nanos(now.saturating_sub(began));
            running.workers += 1;
            running.total += took;
            running.longest = running.longest.max(took);
        }
        running
    }

    /// Keys that became due so far.
    pub(super) fn adds(&self) -> f64 {
        if let Some(stats) = self.queue.read().as_ref().and_then(|stats| stats()) {
            self.adds.fetch_max(stats.adds, Relaxed);
        }
        self.adds.load(Relaxed) as f64
    }

    /// Keys that were put back after a failure so far.
    pub(super) fn retries(&self) -> f64 {
        if let Some(stats) = self.queue.read().as_ref().and_then(|stats| stats()) {
            self.retries.fetch_max(stats.retries, Relaxed);
        }
        self.retries.load(Relaxed) as f64
    }

    /// The keys that are due, by priority. Priority 0 is always there.
    pub(super) fn depths(&self) -> Vec<(String, usize)> {
        let stats = self.queue.read().as_ref().and_then(|stats| stats());
        let ready: Vec<usize> = stats.map_or_else(|| vec![0], |stats| stats.ready.into_iter().collect());
        ready.into_iter().enumerate().map(|(priority, count)| (priority.to_string(), count)).collect()
    }
}

/// The label value for series beyond a limit, as in controller-runtime.
pub(super) const OVERFLOW: &str = "exceeded_cardinality_limit";

fn nanos_since(epoch: Instant, now: Instant) -> u64 {
    // Never 0, which means idle.
    (now.saturating_duration_since(epoch).as_nanos() as u64).max(1)
}

/// The handles of one controller, from [`Metrics::controller`](super::Metrics::controller). Cheap to clone.
#[derive(Clone)]
pub(crate) struct ControllerMetrics(Arc<State>);

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerMetrics")
    }
}

impl ControllerMetrics {
    pub(super) fn of(state: Arc<State>) -> Self {
        ControllerMetrics(state)
    }

    /// The controller runs at most so many reconciles at one time.
    pub(crate) fn set_max_concurrent(&self, workers: usize) {
        self.0.max_concurrent.store(workers as u64, Relaxed);
    }

    /// A key left the queue after it had been due for so long.
    pub(crate) fn dequeued(&self, waited: Duration) {
        self.0.waited.observe(waited);
    }

    /// A reconcile ended, after so long.
    pub(crate) fn reconciled(&self, outcome: ReconcileResult, took: Duration) {
        let state = &*self.0;
        state.results[outcome.index()].fetch_add(1, Relaxed);
        match outcome {
            ReconcileResult::TerminalError => Some(&state.terminal),
            ReconcileResult::Panic => Some(&state.panics),
            ReconcileResult::Timeout => Some(&state.timeouts),
            _ => None,
        }
        .inspect(|count| {
            count.fetch_add(1, Relaxed);
        });
        state.took.observe(took);
    }

    /// An object was given up: it failed once more than it may be retried.
    pub(crate) fn gave_up(&self) {
        self.0.gave_up.fetch_add(1, Relaxed);
    }

    /// Sets the function that returns the figures of the engine's queue when the page is rendered.
    pub(crate) fn queue_from(&self, stats: Box<dyn Fn() -> Option<QueueStats> + Send + Sync>) {
        *self.0.queue.write() = Some(stats);
    }

    /// The handle of one of the controller's workers.
    pub(crate) fn worker(&self) -> WorkerMetrics {
        let slot = Arc::new(AtomicU64::new(0));
        self.0.slots.lock().push(slot.clone());
        WorkerMetrics { state: self.0.clone(), slot }
    }
}

/// The state of one worker. The worker does not count any more once this is dropped.
pub(crate) struct WorkerMetrics {
    state: Arc<State>,
    slot: Arc<AtomicU64>,
}

impl fmt::Debug for WorkerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerMetrics")
    }
}

impl WorkerMetrics {
    /// The worker begins a reconcile.
    pub(crate) fn busy(&self, now: Instant) {
        self.slot.store(nanos_since(self.state.epoch, now), Relaxed);
    }

    /// The worker has ended its reconcile.
    pub(crate) fn idle(&self) {
        self.slot.store(0, Relaxed);
    }
}

impl Drop for WorkerMetrics {
    fn drop(&mut self) {
        self.state.slots.lock().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}
