//! Where events go: a queue, and one thread that writes them as lines to a file or to stdout. In: events. It never blocks a thread
//! that serves. The queue is bounded in events and in bytes; what has no room is lost, counted and said in the server's log.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::event::Event;
use super::file::{RotatingFile, Rotation};
use super::metrics::AuditMetrics;
use crate::service::panic_text;

/// The memory of all events that wait, in KiB. Enough for 30 events with the largest objects, or for 30,000 without any. An event
/// that is larger, such as a list that is answered, waits until the queue is empty.
const QUEUE_KIB: u32 = 64 * 1024;

/// How long a request waits until its event is written, in the modes that block. A disk that takes longer is stuck, and the
/// request goes on without its event; in the strict mode it is refused.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Lost events are said at most this often: the first one, and then how many there were.
const SAY_EACH: Duration = Duration::from_secs(5);

/// How the audit log is written.
///
/// ```
/// use konverge_apiserver::{AuditLogOptions, AuditOutput};
/// let options = AuditLogOptions::new(AuditOutput::File("audit.log".into()));
/// assert_eq!(options.max_size, 100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditLogOptions {
    /// Where lines go.
    pub output: AuditOutput,
    /// How lines look.
    pub format: AuditFormat,
    /// Whether requests wait for their events.
    pub mode: AuditMode,
    /// How many events may wait in the mode [`AuditMode::Batch`]. More are lost.
    pub buffer: usize,
    /// Megabytes after which a new file begins; 0: never.
    pub max_size: u64,
    /// Days after which old files are removed; 0: never.
    pub max_age: u64,
    /// How many old files are kept; 0: all.
    pub max_backups: usize,
    /// Whether old files are compressed with gzip.
    pub compress: bool,
    /// Events with more bytes lose what was sent and answered. Those that are still larger are lost.
    pub max_event_bytes: Option<usize>,
}

impl AuditLogOptions {
    /// The defaults of kube-apiserver.
    pub fn new(output: AuditOutput) -> Self {
        Self {
            output,
            format: AuditFormat::Json,
            mode: AuditMode::Blocking,
            buffer: 10_000,
            max_size: 100,
            max_age: 366,
            max_backups: 100,
            compress: false,
            max_event_bytes: None,
        }
    }
}

/// Where the lines of the audit log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// A file, which is made if it is not there, for its owner alone.
    File(PathBuf),
}

/// How the lines of the audit log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditFormat {
    /// An `Event` of `audit.k8s.io/v1` as JSON.
    #[default]
    Json,
    /// The text of old releases.
    Legacy,
}

/// Whether requests wait for their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// A request is answered when its events are written, or cannot be written. Threads do not wait, only the request does.
    #[default]
    Blocking,
    /// The same, and a request whose first event cannot be written is refused with 500.
    BlockingStrict,
    /// No request waits.
    Batch,
}

/// The queue of the audit log. The thread behind it ends when nobody holds the log any more, after the last event.
pub(crate) struct AuditLog {
    mode: AuditMode,
    queue: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    losses: Arc<Losses>,
}

enum Message {
    Event(Box<Queued>),
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

struct Queued {
    event: Event,
    /// Given back when the event is written.
    _room: OwnedSemaphorePermit,
    /// Told whether the event was written.
    written: Option<oneshot::Sender<bool>>,
}

impl AuditLog {
    /// Opens the output and starts the thread.
    pub(crate) fn open(options: &AuditLogOptions, metrics: Arc<AuditMetrics>) -> io::Result<Self> {
        let output: Output = match &options.output {
            AuditOutput::Stdout => Box::new(|line| {
                let mut stdout = io::stdout().lock();
                stdout.write_all(line).and_then(|()| stdout.flush())
            }),
            AuditOutput::File(path) => {
                let AuditLogOptions { max_size, max_age, max_backups, compress, .. } = *options;
                let mut file = RotatingFile::open(path, Rotation { max_size, max_age, max_backups, compress })?;
                Box::new(move |line| file.write(line, Timestamp::now()))
            }
        };
        let (queue, events) = mpsc::channel(options.buffer.clamp(1, Semaphore::MAX_PERMITS));
        let losses = Arc::new(Losses { metrics, said: Mutex::default() });
        let writer = Writer { output, format: options.format, max: options.max_event_bytes, losses: losses.clone() };
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || writer.run(events))?;
        let room = Arc::new(Semaphore::new(QUEUE_KIB as usize));
        Ok(Self { mode: options.mode, queue, room, losses })
    }

