//! Kubernetes Events. In: what happened to which object. Out: Event objects, visible in `kubectl describe` and `kubectl
//! get events`, and a history inside of the process. Recording never waits and never fails: an event that cannot be written
//! in time is dropped and counted.
//!
//! ```text
//! record ─▶ log (journal: counts repetitions, keeps history) ─▶ queue ─▶ outbox (when to write what) ─▶ object ─▶ server
//!            └─▶ readers
//! ```

mod journal;
mod log;
mod object;
mod outbox;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::{SignedDuration, Timestamp};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

pub use journal::{Event, HistoryFilter, RecordedEvent, Severity, Subject};
pub use log::{EventLog, EventReader};

use crate::error::WriteError;
use crate::liveness::Liveness;
use crate::write::{Call, MERGE_PATCH, Operation, Writer};
use log::to_signed_duration;
use outbox::{EventLimits, Offered, Outbox, Task, WriteResult};

/// A function that returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How events are recorded.
#[derive(Clone)]
pub struct RecorderOptions {
    /// The reporting controller: `webapp-operator`, or with a domain, `example.com/webapp-operator`.
    pub controller: String,
    /// The reporting instance: the name of the pod.
    pub instance: String,
    /// How long a repetition waits for further repetitions before the series of its Event is updated.
    pub series_delay: Duration,
    /// How many different events of one object are written without a pause.
    pub burst: u32,
    /// How long it takes until one more may be written.
    pub refill: Duration,
    /// Where events are kept for readers inside of the process.
    pub log: EventLog,
    /// The clock.
    pub clock: Clock,
}

/// How many events were recorded, written and lost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// RecordedEvent events, with repetitions.
    pub recorded: u64,
    /// Successful write requests.
    pub written: u64,
    /// Events that were not written because the queue was full.
    pub dropped: u64,
    /// Events that were not written because their object has too many.
    pub limited: u64,
    /// Events that were not written because the server refused them or could not be reached.
    pub failed: u64,
}

/// Records events. Clones share everything.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    log: EventLog,
    queue: Mutex<Option<mpsc::Sender<Arc<RecordedEvent>>>>,
    counters: Arc<Counters>,
    liveness: Arc<Liveness>,
    clock: Clock,
}

#[derive(Default)]
struct Counters {
    recorded: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    limited: AtomicU64,
    failed: AtomicU64,
}

/// The background task of a [`Recorder`], which writes the events. Runs until the recorder is closed or all of its clones
/// are dropped, and writes the events that are left then.
pub struct RecorderTask {
    writer: Writer,
    queue: mpsc::Receiver<Arc<RecordedEvent>>,
    outbox: Outbox,
    /// The event that is being written.
    writing: Option<u64>,
    counters: Arc<Counters>,
    liveness: Arc<Liveness>,
    clock: Clock,
    api: ApiResource,
    controller: String,
    instance: String,
}

/// The capacity of the queue: enough for a thousand reconciles with an event each while one request is slow. Further
/// events are dropped, because a reconcile must not wait for its events.
const QUEUE_CAPACITY: usize = 1024;

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            controller: "konverge".into(),
            instance: "konverge".into(),
            series_delay: Duration::from_secs(10),
            burst: 25,
            refill: Duration::from_secs(10),
            log: EventLog::default(),
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl Recorder {
    /// A recorder, and the task that has to run beside it.
    pub fn new(writer: Writer, options: RecorderOptions) -> (Self, RecorderTask) {
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let counters = Arc::new(Counters::default());
        let liveness = Arc::new(Liveness::of("the recorder of events"));
        let limits = EventLimits {
            window: options.log.window(),
            series_delay: to_signed_duration(options.series_delay),
            burst: options.burst.max(1),
            refill: to_signed_duration(options.refill).max(SignedDuration::from_millis(1)),
        };
        let shared = Shared {
            log: options.log,
            queue: Mutex::new(Some(sender)),
            counters: counters.clone(),
            liveness: liveness.clone(),
            clock: options.clock.clone(),
        };
        let task = RecorderTask {
            writer,
            queue,
            outbox: Outbox::new(limits),
            writing: None,
            counters,
            liveness,
            clock: options.clock,
            api: ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("events.k8s.io", "v1", "Event"), "events"),
            controller: object::reporter(&options.controller),
            instance: if options.instance.is_empty() { "unknown".into() } else { options.instance },
        };
        (Self(Arc::new(shared)), task)
    }

    /// Records an event of an object. Returns at once.
    pub fn record(&self, subject: &Arc<Subject>, event: Event) {
        let shared = &*self.0;
        let now = (shared.clock)();
        shared.counters.recorded.fetch_add(1, Relaxed);
        shared.log.record(subject, event, now, |recorded| {
            let queue = shared.queue.lock();
            if queue.as_ref().is_none_or(|queue| queue.try_send(recorded).is_err()) {
                shared.counters.dropped.fetch_add(1, Relaxed);
            }
        });
    }

    /// The log with the events so far; it can be followed.
    pub fn log(&self) -> &EventLog {
        &self.0.log
    }

    /// How many events were recorded, written and lost so far.
    pub fn counts(&self) -> RecorderCounts {
        let counters = &self.0.counters;
        RecorderCounts {
            recorded: counters.recorded.load(Relaxed),
            written: counters.written.load(Relaxed),
            dropped: counters.dropped.load(Relaxed),
            limited: counters.limited.load(Relaxed),
            failed: counters.failed.load(Relaxed),
        }
    }

    /// An error if the task that writes events panicked and has not written one since. The text has the panic.
    pub fn liveness(&self) -> Result<(), String> {
        self.0.liveness.check()
    }

    /// Ends the task after it has written the events that wait. Later events are only in the log.
    pub fn close(&self) {
        self.0.queue.lock().take();
    }
}

