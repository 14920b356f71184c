//! What was recorded, newest last. In: events as they happen, with their time. Out: each with how often it happened, and
//! a history that can be searched. Pure. The oldest go when there are too many.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use konverge_core::ObjectKey;
use kube::core::ApiResource;
use serde_json::Value;

use crate::error::WriteError;
use crate::write::{Digest, key_of, uid};

/// How bad it is. Kubernetes knows two types of events: `Info` is `Normal`, all others are `Warning`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// All is well.
    #[default]
    Info,
    /// Somebody should have a look.
    Warning,
    /// It does not work.
    Error,
    /// It does not work, and people suffer.
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
    /// Its uid; empty if it is not known.
    pub uid: String,
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// How bad it is.
    pub severity: Severity,
    /// Why, in one word: `ScaledUp`.
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// What was being done; `Reconcile` if empty.
    pub action: String,
}

/// An event that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number: the same while it is repeated within a window.
    pub id: u64,
    /// What it is about.
    pub subject: Arc<Subject>,
    /// What happened.
    pub event: Arc<Event>,
    /// How often, within its window.
    pub count: u32,
    /// When first.
    pub first: Timestamp,
    /// When last.
    pub last: Timestamp,
}

/// What to look for. What is not given does not matter.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Events about objects of this kind.
    pub kind: Option<String>,
    /// Events about objects of this key.
    pub key: Option<ObjectKey>,
    /// Events with this reason.
    pub reason: Option<String>,
    /// Events at least this bad.
    pub severity: Severity,
    /// Events that happened at this time or later.
    pub since: Option<Timestamp>,
}

/// The newest events.
#[derive(Debug)]
pub(super) struct Journal {
    window: SignedDuration,
    most: usize,
    entries: VecDeque<(Digest, Arc<Recorded>)>,
    /// The newest entry of each event; the sum stands for subject, severity, reason and message.
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
    /// Something that is as it should be.
    pub fn info(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Info, reason, message)
    }

    /// Something that somebody should have a look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    /// Anything.
    pub fn new(severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity, reason: reason.into(), message: message.into(), action: String::new() }
    }
}

impl Subject {
    /// The object as what an event is about.
    pub fn of(api: &ApiResource, object: &Value) -> Result<Self, WriteError> {
        let key = key_of(object)?;
        Ok(Self { api_version: api.api_version.clone(), kind: api.kind.clone(), key, uid: uid(object).to_owned() })
    }

    /// Stands for the subject in maps.
    pub(super) fn sum(&self) -> Digest {
        let mut sum = Digest::default();
        for text in [&self.api_version, &self.kind, &self.uid] {
            sum.text(text);
        }
        sum.text(self.key.namespace().unwrap_or_default());
        sum.text(self.key.name());
        sum
    }
}

impl HistoryFilter {
    fn takes(&self, recorded: &Recorded) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        is(&self.kind, &recorded.subject.kind)
            && is(&self.reason, &recorded.event.reason)
            && self.key.as_ref().is_none_or(|key| *key == recorded.subject.key)
            && recorded.event.severity >= self.severity
            && self.since.is_none_or(|since| recorded.last >= since)
    }
}

impl Journal {
    /// An empty one that counts repetitions within `window` together and keeps the newest `most` events.
    pub fn new(window: SignedDuration, most: usize) -> Self {
        Self { window, most, entries: VecDeque::new(), newest: HashMap::new(), next: 0 }
    }

    /// Adds an event, or one to the count of the one it repeats.
    pub fn record(&mut self, subject: &Arc<Subject>, event: Event, now: Timestamp) -> Arc<Recorded> {
        let mut sum = subject.sum();
        sum.word(event.severity as u64);
        sum.text(&event.reason);
        sum.text(&event.message);
        if let Some(recorded) = self.repeated(sum, now) {
            return recorded;
        }
        let id = self.next;
        self.next += 1;
        let (subject, event) = (subject.clone(), Arc::new(event));
        let recorded = Arc::new(Recorded { id, subject, event, count: 1, first: now, last: now });
        self.entries.push_back((sum, recorded.clone()));
        self.newest.insert(sum, id);
        if self.entries.len() > self.most {
            self.rotate();
        }
        recorded
    }

    /// What the filter takes, oldest first.
    pub fn find(&self, filter: &HistoryFilter) -> Vec<Arc<Recorded>> {
        let all = self.entries.iter().map(|(_, recorded)| recorded);
        all.filter(|recorded| filter.takes(recorded)).cloned().collect()
    }

    fn repeated(&mut self, sum: Digest, now: Timestamp) -> Option<Arc<Recorded>> {
        let id = *self.newest.get(&sum)?;
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

    fn rotate(&mut self) {
        let Some((sum, gone)) = self.entries.pop_front() else { return };
        if self.newest.get(&sum) == Some(&gone.id) {
            self.newest.remove(&sum);
        }
    }
}
