//! The versions of one key, oldest first. A commit pushes at the end, compaction drops from the front. Most keys have
//! one version most of the time, so that case costs one pointer and no list.

use std::sync::Arc;

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
    pub fn id(&self) -> RecordId {
        (self.revision, self.place)
    }

    /// This version as readers see it; a deletion is nothing.
    pub fn entry(&self, key: &Arc<str>) -> Option<Entry> {
        let value = self.value.clone()?;
        Some(Entry { key: key.clone(), value, revision: self.revision, created: self.created })
    }

    pub fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Never empty.
pub(super) enum Chain {
    One(Arc<Version>),
    Many(Vec<Arc<Version>>),
}

impl Chain {
    pub fn newest(&self) -> &Arc<Version> {
        match self {
            Chain::One(version) => version,
            Chain::Many(versions) => versions.last().expect("a chain is never empty"),
        }
    }

    /// What was newest at a revision; `None`: the key was not yet written.
    pub fn at(&self, at: Revision) -> Option<&Arc<Version>> {
        match self {
            Chain::One(version) => (version.revision <= at).then_some(version),
            Chain::Many(versions) => versions.iter().rev().find(|version| version.revision <= at),
        }
    }

    pub fn push(&mut self, version: Arc<Version>) {
        match self {
            Chain::One(first) => *self = Chain::Many(vec![first.clone(), version]),
            Chain::Many(versions) => versions.push(version),
        }
    }

    /// Drops every version that no read at `through` or later can see, and names them in `dropped`, oldest first.
    /// True if nothing is left: the key was deleted.
    pub fn forget(&mut self, through: Revision, dropped: &mut Vec<RecordId>) -> bool {
        let versions = match self {
            Chain::One(version) => std::slice::from_ref(version),
            Chain::Many(versions) => &versions[..],
        };
        let settled = versions.iter().take_while(|version| version.revision <= through).count();
        let gone = match settled.checked_sub(1) {
            None => return false,
            // The last settled version is what reads at `through` see, unless it says that there is nothing.
            Some(last) if versions[last].value.is_none() => settled,
            Some(last) => last,
        };
        dropped.extend(versions[..gone].iter().map(|version| version.id()));
        match &versions[gone..] {
            [] => return true,
            [only] => *self = Chain::One(only.clone()),
            rest if gone > 0 => *self = Chain::Many(rest.to_vec()),
            _ => {}
        }
        false
    }
}
