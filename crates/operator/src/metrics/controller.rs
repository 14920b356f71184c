//! What one controller does: reconciles, workers, queue. In: calls from the engine's hot path. Out: atomics that the
//! table of families shows. A reconcile costs four atomic additions here, and none allocates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use konverge_runtime::QueueStats;
use parking_lot::{Mutex, RwLock};

use super::latency::{Latency, QUEUE, RECONCILE};

/// How a reconcile ended, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconcileResult {
    /// It succeeded, and waits for a change.
    Success,
    /// It succeeded, and runs again as soon as the queue allows.
    Requeue,
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
    /// controller-runtime's word for it.
    pub fn result(self) -> &'static str {
        RESULTS[self.index()]
    }

    fn index(self) -> usize {
        match self {
            ReconcileResult::Success => 0,
            ReconcileResult::Requeue => 1,
            ReconcileResult::RequeueAfter => 2,
            ReconcileResult::Error
            | ReconcileResult::TerminalError
            | ReconcileResult::Panic
            | ReconcileResult::Timeout => ERROR,
        }
    }
}

/// controller-runtime's four results.
pub(super) const RESULTS: [&str; 4] = ["success", "requeue", "requeue_after", "error"];
/// The one of them that is bad.
pub(super) const ERROR: usize = 3;

/// Asks the queue how many entries are due, by priority.
type Depth = Box<dyn Fn(&mut dyn FnMut(i32, usize)) + Send + Sync>;

/// Asks the engine's queue how it is doing; nothing once it is gone.
type Stats = Box<dyn Fn() -> Option<QueueStats> + Send + Sync>;

pub(super) struct State {
    epoch: Instant,
    pub results: [AtomicU64; RESULTS.len()],
    pub terminal: AtomicU64,
    pub panics: AtomicU64,
    pub timeouts: AtomicU64,
    /// Also what the queue calls work: both begin and end together.
    pub took: Latency,
    pub max_concurrent: AtomicU64,
    /// What was counted here, or what the queue has counted when it was last asked.
    adds: AtomicU64,
    pub gave_up: AtomicU64,
    /// The same.
    retries: AtomicU64,
    pub waited: Latency,
    depth: RwLock<Option<Depth>>,
    queue: RwLock<Option<Stats>>,
    /// One a worker; 0 while it is idle, else when its work began, in nanoseconds since the epoch.
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
    pub fn new(epoch: Instant) -> State {
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
            depth: RwLock::default(),
            slots: Mutex::default(),
        }
    }

    pub fn running(&self, now: Instant) -> Running {
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
    pub fn adds(&self) -> f64 {
        if let Some(stats) = self.queue.read().as_ref().and_then(|stats| stats()) {
            self.adds.fetch_max(stats.adds, Relaxed);
        }
        self.adds.load(Relaxed) as f64
    }

    /// Keys that were put back after a failure so far.
    pub fn retries(&self) -> f64 {
        if let Some(stats) = self.queue.read().as_ref().and_then(|stats| stats()) {
            self.retries.fetch_max(stats.retries, Relaxed);
        }
        self.retries.load(Relaxed) as f64
    }

    /// Depths by priority, as labels; 0 is always there, and what is beyond [`PRIORITIES`] is summed up.
    pub fn depths(&self) -> Vec<(String, usize)> {
        let mut depths = vec![(0, 0)];
        let mut rest = 0;
        let stats = self.queue.read().as_ref().and_then(|stats| stats());
        let of_queue = stats.map(|stats| stats.ready).unwrap_or_default();
        let mut each = |priority, count| match depths.iter().position(|(known, _)| *known == priority) {
            Some(known) => depths[known].1 += count,
            None if depths.len() < PRIORITIES => depths.push((priority, count)),
            None => rest += count,
        };
        of_queue.into_iter().enumerate().for_each(|(priority, ready)| each(priority as i32, ready));
        if let Some(depth) = &*self.depth.read() {
            depth(&mut each);
        }
        depths.sort_unstable();
        let rest = (rest > 0).then(|| (OVERFLOW.to_string(), rest));
        depths.into_iter().map(|(priority, count)| (priority.to_string(), count)).chain(rest).collect()
    }
}

