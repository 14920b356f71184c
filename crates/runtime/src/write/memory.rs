//! What a writer remembers of the objects it wrote, so that it neither compares nor writes them again. In: what was found
//! after a write. Out: whether the same question was answered before. Bounded; what is forgotten costs one comparison or one
//! request.

use std::collections::HashMap;

use konverge_core::ObjectKey;
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde_json::Value;

use super::digest::{Digest, digest_of};
use crate::object::Object;

/// More objects than this with something to remember are forgotten all at once, which costs one request for each.
const MOST_SETTLED: usize = 100_000;

/// More objects than this are forgotten all at once, which costs one comparison for each. So many take four megabytes.
const MOST_KNOWN: usize = 100_000;

/// What a writer remembers.
#[derive(Default)]
pub(crate) struct Memory {
    /// What servers insist on, by object: see [`decide`](super::skip::decide).
    settled: Mutex<HashMap<Slot, Digest>>,
    /// Which version of an object has what was to be applied, both as digests, by the digest of its uid.
    known: Mutex<HashMap<Digest, Digest>>,
}

/// An object, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    group: String,
    kind: String,
    key: ObjectKey,
    status: bool,
}

impl Memory {
    /// Remembers that this version of an object has what is to be applied. A version never changes, so that stays true.
    pub(crate) fn know(&self, given: Digest, live: &Object) {
        let (uid, version) = (live.uid(), live.resource_version());
        if uid.is_empty() || version.is_empty() {
            return;
        }
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(digest_of(&[uid]), given.and(version));
    }

    /// Whether this version of an object is known to have what is to be applied.
    pub(crate) fn is_known(&self, given: Digest, live: &Object) -> bool {
        self.known.lock().get(&digest_of(&[live.uid()])) == Some(&given.and(live.resource_version()))
    }

    /// Remembers what is left of the differences after an apply.
    pub(super) fn remember_remaining_differences(&self, slot: Slot, left: Option<Digest>) {
        let mut settled = self.settled.lock();
        match left {
            Some(left) => {
                if settled.len() >= MOST_SETTLED {
                    settled.clear();
                }
                settled.insert(slot, left);
            }
            None => drop(settled.remove(&slot)),
        }
    }

    /// What was left of the differences after the last apply.
    pub(super) fn remaining_differences(&self, slot: &Slot) -> Option<Digest> {
        self.settled.lock().get(slot).copied()
    }

    /// Remembers what the server does not take of a status.
    pub(crate) fn settle_status(&self, api: &ApiResource, key: &ObjectKey, left: Option<Value>) {
        self.remember_remaining_differences(Slot::new(api, key, true), left.as_ref().map(Digest::of));
    }

    /// Whether the server did not take just this when it was last written.
    pub(crate) fn is_refused_status(
        &self,
        api: &ApiResource,
        key: &ObjectKey,
        patch: impl FnOnce() -> Option<Value>,
    ) -> bool {
        let settled = self.settled.lock();
        // Mostly nothing was refused, and nothing has to be summed up.
        let refused = if settled.is_empty() { None } else { settled.get(&Slot::new(api, key, true)).copied() };
        refused.is_some() && refused == patch().as_ref().map(Digest::of)
    }
}

impl Slot {
    pub(super) fn new(api: &ApiResource, key: &ObjectKey, status: bool) -> Self {
        Self { group: api.group.clone(), kind: api.kind.clone(), key: key.clone(), status }
    }
}
