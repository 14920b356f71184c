//! Kubernetes Events. In: what happened to which object. Out: Event objects, visible in `kubectl describe` and `kubectl
//! get events`, and a history inside of the process. Recording never waits and never fails: what cannot be written in
//! time is dropped and counted.
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

pub use journal::{Event, HistoryFilter, Recorded, Severity, Subject};
pub use log::{EventLog, EventReader};

use crate::error::WriteError;
use crate::liveness::Liveness;
use crate::write::{Call, MERGE_PATCH, Operation, Writer};
use log::on_calendars;
use outbox::{Ended, Offered, Outbox, Pace, Task};

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How events are recorded.
#[derive(Clone)]
pub struct RecorderOptions {
    /// Who reports: the operator or controller. `webapp-operator`, or with a domain: `example.com/webapp-operator`.
    pub controller: String,
    /// Which instance of it: the name of the pod.
    pub instance: String,
    /// How long repetitions wait for more of them before the Event is updated.
    pub gather: Duration,
    /// How many different events of one object are written at once.
    pub burst: u32,
    /// How long it takes until one more is.
    pub refill: Duration,
    /// Where events are kept, for whoever asks inside of the process.
    pub log: EventLog,
    /// The time.
    pub clock: Clock,
}

/// What became of all events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderCounts {
    /// All that were recorded, with repetitions.
    pub recorded: u64,
    /// Requests that wrote one.
    pub written: u64,
    /// Not written because the queue was full.
    pub dropped: u64,
    /// Not written because their object made too many.
    pub limited: u64,
    /// Not written because the server did not take them.
    pub failed: u64,
}

/// Records events. Clones share everything.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    log: EventLog,
    queue: Mutex<Option<mpsc::Sender<Arc<Recorded>>>>,
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

/// The other end of a [`Recorder`]: writes what it records. Runs until the recorder is closed or every clone of it is
/// gone, and writes what is left then.
pub struct RecorderTask {
    writer: Writer,
    queue: mpsc::Receiver<Arc<Recorded>>,
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

/// Enough for a burst of a thousand reconciles with an event each while one request is slow; more are dropped, because
/// a reconcile must not wait for its events.
const QUEUE: usize = 1024;

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            controller: "konverge".into(),
            instance: "konverge".into(),
            gather: Duration::from_secs(10),
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
        let (sender, queue) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let liveness = Arc::new(Liveness::of("the recorder of events"));
        let pace = Pace {
            window: options.log.window(),
            gather: on_calendars(options.gather),
            burst: options.burst.max(1),
            refill: on_calendars(options.refill).max(SignedDuration::from_millis(1)),
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
            outbox: Outbox::new(pace),
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

    /// Records what happened to an object. Returns at once.
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

    /// The events so far, and those to come.
    pub fn log(&self) -> &EventLog {
        &self.0.log
    }

    /// What became of all events so far.
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

    /// Whether events are written, and if not, why: the task that writes them panicked, and has written none since.
    pub fn liveness(&self) -> Result<(), String> {
        self.0.liveness.check()
    }

    /// Lets the task write what it has and end. What is recorded after that is only in the history.
    pub fn close(&self) {
        self.0.queue.lock().take();
    }
}

impl RecorderTask {
    /// Writes events until there are no more. A panic costs the event that was being written.
    pub async fn run(mut self) {
        while let Err(panic) = AssertUnwindSafe(self.work()).catch_unwind().await {
            if let Some(lost) = self.writing.take() {
                self.outbox.ended(lost, Ended::Refused, (self.clock)());
                self.counters.failed.fetch_add(1, Relaxed);
            }
            tokio::time::sleep(self.liveness.panicked(&*panic)).await;
        }
    }

    async fn work(&mut self) {
        loop {
            while let Some(task) = self.outbox.take((self.clock)()) {
                self.write(&task).await;
                // What came meanwhile may be repetitions of what waits.
                while let Ok(recorded) = self.queue.try_recv() {
                    self.offer(recorded);
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
                Ok(Some(recorded)) => self.offer(recorded),
                Ok(None) => break,
                Err(_) => self.outbox.sweep((self.clock)()),
            }
        }
        // Each of what is left has one chance: whoever closed the recorder waits.
        let now = (self.clock)();
        self.outbox.hurry(now);
        while let Some(task) = self.outbox.take(now) {
            self.write(&task).await;
        }
    }

    fn offer(&mut self, recorded: Arc<Recorded>) {
        if self.outbox.offer(recorded, (self.clock)()) == Offered::Limited {
            self.counters.limited.fetch_add(1, Relaxed);
        }
    }

    async fn write(&mut self, task: &Task) {
        self.writing = Some(task.recorded.id);
        let ended = match self.send(task).await {
            Ok(()) => {
                self.counters.written.fetch_add(1, Relaxed);
                Ended::Written
            }
            Err(error) if error.is_of_ending_namespace() => {
                // What it would tell about goes too.
                tracing::debug!(key = %task.recorded.subject.key, "an event of a namespace that goes is left out");
                Ended::Written
            }
            Err(error) => ended(task, &error),
        };
        let is_lost = self.outbox.ended(task.recorded.id, ended, (self.clock)());
        self.writing = None;
        if is_lost {
            self.counters.failed.fetch_add(1, Relaxed);
            let (subject, event) = (&task.recorded.subject, &task.recorded.event);
            tracing::warn!(kind = %subject.kind, key = %subject.key, reason = %event.reason, "an event could not be written");
        }
        self.liveness.worked();
    }

    async fn send(&self, task: &Task) -> Result<(), WriteError> {
        let (api, key) = (&self.api, &object::event_key(&task.recorded));
        let (operation, body) = if task.known {
            (Operation::Patch(MERGE_PATCH), json!({"series": object::series(&task.recorded)}))
        } else {
            (Operation::Create, object::event_object(&task.recorded, &self.controller, &self.instance))
        };
        self.writer.send(Call { operation, api, key, subresource: "", body: Some(&body) }).await.map(drop)
    }
}

/// What a failed write means for an event.
fn ended(task: &Task, error: &WriteError) -> Ended {
    match error {
        // The name is ours alone: an earlier attempt came through, though nobody said so.
        WriteError::Exists { .. } => Ended::Exists,
        WriteError::NotFound { .. } if task.known => Ended::Vanished,
        WriteError::Throttled { retry_after, .. } => {
            let pause = retry_after.and_then(|pause| SignedDuration::try_from(pause).ok());
            Ended::Later(pause.unwrap_or(SignedDuration::ZERO))
        }
        WriteError::Unreachable { .. } | WriteError::Unknown { .. } | WriteError::Conflict { .. } => {
            Ended::Later(SignedDuration::ZERO)
        }
        _ => Ended::Refused,
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