    /// Records an event, and waits until it is written if the mode says so. False if the request must be refused.
    pub(crate) async fn record(&self, event: Event) -> bool {
        if self.mode == AuditMode::Batch {
            self.submit(event);
            return true;
        }
        let (written, outcome) = oneshot::channel();
        let recorded = async {
            let mut unqueued = Unqueued { losses: &self.losses, why: Some(SLOW) };
            let room = self.room.clone().acquire_many_owned(kib(&event)).await.ok()?;
            let queued = Queued { event, _room: room, written: Some(written) };
            let sent = self.queue.send(Message::Event(Box::new(queued))).await;
            unqueued.why = sent.is_err().then_some(ENDED);
            outcome.await.ok()
        };
        // An event that is in the queue may still be written after the request has stopped waiting.
        let written = tokio::time::timeout(LONGEST_WAIT, recorded).await;
        matches!(written, Ok(Some(true))) || self.mode == AuditMode::Blocking
    }

    /// Records an event without waiting.
    pub(crate) fn submit(&self, event: Event) {
        let lost = match self.room.clone().try_acquire_many_owned(kib(&event)) {
            Err(_) => Some(BLOCKED),
            Ok(room) => {
                match self.queue.try_send(Message::Event(Box::new(Queued { event, _room: room, written: None }))) {
                    Ok(()) => None,
                    Err(mpsc::error::TrySendError::Full(_)) => Some(BLOCKED),
                    Err(mpsc::error::TrySendError::Closed(_)) => Some(ENDED),
                }
            }
        };
        if let Some(why) = lost {
            self.losses.lost("buffered", why);
        }
    }

    /// Waits until every event that was recorded before is written.
    pub(crate) async fn flush(&self) {
        let (written, done) = oneshot::channel();
        let flushed = async {
            self.queue.send(Message::Flush(written)).await.ok()?;
            done.await.ok()
        };
        if tokio::time::timeout(LONGEST_WAIT, flushed).await.is_err() {
            tracing::warn!("the last events of the audit log are not written");
        }
    }
}

/// Why events do not come into the queue. The first is what kube-apiserver says.
const BLOCKED: &str = "audit buffer queue blocked";
const SLOW: &str = "the events before it are not written yet";
const ENDED: &str = "the thread that writes the audit log has ended; restart the server";

/// Counts an event as lost that does not come into the queue, because it is full for too long or its request is gone.
struct Unqueued<'a> {
    losses: &'a Losses,
    /// None once the event is in the queue.
    why: Option<&'static str>,
}

impl Drop for Unqueued<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            self.losses.lost("log", why);
        }
    }
}

/// The memory of an event, as the semaphore counts it.
fn kib(event: &Event) -> u32 {
    u32::try_from(event.bytes() / 1024).map_or(QUEUE_KIB, |kib| kib.clamp(1, QUEUE_KIB))
}

/// Counts events that are lost, and says so.
struct Losses {
    metrics: Arc<AuditMetrics>,
    /// When it was last said, and how many were lost since.
    said: Mutex<(Option<Instant>, u64)>,
}

impl Losses {
    fn lost(&self, plugin: &'static str, why: &str) {
        self.metrics.lost(plugin);
        let mut said = self.said.lock();
        said.1 += 1;
        let now = Instant::now();
        if said.0.is_none_or(|before| now.duration_since(before) >= SAY_EACH) {
            let events = std::mem::replace(&mut *said, (Some(now), 0)).1;
            tracing::error!(plugin, why, events, "audit events are lost");
        }
    }
}

/// The thread that writes.
struct Writer {
    output: Output,
    format: AuditFormat,
    max: Option<usize>,
    losses: Arc<Losses>,
}

/// Writes a line.
type Output = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

impl Writer {
    fn run(mut self, mut events: mpsc::Receiver<Message>) {
        while let Some(message) = events.blocking_recv() {
            match message {
                Message::Event(queued) => {
                    let Queued { event, written, _room } = *queued;
                    // A panic loses this event and no other: without this thread the server would go on unaudited.
                    let done = catch_unwind(AssertUnwindSafe(|| self.write(event)));
                    let done = done.unwrap_or_else(|panic| {
                        self.losses.lost("log", &format!("writing it panicked: {}", panic_text(&*panic)));
                        false
                    });
                    if let Some(written) = written {
                        // The request may have stopped waiting.
                        let _ = written.send(done);
                    }
                }
                Message::Flush(written) => drop(written.send(())),
            }
        }
    }

    fn write(&mut self, event: Event) -> bool {
        let Some(line) = self.line(event) else { return false };
        let written = (self.output)(&line);
        written.inspect_err(|error| self.losses.lost("log", &error.to_string())).is_ok()
    }

