//! The versions of one key, oldest first. A commit pushes at the end, compaction drops from the front. Most keys have
//! one version most of the time, so that case costs one pointer and no list.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::RecordId;
use crate::{Entry, Revision};

/// One version of a key. Shared by the chain, the history and whoever is reading.
pub(crate) struct Version {
    pub revision: Revision,
    pub created: Revision,
    /// Its place among the writes of its commit.
    pub place: u32,
    /// `None`: the key was deleted here.
    pub value: Option<Bytes>,
}

impl Version {
    pub(crate) fn id(&self) -> RecordId {
        (self.revision, self.place)
    }

    /// This version as readers see it; a deletion is nothing.
    pub(crate) fn entry(&self, key: &Arc<str>) -> Option<Entry> {
        let value = self.value.clone()?;
        Some(Entry { key: key.clone(), value, revision: self.revision, created: self.created })
    }

    pub(crate) fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Never empty. The list is boxed so that the many keys with one version stay small.
#[expect(clippy::box_collection, reason = "a list in place would make every key 16 bytes larger")]
pub(super) enum Chain {
    One(Arc<Version>),
    Many(Box<VecDeque<Arc<Version>>>),
}

impl Chain {
    pub(super) fn newest(&self) -> &Arc<Version> {
        match self {
            Chain::One(version) => version,
            Chain::Many(versions) => versions.back().expect("a chain is never empty"),
        }
    }

    /// What was newest at a revision; `None`: the key was not yet written.
    pub(super) fn at(&self, at: Revision) -> Option<&Arc<Version>> {
        match self {
            Chain::One(version) => (version.revision <= at).then_some(version),
            Chain::Many(versions) => {
                let later = versions.partition_point(|version| version.revision <= at);
                versions.get(later.checked_sub(1)?)
            }
        }
    }

    pub(super) fn push(&mut self, version: Arc<Version>) {
        match self {
            Chain::One(first) => *self = Chain::Many(Box::new(VecDeque::from([first.clone(), version]))),
            Chain::Many(versions) => versions.push_back(version),
        }
    }

    /// Drops every version that no read at `through` or later can see, and names them in `dropped`, oldest first.
    /// True if nothing is left: the key was deleted. Costs as much as is dropped: a key that changes all the time has a
    /// history's worth of versions, and each commit drops one.
    pub(super) fn forget(&mut self, through: Revision, dropped: &mut Vec<RecordId>) -> bool {
        let versions = match self {
            Chain::One(version) => {
                let gone = version.revision <= through && version.value.is_none();
                dropped.extend(gone.then(|| version.id()));
                return gone;
            }
            Chain::Many(versions) => versions,
        };
        let settled = versions.partition_point(|version| version.revision <= through);
        let gone = match settled.checked_sub(1) {
            None => return false,
            // The last settled version is what reads at `through` see, unless it says that there is nothing.
            Some(last) if versions[last].value.is_none() => settled,
            Some(last) => last,
        };
        dropped.extend(versions.drain(..gone).map(|version| version.id()));
        give_back(versions);
        if versions.len() == 1 {
            *self = Chain::One(self.newest().clone());
            return false;
        }
        versions.is_empty()
    }
}

/// Gives memory back when a list is much smaller than it was; rarely enough not to be noticed.
pub(super) fn give_back<T>(list: &mut VecDeque<T>) {
    if list.capacity() > 64 && list.len() < list.capacity() / 4 {
        list.shrink_to(2 * list.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_is_not_copied_when_it_forgets() {
        let version = |number| {
            let revision = Revision(number);
            Arc::new(Version { revision, created: Revision(1), place: 0, value: Some(Bytes::new()) })
        };
        let mut chain = Chain::One(version(1));
        (2..=1000).for_each(|number| chain.push(version(number)));
        for through in 2..=700 {
            let place: *const Arc<Version> = chain.newest();
            let mut dropped = Vec::new();
            assert!(!chain.forget(Revision(through), &mut dropped));
            assert_eq!(dropped, [(Revision(through - 1), 0)]);
            assert!(std::ptr::eq(place, chain.newest()), "what stays is where it was");
            assert_eq!(chain.at(Revision(through)).expect("readable").revision, Revision(through));
            assert!(chain.at(Revision(through - 1)).is_none());
        }
        chain.forget(Revision(999), &mut Vec::new());
        assert!(matches!(&chain, Chain::Many(versions) if versions.len() == 2 && versions.capacity() <= 64));
        chain.forget(Revision(1000), &mut Vec::new());
        assert!(matches!(&chain, Chain::One(version) if version.revision == Revision(1000)));
    }
}