impl RecorderTask {
    /// Writes events until the recorder is closed. A panic loses only the event that was being written.
    pub async fn run(mut self) {
        while let Err(panic) = AssertUnwindSafe(self.work()).catch_unwind().await {
            if let Some(lost) = self.writing.take() {
                self.outbox.finish(lost, WriteResult::Refused, (self.clock)());
                self.counters.failed.fetch_add(1, Relaxed);
            }
            tokio::time::sleep(self.liveness.panicked(&*panic)).await;
        }
    }

    async fn work(&mut self) {
        loop {
            while let Some(task) = self.outbox.take((self.clock)()) {
                self.write(&task).await;
                // Events that came meanwhile may be repetitions of events that wait.
                while let Ok(recorded) = self.queue.try_recv() {
                    self.add(recorded);
                }
            }
            let received = match self.outbox.next_due() {
                Some(due) => {
                    let pause = due.duration_since((self.clock)()).max(SignedDuration::ZERO);
                    tokio::time::timeout(pause.unsigned_abs(), self.queue.recv()).await
                }
                None => Ok(self.queue.recv().await),
            };
            match received {
                Ok(Some(recorded)) => self.add(recorded),
                Ok(None) => break,
                Err(_) => self.outbox.remove_expired((self.clock)()),
            }
        }
        // Each remaining event is tried once, because the process waits for this task to end.
        let now = (self.clock)();
        self.outbox.make_all_due(now);
        while let Some(task) = self.outbox.take(now) {
            self.write(&task).await;
        }
    }

    fn add(&mut self, recorded: Arc<RecordedEvent>) {
        if self.outbox.add(recorded, (self.clock)()) == Offered::Limited {
            self.counters.limited.fetch_add(1, Relaxed);
        }
    }

    async fn write(&mut self, task: &Task) {
        self.writing = Some(task.recorded.id);
        let result = match self.send(task).await {
            Ok(()) => {
                self.counters.written.fetch_add(1, Relaxed);
                WriteResult::Written
            }
            Err(error) if error.is_of_ending_namespace() => {
                // The object of the event is deleted with its namespace.
                tracing::debug!(key = %task.recorded.subject.key, "not writing an event in a namespace that is being deleted");
                WriteResult::Written
            }
            Err(error) => write_result(task, &error),
        };
        let is_lost = self.outbox.finish(task.recorded.id, result, (self.clock)());
        self.writing = None;
        if is_lost {
            self.counters.failed.fetch_add(1, Relaxed);
            let (subject, event) = (&task.recorded.subject, &task.recorded.event);
            tracing::warn!(kind = %subject.kind, key = %subject.key, reason = %event.reason, "cannot write an event");
        }
        self.liveness.worked();
    }

    async fn send(&self, task: &Task) -> Result<(), WriteError> {
        let (api, key) = (&self.api, &object::event_key(&task.recorded));
        let (operation, body) = if task.exists {
            (Operation::Patch(MERGE_PATCH), json!({"series": object::series(&task.recorded)}))
        } else {
            (Operation::Create, object::event_object(&task.recorded, &self.controller, &self.instance))
        };
        self.writer.send(Call { operation, api, key, subresource: "", body: Some(&body) }).await.map(drop)
    }
}

/// What a failed write means for an event.
fn write_result(task: &Task, error: &WriteError) -> WriteResult {
    match error {
        // Nobody else uses this name, so an earlier attempt succeeded although its response was lost.
        WriteError::Exists { .. } => WriteResult::Exists,
        WriteError::NotFound { .. } if task.exists => WriteResult::Vanished,
        WriteError::Throttled { retry_after, .. } => {
            let pause = retry_after.and_then(|pause| SignedDuration::try_from(pause).ok());
            WriteResult::Later(pause.unwrap_or(SignedDuration::ZERO))
        }
        WriteError::Unreachable { .. } | WriteError::Unknown { .. } | WriteError::Conflict { .. } => {
            WriteResult::Later(SignedDuration::ZERO)
        }
        _ => WriteResult::Refused,
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RecorderTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderTask").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl fmt::Debug for RecorderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderOptions").field("controller", &self.controller).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