    /// The line of an event, unless it is too large. What is too large is decided by its JSON, whatever the format is.
    fn line(&self, mut event: Event) -> Option<Vec<u8>> {
        if let Some(max) = self.max {
            let mut line = event.json();
            if line.len() > max && event.may_have_objects() {
                event = event.truncated();
                line = event.json();
            }
            if line.len() > max {
                self.losses.lost("truncate", "event is too large even after truncating");
                return None;
            }
        }
        Some(match self.format {
            AuditFormat::Json => event.json(),
            AuditFormat::Legacy => event.legacy(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::event::{Facts, Head};
    use crate::audit::policy::{Level, Stage};

    fn event(bytes: usize) -> Event {
        let head = Head {
            level: Level::Metadata,
            omit_managed_fields: false,
            audit_id: "a".into(),
            uri: String::new(),
            verb: String::new(),
            user: None,
            source_ips: Vec::new(),
            user_agent: String::new(),
            received: Timestamp::UNIX_EPOCH,
        };
        let facts = Facts { response: Some(vec![b' '; bytes].into()), ..Facts::default() };
        Event { head: Arc::new(head), stage: Stage::ResponseComplete, at: Timestamp::UNIX_EPOCH, facts }
    }

    /// A log whose events nobody writes.
    fn stuck(mode: AuditMode, buffer: usize) -> (AuditLog, mpsc::Receiver<Message>, Arc<AuditMetrics>) {
        let (queue, events) = mpsc::channel(buffer);
        let metrics = Arc::<AuditMetrics>::default();
        let losses = Arc::new(Losses { metrics: metrics.clone(), said: Mutex::default() });
        (AuditLog { mode, queue, room: Arc::new(Semaphore::new(QUEUE_KIB as usize)), losses }, events, metrics)
    }

    #[tokio::test]
    async fn what_has_no_room_is_lost_and_counted() {
        for (buffer, sizes, lost) in [
            (3, &[0, 0, 0][..], 0),
            (2, &[0, 0, 0, 0], 2),
            (9, &[40 << 20, 40 << 20, 1 << 20], 1),
            // One that is larger than all others may be together has the queue for itself.
            (9, &[100 << 20, 0], 1),
        ] {
            let (log, mut events, metrics) = stuck(AuditMode::Batch, buffer);
            for bytes in sizes {
                assert!(log.record(event(*bytes)).await);
            }
            assert_eq!(metrics.lost_by("buffered"), lost, "{sizes:?}");
            // Room comes back with what is written.
            while events.try_recv().is_ok() {}
            log.submit(event(1));
            assert_eq!(metrics.lost_by("buffered"), lost, "{sizes:?}");
        }
    }

    /// The thread outlives a panic, and the next event is written.
    #[tokio::test]
    async fn a_panic_loses_one_event() {
        let (mut log, events, metrics) = stuck(AuditMode::BlockingStrict, 9);
        let mut lines = 0;
        let output: Output = Box::new(move |_| {
            lines += 1;
            assert_ne!(lines, 2, "a disk that nobody thought of");
            Ok(())
        });
        let writer = Writer { output, format: AuditFormat::Json, max: None, losses: log.losses.clone() };
        let thread = std::thread::spawn(move || writer.run(events));
        for (number, expect, lost) in [(1, true, 0), (2, false, 1), (3, true, 1)] {
            assert_eq!(log.record(event(0)).await, expect, "event {number}");
            assert_eq!(metrics.lost_by("log"), lost, "event {number}");
        }
        // Without the thread the reason is another one than a slow disk.
        log.queue = mpsc::channel(1).0;
        thread.join().expect("the thread ends with its queue");
        assert!(!log.record(event(0)).await);
        assert_eq!(metrics.lost_by("log"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_ever() {
        for (mode, buffer, lost, allowed) in [
            (AuditMode::Blocking, 1, 0, true),
            (AuditMode::BlockingStrict, 1, 0, false),
            (AuditMode::Batch, 1, 0, true),
        ] {
            let (log, events, metrics) = stuck(mode, buffer);
            assert_eq!(log.record(event(0)).await, allowed, "{mode:?}");
            assert_eq!(metrics.lost_by("log"), lost, "{mode:?}");
            // The second one does not even come into the queue.
            assert_eq!(log.record(event(0)).await, allowed, "{mode:?}");
            assert_eq!(metrics.lost_by("log") + metrics.lost_by("buffered"), 1, "{mode:?}");
            drop(events);
            assert_eq!(log.record(event(0)).await, allowed, "{mode:?}");
        }
    }
}
