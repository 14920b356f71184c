//! The log of events inside of the process. In: events as they are recorded. Out: the newest events, and a stream of those
//! that come. A slow reader delays nobody; it misses events.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

use super::journal::{Event, HistoryFilter, Journal, RecordedEvent, Subject};

/// How far a reader may fall behind before it misses events.
const READER_CAPACITY: usize = 1024;

/// A century, which can be added to any timestamp without overflow.
const LONGEST: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// A signed duration of at most a century, which can be added to any timestamp without overflow.
pub(super) fn to_signed_duration(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(LONGEST).min(LONGEST)
}

/// The newest events of an operator. Clones share one log.
///
/// ```
/// use konverge_runtime::{EventLog, HistoryFilter, Severity};
/// let log = EventLog::default();
/// let bad = HistoryFilter { kind: Some("WebApp".into()), severity: Severity::Error, ..HistoryFilter::default() };
/// assert!(log.find(&bad).is_empty());
/// ```
#[derive(Clone)]
pub struct EventLog(Arc<Log>);

struct Log {
    window: SignedDuration,
    journal: Mutex<Journal>,
    readers: broadcast::Sender<Arc<RecordedEvent>>,
}

/// Reads events as they are recorded; see [`EventLog::follow`].
pub struct EventReader(broadcast::Receiver<Arc<RecordedEvent>>);

impl EventLog {
    /// An empty log. It counts repetitions within `window` as one event, and keeps the newest `capacity` events.
    pub fn new(window: Duration, capacity: usize) -> Self {
        let window = to_signed_duration(window);
        let journal = Mutex::new(Journal::new(window, capacity.max(1)));
        Self(Arc::new(Log { window, journal, readers: broadcast::Sender::new(READER_CAPACITY) }))
    }

    /// The events that the filter matches, oldest first.
    pub fn find(&self, filter: &HistoryFilter) -> Vec<Arc<RecordedEvent>> {
        self.0.journal.lock().find(filter)
    }

    /// A reader of all events from now on, with repetitions.
    pub fn follow(&self) -> EventReader {
        EventReader(self.0.readers.subscribe())
    }

    pub(super) fn window(&self) -> SignedDuration {
        self.0.window
    }

    /// Adds an event. `pass_on` is called under the lock of the journal, so that counts arrive in their order.
    pub(super) fn record(
        &self,
        subject: &Arc<Subject>,
        event: Event,
        now: Timestamp,
        pass_on: impl FnOnce(Arc<RecordedEvent>),
    ) {
        let mut journal = self.0.journal.lock();
        let recorded = journal.record(subject, event, now);
        // An error means that there are no readers.
        let _ = self.0.readers.send(recorded.clone());
        pass_on(recorded);
    }
}

impl Default for EventLog {
    /// A window of one minute, and ten thousand events.
    fn default() -> Self {
        Self::new(Duration::from_secs(60), 10_000)
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("window", &self.0.window).finish_non_exhaustive()
    }
}

impl EventReader {
    /// The next event, or `None` when the log is dropped. A reader that is more than 1024 events behind misses the oldest.
    pub async fn next(&mut self) -> Option<Arc<RecordedEvent>> {
        loop {
            match self.0.recv().await {
                Ok(recorded) => return Some(recorded),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for EventReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReader").field("waiting", &self.0.len()).finish()
    }
}
