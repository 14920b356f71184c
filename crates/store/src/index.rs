//! The pure machine: keys, their versions, and the window of recent changes. Decided commits and the time come in;
//! entries, changes and the records no longer needed come out. It has no lock, no clock, no I/O and no async, and it
//! never waits: its owner decides when its state is durable and visible.
//!
//! ```text
//!   keys:    /a ─▶ [v3 v7 v9]     every version since the compacted revision, oldest first
//!            /b ─▶ v8             (one version costs no list)
//!   history: 3 /a · 7 /a · 8 /b · 9 /a      what watches walk; its front is what compaction drops
//! ```

mod batch;
mod chain;
mod history;

use std::{
    collections::{BTreeMap, btree_map},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
    time::Instant,
};

pub(crate) use batch::{Batch, Decided};
pub(crate) use chain::Version;
pub use history::Retention;
pub(crate) use history::Row;

use self::{chain::Chain, history::History};
use crate::{Change, Entry, ReadError, Revision};

/// Identifies one version: the commit that wrote it, and its place among the writes of that commit.
pub(crate) type RecordId = (Revision, u32);

/// What a compaction removed from the index.
#[derive(Default)]
pub(crate) struct Forgotten {
    /// The changes that left the history, oldest first.
    pub rows: Vec<Row>,
    /// The versions that cannot be read any more. A version comes before the deletion that ended it, so that a store
    /// which removes them in this order never brings a deleted key back.
    pub records: Vec<RecordId>,
}

#[derive(Default)]
pub(crate) struct Index {
    keys: BTreeMap<Arc<str>, Chain>,
    history: History,
    newest: Revision,
    compacted: Revision,
}

impl Index {
    /// An index that goes on after a revision whose history is gone: where a loaded store begins.
    pub(crate) fn resume(compacted: Revision) -> Index {
        Index { newest: compacted, compacted, ..Index::default() }
    }

    pub(crate) fn newest(&self) -> Revision {
        self.newest
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// The revision a read is answered at, if that can be done.
    pub(crate) fn readable(&self, at: Option<Revision>) -> Result<Revision, ReadError> {
        match at {
            None => Ok(self.newest),
            Some(asked) if asked < self.compacted => Err(ReadError::Compacted { asked, oldest: self.compacted }),
            Some(asked) if asked > self.newest => Err(ReadError::Future { asked, newest: self.newest }),
            Some(asked) => Ok(asked),
        }
    }

    pub(crate) fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        let at = self.readable(at)?;
        Ok(self.keys.get_key_value(key).and_then(|(key, chain)| chain.at(at)?.entry(key)))
    }

    /// Calls `visit` with the entries under `prefix` after `after`, for at most `budget` keys or until `visit` returns `false`.
    /// Returns the key to continue after when the budget ran out, so that no caller has to hold a lock for a hundred thousand
    /// keys.
    pub(crate) fn walk(
        &self,
        prefix: &str,
        after: Option<&str>,
        at: Revision,
        budget: usize,
        mut visit: impl FnMut(&Arc<str>, &Arc<Version>) -> bool,
    ) -> Option<Arc<str>> {
        let from = match after {
            Some(after) if after >= prefix => Excluded(after),
            _ => Included(prefix),
        };
        let mut left = budget;
        for (key, chain) in self.keys.range::<str, _>((from, Unbounded)) {
            if !key.starts_with(prefix) {
                return None;
            }
            if let Some(version) = chain.at(at).filter(|version| version.value.is_some())
                && !visit(key, version)
            {
                return None;
            }
            left -= 1;
            if left == 0 {
                return Some(key.clone());
            }
        }
        None
    }

    /// The changes under `prefix` after `after`, and the revision up to which the history was looked through: at most
    /// `max` changes and about `budget` rows. A commit is never split, so one commit alone may exceed either.
    pub(crate) fn changes(&self, prefix: &str, after: Revision, max: usize, budget: usize) -> (Vec<Change>, Revision) {
        self.history.changes(prefix, after, max, budget, self.newest)
    }

    /// Makes a decided commit the newest state.
    pub(crate) fn apply(&mut self, decided: Decided, now: Instant) {
        debug_assert!(decided.rows.is_empty() || decided.revision == self.newest.next(), "commits apply in order");
        self.newest = decided.revision;
        for row in decided.rows {
            self.insert(&row.key, row.after.clone());
            self.history.push(row, now);
        }
    }

    /// Adds a version without history: what a loaded store finds at or before its compacted revision. Gives the
    /// version it replaces.
    pub(crate) fn load(&mut self, key: &Arc<str>, version: Version) -> Option<RecordId> {
        match self.keys.get_mut(&**key) {
            Some(chain) => {
                let replaced = chain.newest().id();
                *chain = Chain::One(Arc::new(version));
                Some(replaced)
            }
            None => {
                self.keys.insert(key.clone(), Chain::One(Arc::new(version)));
                None
            }
        }
    }

    /// The key as it is stored, with its newest version, also if that is a deletion.
    pub(crate) fn newest_of(&self, key: &str) -> Option<(&Arc<str>, &Arc<Version>)> {
        self.keys.get_key_value(key).map(|(key, chain)| (key, chain.newest()))
    }

    /// Forgets what was before `before`. Costs as much as there is to forget, never a walk over all keys.
    pub(crate) fn compact(&mut self, before: Revision) -> Forgotten {
        let through = before.min(self.newest);
        let mut forgotten = Forgotten::default();
        if through <= self.compacted {
            return forgotten;
        }
        self.compacted = through;
        forgotten.rows = self.history.pop_through(through);
        for row in &forgotten.rows {
            // An earlier row of the same key may have taken the key along already.
            let Some(chain) = self.keys.get_mut(&row.key) else { continue };
            if chain.forget(through, &mut forgotten.records) {
                self.keys.remove(&row.key);
            }
        }
        forgotten
    }

    /// Compacts what the retention does not keep, about `budget` changes at a time, so that the lock is never held for the time
    /// of a whole history. The newest commit is always kept, or no watch could see it.
    pub(crate) fn trim(&mut self, retention: &Retention, now: Instant, budget: usize) -> Forgotten {
        let before = self.history.surplus(retention, now).min(self.newest.previous());
        self.compact(self.history.within(before, budget))
    }

    /// Keys that are there or were within the history, versions of them, and changes in the history.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        let versions = self.keys.values().map(|chain| match chain {
            Chain::One(_) => 1,
            Chain::Many(versions) => versions.len(),
        });
        (self.keys.len(), versions.sum(), self.history.len())
    }

    /// Drops the deletions that [`Index::load`] brought in, and returns their records: no read can reach them.
    pub(crate) fn drop_loaded_deletions(&mut self) -> Vec<RecordId> {
        let mut dropped = Vec::new();
        self.keys.retain(|_, chain| {
            let newest = chain.newest();
            if newest.value.is_none() {
                dropped.push(newest.id());
            }
            newest.value.is_some()
        });
        dropped
    }

    fn insert(&mut self, key: &Arc<str>, version: Arc<Version>) {
        match self.keys.entry(key.clone()) {
            btree_map::Entry::Occupied(mut chain) => chain.get_mut().push(version),
            btree_map::Entry::Vacant(place) => {
                place.insert(Chain::One(version));
            }
        }
    }
}

#[cfg(test)]
mod tests;
