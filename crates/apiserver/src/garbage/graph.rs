//! The graph of owners and dependents, as of the last processed change. In: committed changes. Out: dependents by owner, and the
//! objects to process. It never writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use konverge_core::{Concerned, GroupVersion, OwnerReference, Ownership};
use konverge_store::{Change, Entry, Range, Watch};

use super::{Item, Pending};
use crate::record;
use crate::resource::Resource;
use crate::server::Server;

/// The prefix of all keys.
const ALL: &str = "/registry/";

/// How many deleted objects are remembered. Older ones are looked up in the store.
const REMEMBERED: usize = 10_000;

/// The graph of owners and dependents.
#[derive(Default)]
pub(super) struct Graph {
    /// The keys of dependents by the uid of their owner.
    dependents: HashMap<String, BTreeSet<Arc<str>>>,
    /// The uids of deleted objects. A uid is never used again, so this stays true even if the kind of the object is deleted, too.
    deleted: HashSet<String>,
}

/// The result of looking up an owner.
pub(super) enum Found {
    Present(Arc<str>, Ownership),
    Absent,
    /// Its kind is unknown, or the dependent cannot have such an owner, so nothing can be concluded.
    Unknown,
}

impl Graph {
    /// Reads all objects, and watches from then on.
    pub(super) fn load(server: &Server) -> (Self, Watch) {
        loop {
            let page = server.store.range(Range { prefix: ALL, ..Range::default() });
            let page = page.expect("the newest revision can always be read");
            // If more was written and compacted in between, everything is read again.
            let Ok(watch) = server.store.watch(ALL, page.revision) else { continue };
            let mut graph = Self::default();
            for entry in page.entries.iter().filter(|entry| record::mentions(&entry.value, record::OWNER_REFERENCES)) {
                graph.link(&entry.key, &ownership(entry));
            }
            return (graph, watch);
        }
    }

    /// All objects that may need a step.
    pub(super) fn all_pending(server: &Server) -> Pending {
        let page = server.store.range(Range { prefix: ALL, ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        page.entries.into_iter().filter(is_relevant).map(|entry| Item::Object(entry.key)).collect()
    }

    /// Applies changes to the graph. Returns the objects that have to be processed because of them.
    pub(super) fn follow(&mut self, server: &Server, batch: &[Change]) -> Pending {
        let mut pending = Pending::default();
        for Change { before, after, .. } in batch {
            // Most objects have no owner and are not deleted; they are skipped. Every removed object counts.
            if after.is_some() && !before.iter().chain(after).any(is_relevant) {
                continue;
            }
            let Some(key) = after.as_ref().or(before.as_ref()).map(|entry| entry.key.clone()) else { continue };
            let (was, is) = (before.as_ref().map(ownership), after.as_ref().map(ownership));
            if let Some(was) = &was {
                self.unlink(&key, was);
            }
            if let Some(is) = &is {
                self.link(&key, is);
            }
            let concerned = Concerned::by(was.as_ref(), is.as_ref());
            let namespace = before.as_ref().and_then(namespace_of);
            for owner in &concerned.owners {
                if let Found::Present(key, _) = find(server, namespace.as_deref(), owner) {
                    pending.insert(Item::Object(key));
                }
            }
            if let Some(was) = was.filter(|_| concerned.dependents) {
                let dependents = self.dependents.get(&was.uid).into_iter().flatten();
                pending.extend(dependents.cloned().map(Item::Object));
                self.note_deleted(was.uid);
                pending.extend(namespace.map(Item::Namespace));
            }
            if concerned.itself {
                pending.insert(Item::Object(key));
            }
        }
        pending
    }

    /// Whether the object of this uid is known to be deleted.
    pub(super) fn is_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }

    /// The dependents of an owner.
    pub(super) fn dependents(&self, server: &Server, uid: &str) -> Vec<Ownership> {
        self.dependents_by_key(server, uid).into_values().collect()
    }

    /// The dependents of an owner, by key.
    pub(super) fn dependents_by_key(&self, server: &Server, uid: &str) -> BTreeMap<Arc<str>, Ownership> {
        let keys = self.dependents.get(uid).into_iter().flatten();
        let there = keys.filter_map(|key| Some((key.clone(), ownership(&server.store.get(key, None).ok()??))));
        // The graph may be behind the store, so the owners are checked again.
        there.filter(|(_, found)| found.owners.iter().any(|owner| owner.uid == uid)).collect()
    }

    fn link(&mut self, key: &Arc<str>, ownership: &Ownership) {
        for owner in &ownership.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
    }

    fn unlink(&mut self, key: &Arc<str>, ownership: &Ownership) {
        for owner in &ownership.owners {
            if let Some(keys) = self.dependents.get_mut(&owner.uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn note_deleted(&mut self, uid: String) {
        if self.deleted.len() >= REMEMBERED {
            self.deleted.clear();
        }
        self.deleted.insert(uid);
    }
}

/// The owner that a dependent in this namespace names.
pub(super) fn find(server: &Server, namespace: Option<&str>, owner: &OwnerReference) -> Found {
    let Some(version) = GroupVersion::parse(&owner.api_version) else { return Found::Unknown };
    let Some(resource) = server.registry.of_kind(&version.group, &owner.kind) else { return Found::Unknown };
    if resource.namespaced && namespace.is_none() {
        return Found::Unknown;
    }
    let key = resource.key(namespace.filter(|_| resource.namespaced), &owner.name);
    let Ok(Some(entry)) = server.store.get(&key, None) else { return Found::Absent };
    let found = ownership(&entry);
    if found.uid == owner.uid { Found::Present(entry.key, found) } else { Found::Absent }
}

/// An object with its resource.
pub(super) fn read(server: &Server, key: &str) -> Option<(Arc<Resource>, Entry)> {
    let resource = server.registry.of_key(key)?;
    let entry = server.store.get(key, None).ok()??;
    Some((resource, entry))
}

/// The owners and the deletion state in a record.
pub(super) fn ownership(entry: &Entry) -> Ownership {
    #[derive(Deserialize)]
    struct Stored {
        metadata: Ownership,
    }
    let stored: Stored = serde_json::from_slice(&entry.value).expect("the store holds only what encode wrote");
    stored.metadata
}

/// The namespace in a record, which is known even if the kind was deleted.
fn namespace_of(entry: &Entry) -> Option<String> {
    #[derive(Deserialize)]
    struct Stored {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        namespace: Option<String>,
    }
    let stored: Stored = serde_json::from_slice(&entry.value).expect("the store holds only what encode wrote");
    stored.metadata.namespace
}

/// Whether a record may have owners or be marked as deleted.
fn is_relevant(entry: &Entry) -> bool {
    [record::OWNER_REFERENCES, record::DELETION_TIMESTAMP].iter().any(|field| record::mentions(&entry.value, field))
}