/// controller-runtime's bound on values of the label, against those who compute priorities.
const PRIORITIES: usize = 25;
/// The label of what is beyond a bound; controller-runtime's word.
pub(super) const OVERFLOW: &str = "exceeded_cardinality_limit";

fn nanos_since(epoch: Instant, now: Instant) -> u64 {
    // Never 0, which means idle.
    (now.saturating_duration_since(epoch).as_nanos() as u64).max(1)
}

/// The handles of one controller, from [`Metrics::controller`](super::Metrics::controller). Cheap to clone.
#[derive(Clone)]
pub struct ControllerMetrics(Arc<State>);

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
    pub fn set_max_concurrent(&self, workers: usize) {
        self.0.max_concurrent.store(workers as u64, Relaxed);
    }

    /// A key became due. Wakeups that join a key which is due already do not count. Not for a controller that shows its
    /// queue by `queue_from`.
    pub fn queued(&self) {
        self.0.adds.fetch_add(1, Relaxed);
    }

    /// A key was put back after a failure. Not for a controller that shows its queue by `queue_from`.
    pub fn retried(&self) {
        self.0.retries.fetch_add(1, Relaxed);
    }

    /// A key left the queue after it had been due for so long.
    pub fn dequeued(&self, waited: Duration) {
        self.0.waited.observe(waited);
    }

    /// A reconcile ended, after so long.
    pub fn reconciled(&self, outcome: ReconcileResult, took: Duration) {
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
    pub fn gave_up(&self) {
        self.0.gave_up.fetch_add(1, Relaxed);
    }

    /// The engine's queue, asked for its depth and for the keys that became due when the page is made.
    pub(crate) fn queue_from(&self, stats: Box<dyn Fn() -> Option<QueueStats> + Send + Sync>) {
        *self.0.queue.write() = Some(stats);
    }

    /// Who to ask for the queue's depth when the page is made: it is to call with a priority and how many keys of it
    /// are due, once or several times. It should hold the queue weakly, for it lives as long as the metrics.
    pub fn depth_from(&self, depth: impl Fn(&mut dyn FnMut(i32, usize)) + Send + Sync + 'static) {
        *self.0.depth.write() = Some(Box::new(depth));
    }

    /// The handle of one of the controller's workers.
    pub fn worker(&self) -> WorkerMetrics {
        let slot = Arc::new(AtomicU64::new(0));
        self.0.slots.lock().push(slot.clone());
        WorkerMetrics { state: self.0.clone(), slot }
    }
}

/// What one worker does at this moment. It counts as gone when this is dropped.
pub struct WorkerMetrics {
    state: Arc<State>,
    slot: Arc<AtomicU64>,
}

impl fmt::Debug for WorkerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerMetrics")
    }
}

impl WorkerMetrics {
    /// The worker begins a reconcile, which lasts until the guard is dropped: also by a panic or a cancellation.
    pub fn begin(&self, now: Instant) -> Busy<'_> {
        self.slot.store(nanos_since(self.state.epoch, now), Relaxed);
        Busy(&self.slot)
    }

    /// The worker begins a reconcile, and says itself when it is over.
    pub(crate) fn busy(&self, now: Instant) {
        std::mem::forget(self.begin(now));
    }

    /// The worker has nothing to do.
    pub(crate) fn idle(&self) {
        self.slot.store(0, Relaxed);
    }
}

impl Drop for WorkerMetrics {
    fn drop(&mut self) {
        self.state.slots.lock().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// A worker at work.
#[derive(Debug)]
#[must_use = "the worker counts as busy until this is dropped"]
pub struct Busy<'a>(&'a AtomicU64);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}
