//! What happened, for whoever asks inside of the process. In: events as they are recorded. Out: the newest of them, and
//! each from now on. Readers hold up nobody.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

use super::journal::{Event, HistoryFilter, Journal, Recorded, Subject};

/// How far a reader may fall behind before it misses events.
const BEHIND: usize = 1024;

/// A century, which can be added to any time there is.
const FOR_EVER: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// A duration that can be added to any time there is.
pub(super) fn on_calendars(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(FOR_EVER).min(FOR_EVER)
}

/// The newest events of an operator. Clones are the same.
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
    readers: broadcast::Sender<Arc<Recorded>>,
}

/// Events as they are recorded.
pub struct EventReader(broadcast::Receiver<Arc<Recorded>>);

impl EventLog {
    /// An empty one that counts repetitions within `window` together, and keeps the newest `most` events.
    pub fn new(window: Duration, most: usize) -> Self {
        let window = on_calendars(window);
        let journal = Mutex::new(Journal::new(window, most.max(1)));
        Self(Arc::new(Log { window, journal, readers: broadcast::Sender::new(BEHIND) }))
    }

    /// The events that the filter takes, oldest first.
    pub fn find(&self, filter: &HistoryFilter) -> Vec<Arc<Recorded>> {
        self.0.journal.lock().find(filter)
    }

    /// Every event from now on, also repetitions.
    pub fn follow(&self) -> EventReader {
        EventReader(self.0.readers.subscribe())
    }

    pub(super) fn window(&self) -> SignedDuration {
        self.0.window
    }

    /// Notes what happened. `pass_on` is called while nobody else can note anything, so that counts arrive in their order.
    pub(super) fn record(
        &self,
        subject: &Arc<Subject>,
        event: Event,
        now: Timestamp,
        pass_on: impl FnOnce(Arc<Recorded>),
    ) {
        let mut journal = self.0.journal.lock();
        let recorded = journal.record(subject, event, now);
        // Nobody may be reading.
        let _ = self.0.readers.send(recorded.clone());
        pass_on(recorded);
    }
}

impl Default for EventLog {
    /// A minute, and ten thousand events.
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
    /// The next event; none when the log is gone. Who falls far behind misses the oldest.
    pub async fn next(&mut self) -> Option<Arc<Recorded>> {
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
