//! From a change to wakeups. In: a [`Change`]. Out: which objects to reconcile, and why. Looks at the change and at
//! nothing else: never at the cache, so that what wakes up does not depend on when it is asked.

mod diff;
mod predicate;

use std::collections::HashSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use konverge_core::ObjectKey;

use crate::cache::{Change, Origin};
use crate::object::{Object, OwnerReference};
use crate::queue::{Priority, Wakeup};
use crate::write::{OWNER_ANNOTATION, annotation_prefix, group_of};

pub use predicate::Predicate;

/// How many changed fields a cause names. More would not help anybody who reads it.
const FIELDS: usize = 8;

/// Why an object is to be reconciled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of the object that changed.
    pub kind: Arc<str>,
    /// That object.
    pub key: ObjectKey,
    /// What happened to it.
    pub what: What,
    /// Its version after that.
    pub resource_version: String,
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It is new.
    Created,
    /// These fields of it are different now: the first few of them, as paths.
    Updated {
        /// `spec.replicas`, `metadata.labels.app`, `spec.containers[0].image`.
        changed: Vec<String>,
    },
    /// It is gone.
    Deleted,
    /// It was there when the watch began, or is reconciled again without a change.
    Resync,
    /// Nothing happened to it; something outside of the cluster asked for a reconcile.
    Triggered {
        /// The name of what asked.
        source: Arc<str>,
    },
}

/// Which objects a changed object wakes up.
#[derive(Clone)]
pub struct Trigger {
    kind: Arc<str>,
    target: EnqueueTarget,
    predicate: Predicate,
    urgent: Option<ObjectFilter>,
}

/// Tells some objects from others.
pub type ObjectFilter = Arc<dyn Fn(&Object) -> bool + Send + Sync>;

type Map = Arc<dyn Fn(&Object) -> Vec<ObjectKey> + Send + Sync>;

#[derive(Clone)]
enum EnqueueTarget {
    Itself,
    /// The owner of that group and kind that manages it.
    Owner {
        group: String,
        kind: String,
        namespaced: bool,
        /// How [`OWNER_ANNOTATION`] begins for such owners.
        annotation: String,
    },
    Mapped(Map),
}

impl Trigger {
    /// An object of this kind wakes up itself.
    pub fn itself(kind: impl Into<Arc<str>>) -> Self {
        Self { kind: kind.into(), target: EnqueueTarget::Itself, predicate: Predicate::always(), urgent: None }
    }

    /// An object of `kind` wakes up the owner that manages it, if that is of the group and kind given: by reference, or
    /// by [`OWNER_ANNOTATION`] where there can be none. Versions of a group are the same objects, so they do not matter.
    /// `namespaced` says whether owners live in namespaces.
    pub fn owner(kind: impl Into<Arc<str>>, group: &str, owner: &str, namespaced: bool) -> Self {
        let annotation = annotation_prefix(group, owner);
        let target = EnqueueTarget::Owner { group: group.to_owned(), kind: owner.to_owned(), namespaced, annotation };
        Self { kind: kind.into(), target, predicate: Predicate::always(), urgent: None }
    }

    /// An object of `kind` wakes up those that `map` names. Of a changed object it is asked twice, for what it was and
    /// for what it is: whoever it no longer leads to has to know, too.
    pub fn mapped(kind: impl Into<Arc<str>>, map: impl Fn(&Object) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        Self {
            kind: kind.into(),
            target: EnqueueTarget::Mapped(Arc::new(map)),
            predicate: Predicate::always(),
            urgent: None,
        }
    }

    /// Only changes that a predicate lets through. Deletions always go through, and so does the start of one.
    pub fn when(self, predicate: Predicate) -> Self {
        Self { predicate, ..self }
    }

    /// Changes of these objects go before those of others.
    pub fn urgent(self, which: Option<ObjectFilter>) -> Self {
        Self { urgent: which, ..self }
    }

