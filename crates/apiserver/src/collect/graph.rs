//! Who depends on whom, as far as the collector has followed the store. In: committed changes. Out: dependents by owner, and
//! who is to be looked at. Never writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use konverge_core::{Concerned, GroupVersion, OwnerReference, Ownership};
use konverge_store::{Change, Entry, Range, Watch};

use super::Agenda;
use crate::resource::Resource;
use crate::server::Server;

/// Everything is under here.
const ALL: &str = "/registry/";

/// How many objects that are gone are remembered. One that is forgotten is looked for in the store.
const REMEMBERED: usize = 10_000;

/// Who depends on whom.
#[derive(Default)]
pub(super) struct Graph {
    /// The keys of dependents by the uid of their owner.
    of: HashMap<String, BTreeSet<Arc<str>>>,
    /// The uids of objects that went. A uid never comes back, so it is known to be gone also if its kind went with it, and
    /// nobody can be asked for it any more.
    gone: HashSet<String>,
}

/// How an owner was found.
pub(super) enum Found {
    There(Arc<str>, Ownership),
    Absent,
    /// Its kind is not known here, or it cannot be reached from the dependent: nothing is concluded.
    Unknown,
}

impl Graph {
    /// Learns what is there, and watches from then on.
    pub fn learn(server: &Server) -> (Self, Watch) {
        loop {
            let page = server.store.range(Range { prefix: ALL, ..Range::default() });
            let page = page.expect("the newest revision can always be read");
            // Between the two, more may have been written and compacted: then everything is learnt anew.
            let Ok(watch) = server.store.watch(ALL, page.revision) else { continue };
            let mut graph = Self::default();
            for entry in page.entries.iter().filter(|entry| mentions(entry, "ownerReferences")) {
                graph.link(&entry.key, &ownership(entry));
            }
            return (graph, watch);
        }
    }

    /// Everything that may have something to do.
    pub fn everything(server: &Server) -> Agenda {
        let page = server.store.range(Range { prefix: ALL, ..Range::default() });
        let page = page.expect("the newest revision can always be read");
        let concerned = page.entries.into_iter().filter(takes_part).map(|entry| entry.key);
        Agenda { objects: concerned.collect(), ..Agenda::default() }
    }

    /// Follows changes. Answers with what is to be looked at because of them.
    pub fn follow(&mut self, server: &Server, batch: &[Change]) -> Agenda {
        let mut agenda = Agenda::default();
        for Change { before, after, .. } in batch {
            // Most objects have no owner and stay; only of those that go everything counts.
            if after.is_some() && !before.iter().chain(after).any(takes_part) {
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
                if let Found::There(key, _) = find(server, namespace.as_deref(), owner) {
                    agenda.objects.insert(key);
                }
            }
            if let Some(was) = was.filter(|_| concerned.dependents) {
                agenda.objects.extend(self.of.get(&was.uid).into_iter().flatten().cloned());
                self.note_gone(was.uid);
                agenda.namespaces.extend(namespace);
            }
            if concerned.itself {
                agenda.objects.insert(key);
            }
        }
        agenda
    }

    /// Whether an object of this uid is known to be gone.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// What depends on an owner.
    pub fn dependents(&self, server: &Server, uid: &str) -> Vec<Ownership> {
        self.dependents_by_key(server, uid).into_values().collect()
    }

    /// What depends on an owner, by key.
    pub fn dependents_by_key(&self, server: &Server, uid: &str) -> BTreeMap<Arc<str>, Ownership> {
        let keys = self.of.get(uid).into_iter().flatten();
        let there = keys.filter_map(|key| Some((key.clone(), ownership(&server.store.get(key, None).ok()??))));
        // The graph may be a little behind: what is there now counts.
        there.filter(|(_, found)| found.owners.iter().any(|owner| owner.uid == uid)).collect()
    }

    fn link(&mut self, key: &Arc<str>, ownership: &Ownership) {
        for owner in &ownership.owners {
            self.of.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
    }

    fn unlink(&mut self, key: &Arc<str>, ownership: &Ownership) {
        for owner in &ownership.owners {
            if let Some(keys) = self.of.get_mut(&owner.uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.of.remove(&owner.uid);
                }
            }
        }
    }

    fn note_gone(&mut self, uid: String) {
        if self.gone.len() >= REMEMBERED {
            self.gone.clear();
        }
        self.gone.insert(uid);
    }
}

/// The owner that a dependent in this namespace names.
pub(super) fn find(server: &Server, namespace: Option<&str>, owner: &OwnerReference) -> Found {
    let Some(version) = GroupVersion::parse(&owner.api_version) else { return Found::Unknown };
    let Some(row) = server.kinds.of_kind(&version.group, &owner.kind) else { return Found::Unknown };
    if row.namespaced && namespace.is_none() {
        return Found::Unknown;
    }
    let key = row.key(namespace.filter(|_| row.namespaced), &owner.name);
    let Ok(Some(entry)) = server.store.get(&key, None) else { return Found::Absent };
    let found = ownership(&entry);
    if found.uid == owner.uid { Found::There(entry.key, found) } else { Found::Absent }
}

/// An object with its row.
pub(super) fn read(server: &Server, key: &str) -> Option<(Arc<Resource>, Entry)> {
    let row = server.kinds.of_key(key)?;
    let entry = server.store.get(key, None).ok()??;
    Some((row, entry))
}

/// What a record says of deletion and owners.
pub(super) fn ownership(entry: &Entry) -> Ownership {
    #[derive(Deserialize)]
    struct Kept {
        metadata: Ownership,
    }
    let kept: Kept = serde_json::from_slice(&entry.value).expect("the store holds only what encode wrote");
    kept.metadata
}

/// The namespace an object was in, by its record: its kind may have gone with it.
fn namespace_of(entry: &Entry) -> Option<String> {
    #[derive(Deserialize)]
    struct Kept {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        namespace: Option<String>,
    }
    let kept: Kept = serde_json::from_slice(&entry.value).expect("the store holds only what encode wrote");
    kept.metadata.namespace
}

/// Whether a record may have owners or be on its way out: cheap, and never no when it has.
fn takes_part(entry: &Entry) -> bool {
    mentions(entry, "ownerReferences") || mentions(entry, "deletionTimestamp")
}

fn mentions(entry: &Entry, field: &str) -> bool {
    std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(field))
}
