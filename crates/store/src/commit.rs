//! The types of a write: conditions and writes go in as one step; a revision comes out, or the reason why nothing was written.
//! A commit is never applied in part.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::{Entry, Revision};

/// What must be true, and what is then done, in one step. All its writes share one revision.
///
/// A commit without writes only checks its conditions. A key may be written once in a commit.
///
/// ```
/// use konverge_store::{Commit, Revision};
/// let create = Commit::default().absent("/pods/web").put("/pods/web", "{}");
/// let update = Commit::default().unchanged("/pods/web", Revision(1)).put("/pods/web", r#"{"a":1}"#);
/// # assert_eq!((create.writes.len(), update.conditions.len()), (1, 1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// What must be true of the newest state, all of it.
    pub conditions: Vec<Condition>,
    /// What is then done, all of it.
    pub writes: Vec<Write>,
}

/// What a commit demands of one key.
#[derive(Clone, Debug)]
pub enum Condition {
    /// The key is not there.
    Absent(Arc<str>),
    /// The key is there, and its newest version is the one written by this revision.
    Unchanged(Arc<str>, Revision),
}

/// What a commit does to one key.
#[derive(Clone, Debug)]
pub enum Write {
    /// Create or replace.
    Put(Arc<str>, Bytes),
    /// Remove. Removing what is not there changes nothing.
    Delete(Arc<str>),
}

impl Commit {
    /// Demand that the key is not there.
    #[must_use]
    pub fn absent(mut self, key: impl Into<Arc<str>>) -> Self {
        self.conditions.push(Condition::Absent(key.into()));
        self
    }

    /// Demand that the key's newest version is this one.
    #[must_use]
    pub fn unchanged(mut self, key: impl Into<Arc<str>>, revision: Revision) -> Self {
        self.conditions.push(Condition::Unchanged(key.into(), revision));
        self
    }

    /// Create or replace a key.
    #[must_use]
    pub fn put(mut self, key: impl Into<Arc<str>>, value: impl Into<Bytes>) -> Self {
        self.writes.push(Write::Put(key.into(), value.into()));
        self
    }

    /// Remove a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Arc<str>>) -> Self {
        self.writes.push(Write::Delete(key.into()));
        self
    }

    /// The bytes this commit brings along, for queues that are bounded by size.
    pub(crate) fn size(&self) -> usize {
        self.writes.iter().map(|write| write.key().len() + write.value().map_or(0, Bytes::len)).sum()
    }
}

impl Condition {
    /// The key it is about.
    pub fn key(&self) -> &Arc<str> {
        match self {
            Condition::Absent(key) | Condition::Unchanged(key, _) => key,
        }
    }
}

impl Write {
    /// The key it is about.
    pub fn key(&self) -> &Arc<str> {
        match self {
            Write::Put(key, _) | Write::Delete(key) => key,
        }
    }

    /// What it puts there; `None` for a removal.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Write::Put(_, value) => Some(value),
            Write::Delete(_) => None,
        }
    }
}

/// Why a commit did not happen.
#[derive(Clone, Debug, Error)]
pub enum CommitError {
    /// A condition does not hold: read again and decide again.
    #[error("{key} is not as expected: {}", match found { Some(entry) => format!("revision {}", entry.revision), None => "absent".into() })]
    Conflict {
        /// The key of the first condition that does not hold.
        key: Arc<str>,
        /// What is there now; `None`: nothing.
        found: Option<Entry>,
    },
    /// The commit writes this key twice, which has no meaning: a mistake in the calling program.
    #[error("a commit may write a key once, but this one writes {0} twice")]
    WrittenTwice(Arc<str>),
    /// The store cannot write, see [`crate::Health`]. Whether this commit happened is known when the store writes again,
    /// or after a restart. The message says what failed and what to do.
    #[error("{0}")]
    Unavailable(Arc<str>),
}