    /// The wakeups of a change, each key once. All of them share one cause.
    pub fn wakeups(&self, change: &Change) -> Vec<(ObjectKey, Wakeup<Arc<Cause>>)> {
        if !self.predicate.lets_through(change) {
            return Vec::new();
        }
        let keys = self.keys(change);
        if keys.is_empty() {
            return Vec::new();
        }
        let cause = Arc::new(self.cause(change));
        let urgent = || self.urgent.as_ref().is_some_and(|urgent| guarded(|| urgent(change.object())) == Some(true));
        let priority = match change.origin() {
            // The first list brings objects by the thousand; what changes meanwhile goes first.
            Origin::Initial => Priority::Resync,
            // A list after an interruption tells only of what differs from what was known: that did change.
            Origin::Watch | Origin::Relist | Origin::Own if urgent() => Priority::Urgent,
            Origin::Watch | Origin::Relist | Origin::Own => Priority::Change,
        };
        keys.into_iter().map(|key| (key, Wakeup::new(priority, cause.clone()))).collect()
    }

    /// Whom a change wakes, each once and in the order they were named.
    fn keys(&self, change: &Change) -> Vec<ObjectKey> {
        let objects = [change.before(), change.after()].into_iter().flatten();
        // A function that panics about one state may have an answer about the other.
        let named = |object: &Arc<Object>| {
            guarded(|| self.target.keys(object)).unwrap_or_else(|| {
                tracing::error!(kind = &*self.kind, key = %object.key(), "a mapping panicked; nobody is woken by it");
                Vec::new()
            })
        };
        let mut keys: Vec<ObjectKey> = objects.flat_map(named).collect();
        // One object may concern all others, so that to look for each key among the rest would take for ever.
        if keys.len() > 1 {
            let mut named = HashSet::with_capacity(keys.len());
            keys.retain(|key| named.insert(key.clone()));
        }
        keys
    }

    fn cause(&self, change: &Change) -> Cause {
        let what = match (change.before(), change.after()) {
            (_, None) => What::Deleted,
            (None, Some(_)) if change.origin() == Origin::Initial => What::Resync,
            (None, Some(_)) => What::Created,
            (Some(before), Some(after)) => What::Updated { changed: diff::changed(before, after, FIELDS) },
        };
        Cause {
            kind: self.kind.clone(),
            key: change.key(),
            what,
            resource_version: change.object().resource_version().to_owned(),
        }
    }
}

impl EnqueueTarget {
    fn keys(&self, object: &Object) -> Vec<ObjectKey> {
        match self {
            Self::Itself => vec![object.key()],
            Self::Owner { group, kind, namespaced, annotation } => {
                let is_owner =
                    |owner: &OwnerReference<'_>| owner.kind == *kind && group_of(&owner.api_version) == group;
                if let Some(owner) = object.controller().filter(is_owner) {
                    let namespace = object.namespace().filter(|_| *namespaced);
                    return vec![ObjectKey::new(namespace, &owner.name)];
                }
                let noted = object.annotation(OWNER_ANNOTATION);
                let key = noted.as_deref().and_then(|noted| noted.strip_prefix(annotation.as_str()));
                let parts = key.map(|key| key.split_once('/').map_or((None, key), |(space, name)| (Some(space), name)));
                parts.map(|(namespace, name)| ObjectKey::new(namespace, name)).into_iter().collect()
            }
            Self::Mapped(map) => map(object),
        }
    }
}

/// What a user's function answers; nothing if it panics.
fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(ask)).ok()
}

/// `Deployment default/web: spec.replicas changed`.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)?;
        match &self.what {
            What::Created => f.write_str(" was created"),
            What::Updated { changed } if changed.is_empty() => f.write_str(" changed"),
            What::Updated { changed } => write!(f, ": {} changed", changed.join(", ")),
            What::Deleted => f.write_str(" was deleted"),
            What::Resync => f.write_str(" is there"),
            What::Triggered { source } => write!(f, " was triggered by {source}"),
        }
    }
}

#[cfg(test)]
mod tests;
