//! Decides commits before they are durable: each sees the index and the commits decided before it in the same batch.
//! Nothing it decides is visible to anyone until [`super::Index::apply`]; a batch that is dropped never happened.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;

use super::{Index, Row, Version};
use crate::{Commit, CommitError, Condition, Entry, Revision, Write};

/// What a commit does, once durable. Without rows it changes nothing, and `revision` is the newest.
pub(crate) struct Decided {
    pub revision: Revision,
    pub rows: Vec<Row>,
}

pub(crate) struct Batch<'a> {
    index: &'a Index,
    newest: Revision,
    /// The keys written by this batch, with their newest version, but for those of the last commit.
    written: HashMap<Arc<str>, Arc<Version>>,
    /// Those of the last commit. A batch often is one commit, whose keys then need not be hashed.
    last: Vec<(Arc<str>, Arc<Version>)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(index: &'a Index) -> Self {
        Batch { index, newest: index.newest(), written: HashMap::new(), last: Vec::new() }
    }

    pub(crate) fn decide(&mut self, commit: Commit) -> Result<Decided, CommitError> {
        self.written.extend(self.last.drain(..));
        if let Some(twice) = written_twice(&commit.writes) {
            return Err(CommitError::WrittenTwice(twice.clone()));
        }
        for condition in &commit.conditions {
            let found = self.entry(condition.key());
            let holds = match (condition, &found) {
                (Condition::Absent(_), found) => found.is_none(),
                (Condition::Unchanged(_, expected), Some(found)) => found.revision == *expected,
                (Condition::Unchanged(..), None) => false,
            };
            if !holds {
                return Err(CommitError::Conflict { key: condition.key().clone(), found });
            }
        }
        let revision = self.newest.next();
        let mut rows = Vec::with_capacity(commit.writes.len());
        for write in commit.writes {
            let (key, newest) = self.newest_of(write.key());
            let before = newest.filter(|version| version.value.is_some());
            let created = before.as_ref().map_or(revision, |before| before.created);
            let value = match write {
                Write::Put(_, value) => Some(exact(&value)),
                Write::Delete(_) if before.is_none() => continue,
                Write::Delete(_) => None,
            };
            let place = u32::try_from(rows.len()).expect("a commit has fewer than 2^32 writes");
            let after = Arc::new(Version { revision, created, place, value });
            rows.push(Row { key, before, after });
        }
        if !rows.is_empty() {
            self.newest = revision;
            self.last.extend(rows.iter().map(|row| (row.key.clone(), row.after.clone())));
        }
        Ok(Decided { revision: self.newest, rows })
    }

    fn entry(&self, key: &Arc<str>) -> Option<Entry> {
        let (key, newest) = self.newest_of(key);
        newest?.entry(&key)
    }

    /// The newest version, also if it is a deletion, and the key as it is stored already: one copy of it is enough.
    fn newest_of(&self, key: &Arc<str>) -> (Arc<str>, Option<Arc<Version>>) {
        if !self.written.is_empty()
            && let Some((key, version)) = self.written.get_key_value(key)
        {
            return (key.clone(), Some(version.clone()));
        }
        match self.index.newest_of(key) {
            Some((key, version)) => (key.clone(), Some(version.clone())),
            None => (key.clone(), None),
        }
    }
}

/// The first key that was written before. Most commits write one key or two.
fn written_twice(writes: &[Write]) -> Option<&Arc<str>> {
    if let [] | [_] = writes {
        return None;
    }
    let mut keys = HashSet::with_capacity(writes.len());
    writes.iter().map(Write::key).find(|key| !keys.insert(*key))
}

/// A copy in an allocation of just this size. A value often is a slice of a larger request body, which it would keep
/// alive as long as the object lives; copying 1.6 KB costs less than finding out whether it is.
fn exact(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}
