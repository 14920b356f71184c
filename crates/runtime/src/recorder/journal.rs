//! The recorded events, newest last. In: events with their time. Out: each event with its count, and a history that can be
//! searched. When the journal is full, the oldest event is removed. Pure.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use konverge_core::ObjectKey;
use kube::core::ApiResource;
use serde_json::Value;

use crate::error::WriteError;
use crate::write::{Digest, key_of, uid};

/// How severe an event is. Kubernetes has two types of events: `Info` is written as `Normal`, all others as `Warning`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Normal operation.
    #[default]
    Info,
    /// Something that may need attention.
    Warning,
    /// Something does not work.
    Error,
    /// Something does not work, and users are affected now.
    Critical,
}

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid; empty if it is unknown.
    pub uid: String,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// How severe it is.
    pub severity: Severity,
    /// The reason in one CamelCase word: `ScaledUp`.
    pub reason: String,
    /// A sentence that says what happened.
    pub message: String,
    /// The action that the controller took; `Reconcile` if empty.
    pub action: String,
}

/// A recorded event with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// Its number. Repetitions within the window have the same.
    pub id: u64,
    /// The object that the event is about.
    pub subject: Arc<Subject>,
    /// What happened.
    pub event: Arc<Event>,
    /// How often it happened within its window.
    pub count: u32,
    /// When it happened first.
    pub first: Timestamp,
    /// When it happened last.
    pub last: Timestamp,
}

/// Selects events of an [`EventLog`](crate::EventLog). A field that is `None` matches every event.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Events about objects of this kind.
    pub kind: Option<String>,
    /// Events about objects of this key.
    pub key: Option<ObjectKey>,
    /// Events with this reason.
    pub reason: Option<String>,
    /// Events of at least this severity.
    pub severity: Severity,
    /// Events that happened at this time or later.
    pub since: Option<Timestamp>,
}

/// The newest events.
#[derive(Debug)]
pub(super) struct Journal {
    window: SignedDuration,
    capacity: usize,
    entries: VecDeque<(Digest, Arc<RecordedEvent>)>,
    /// The newest entry of each event, by a digest of subject, severity, reason and message.
    newest: HashMap<Digest, u64>,
    next: u64,
}

impl Severity {
    /// The type of a Kubernetes Event.
    pub fn event_type(self) -> &'static str {
        match self {
            Self::Info => "Normal",
            Self::Warning | Self::Error | Self::Critical => "Warning",
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Warning => "Warning",
            Self::Error => "Error",
            Self::Critical => "Critical",
        }
    }
}

impl Event {
    /// An event of severity `Info`.
    pub fn info(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, reason, message)
    }

    /// An event of severity `Warning`.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    /// An event of any severity.
    pub fn new(severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity, reason: reason.into(), message: message.into(), action: String::new() }
    }
}

impl Subject {
    /// The subject of events about this object. Fails if the object has no name.
    pub fn of(api: &ApiResource, object: &Value) -> Result<Self, WriteError> {
        let key = key_of(object)?;
        Ok(Self { api_version: api.api_version.clone(), kind: api.kind.clone(), key, uid: uid(object).to_owned() })
    }

    /// A digest of all fields, the key of maps.
    pub(super) fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        for text in [&self.api_version, &self.kind, &self.uid] {
            digest.text(text);
        }
        digest.text(self.key.namespace().unwrap_or_default());
        digest.text(self.key.name());
        digest
    }
}

impl HistoryFilter {
    fn matches(&self, recorded: &RecordedEvent) -> bool {
        let equals = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
        equals(&self.kind, &recorded.subject.kind)
            && equals(&self.reason, &recorded.event.reason)
            && self.key.as_ref().is_none_or(|key| *key == recorded.subject.key)
            && recorded.event.severity >= self.severity
            && self.since.is_none_or(|since| recorded.last >= since)
    }
}

impl Journal {
    /// An empty journal. It counts repetitions within `window` as one event and keeps the newest `capacity` events.
    pub(super) fn new(window: SignedDuration, capacity: usize) -> Self {
        Self { window, capacity, entries: VecDeque::new(), newest: HashMap::new(), next: 0 }
    }

    /// Adds an event, or increments the count of the event that it repeats.
    pub(super) fn record(&mut self, subject: &Arc<Subject>, event: Event, now: Timestamp) -> Arc<RecordedEvent> {
        let mut digest = subject.digest();
        digest.word(event.severity as u64);
        digest.text(&event.reason);
        digest.text(&event.message);
        if let Some(recorded) = self.repeated(digest, now) {
            return recorded;
        }
        let id = self.next;
        self.next += 1;
        let (subject, event) = (subject.clone(), Arc::new(event));
        let recorded = Arc::new(RecordedEvent { id, subject, event, count: 1, first: now, last: now });
        self.entries.push_back((digest, recorded.clone()));
        self.newest.insert(digest, id);
        if self.entries.len() > self.capacity {
            self.remove_oldest();
        }
        recorded
    }

    /// The events that the filter matches, oldest first.
    pub(super) fn find(&self, filter: &HistoryFilter) -> Vec<Arc<RecordedEvent>> {
        let all = self.entries.iter().map(|(_, recorded)| recorded);
        all.filter(|recorded| filter.matches(recorded)).cloned().collect()
    }

    fn repeated(&mut self, digest: Digest, now: Timestamp) -> Option<Arc<RecordedEvent>> {
        let id = *self.newest.get(&digest)?;
        let oldest = self.entries.front()?.1.id;
        let (_, recorded) = self.entries.get_mut(usize::try_from(id - oldest).ok()?)?;
        if now.duration_since(recorded.first) >= self.window {
            return None;
        }
        let changed = Arc::make_mut(recorded);
        changed.count = changed.count.saturating_add(1);
        changed.last = now;
        Some(recorded.clone())
    }

    fn remove_oldest(&mut self) {
        let Some((digest, removed)) = self.entries.pop_front() else { return };
        if self.newest.get(&digest) == Some(&removed.id) {
            self.newest.remove(&digest);
        }
    }
}
