//! A cache of owners that do not exist any more. In: references of objects whose deletion a watch reported, or that the
//! server did not find. Out: whether an owner is among them. A uid is never used twice, so an entry stays true. The cache
//! saves one request per dependent, and still answers when the owner's kind has been uninstalled.

use std::collections::HashSet;

use konverge_core::ObjectKey;
use parking_lot::Mutex;

use super::object_reference::ObjectReference;

/// The most entries. When they are reached the cache starts empty again, and the server is asked again.
const MAX_ENTRIES: usize = 10_000;

#[derive(Default)]
pub(super) struct AbsentOwners(Mutex<HashSet<ObjectKey>>);

impl AbsentOwners {
    pub(super) fn insert(&self, reference: &ObjectReference) {
        let mut absent = self.0.lock();
        if absent.len() >= MAX_ENTRIES {
            absent.clear();
        }
        absent.insert(reference.key());
    }

    pub(super) fn contains(&self, reference: &ObjectReference) -> bool {
        self.0.lock().contains(&reference.key())
    }
}
