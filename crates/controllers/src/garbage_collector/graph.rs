//! The dependency graph. In: the kinds of a server. Out: objects by reference and by owner, and the keys that a change
//! wakes. A kind that another controller watches in full is read from that cache, so that each kind is watched once.

use std::collections::HashMap;
use std::sync::Arc;

use konverge_core::{Concerned, LabelSelector, ObjectKey, OwnerReference, Ownership};
use konverge_runtime::{Cache, Caches, Change, Mode, Object, Result, Subscription, Target};
use kube::core::ApiResource;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;

use super::object_reference::{ObjectReference, group};
use crate::discovery::Kind;
use crate::meta::Meta;

/// The caches of all watched kinds, by group and kind.
#[derive(Default)]
pub(super) struct Graph(RwLock<HashMap<(String, String), Entry>>);

struct Entry {
    kind: Arc<Kind>,
    /// Whether a CustomResourceDefinition of it was seen.
    is_defined: bool,
    cache: Cache,
    _subscription: Subscription,
}

/// One object of the graph, with its kind.
#[derive(Clone)]
pub(super) struct GraphNode {
    pub kind: Arc<Kind>,
    pub object: Arc<Object>,
}

#[derive(Deserialize)]
struct WithMeta {
    metadata: Meta,
}

impl GraphNode {
    /// Its metadata.
    pub(super) fn meta(&self) -> Result<Meta> {
        Ok(self.object.decode::<WithMeta>()?.metadata)
    }

    /// Its owners as they are written.
    pub(super) fn owners(&self) -> Vec<Value> {
        let text = self.object.pointer("/metadata/ownerReferences").unwrap_or("[]");
        serde_json::from_str(text).unwrap_or_default()
    }
}

impl Graph {
    /// The kinds of definitions that are watched and not among these, each with its objects.
    pub(super) fn vanished(&self, kinds: &[Kind]) -> Vec<(Arc<Kind>, Vec<Arc<Object>>)> {
        let entries = self.0.read();
        let vanished = entries.values().filter(|entry| entry.is_defined && !kinds.contains(&entry.kind));
        vanished.map(|entry| (entry.kind.clone(), entry.cache.list(None, &LabelSelector::default()))).collect()
    }

    /// Watches these kinds and no others. `is_defined` tells those that have a definition; `on_change` is called with every change and its
    /// kind.
    pub(super) fn update(
        &self,
        caches: &Caches,
        kinds: &[Kind],
        is_defined: impl Fn(&Kind) -> bool,
        on_change: impl Fn(&ApiResource, &Change) + Clone + Send + 'static,
    ) {
        let id = |api: &ApiResource| (api.group.clone(), api.kind.clone());
        let mut entries = self.0.write();
        // Nothing owns an event, and an event owns nothing.
        let wanted = || kinds.iter().filter(|kind| !(kind.api.group.is_empty() && kind.api.kind == "Event"));
        entries.retain(|_, entry| wanted().any(|kind| *kind == *entry.kind));
        for kind in wanted() {
            if let Some(entry) = entries.get_mut(&id(&kind.api)) {
                entry.is_defined |= is_defined(kind);
                continue;
            }
            let cache = caches.open(target(caches, &kind.api));
            let (on_change, api) = (on_change.clone(), kind.api.clone());
            let subscription = cache.subscribe(move |change| on_change(&api, &change));
            let (kind, is_defined) = (Arc::new(kind.clone()), is_defined(kind));
            let id = id(&kind.api);
            entries.insert(id, Entry { kind, is_defined, cache, _subscription: subscription });
        }
    }

    /// The kind that an owner reference names. The version does not matter: all versions of a kind show the same objects.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let id = (group(api_version).to_owned(), kind.to_owned());
        self.0.read().get(&id).map(|entry| entry.kind.clone())
    }

    /// The object of a reference, unless another object has the name by now.
    pub(super) fn find(&self, reference: &ObjectReference) -> Option<GraphNode> {
        let entries = self.0.read();
        let entry = entries.get(&(reference.group.clone(), reference.kind.clone()))?;
        let object = entry.cache.get(&reference.object).filter(|object| object.uid() == reference.uid)?;
        Some(GraphNode { kind: entry.kind.clone(), object })
    }

    /// The dependents of an owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<GraphNode> {
        let entries = self.0.read();
        let of = |entry: &Entry| {
            let objects = entry.cache.by_owner(uid).into_iter();
            objects.map(|object| GraphNode { kind: entry.kind.clone(), object }).collect::<Vec<_>>()
        };
        entries.values().flat_map(of).collect()
    }

    /// Whether every cache has listed its objects. A kind that is not installed any more has none.
    pub(super) fn is_synced(&self) -> bool {
        let entries = self.0.read();
        entries.values().all(|entry| {
            entry.cache.is_synced() || matches!(entry.cache.state(), konverge_runtime::WatchState::NotInstalled(_))
        })
    }
}

/// What to watch of a kind: whole objects if another controller watches them anyway, else only their metadata.
fn target(caches: &Caches, api: &ApiResource) -> Target {
    let full = Target::all(api.clone());
    match caches.all().iter().any(|cache| *cache.target() == full) {
        true => full,
        false => full.mode(Mode::Metadata),
    }
}

/// The fields of an object that decide about its deletion.
pub(super) fn ownership(object: &Object) -> Ownership {
    let owner = |owner: konverge_runtime::OwnerReference<'_>| OwnerReference {
        api_version: owner.api_version.into_owned(),
        kind: owner.kind.into_owned(),
        name: owner.name.into_owned(),
        uid: owner.uid.into_owned(),
        block_owner_deletion: owner.block_owner_deletion,
    };
    Ownership {
        uid: object.uid().to_owned(),
        is_terminating: object.is_terminating(),
        finalizers: object.finalizers().map(|finalizer| finalizer.to_string()).collect(),
        owners: object.owners().map(owner).collect(),
    }
}

/// The keys that a change wakes: the object itself and owners that may wait for it. The reference of a deleted object
/// wakes its dependents.
pub(super) fn concerned(api: &ApiResource, change: &Change) -> Vec<ObjectKey> {
    let (before, after) = (change.before(), change.after());
    let (was, is) = (before.map(|object| ownership(object)), after.map(|object| ownership(object)));
    let concerned = Concerned::by(was.as_ref(), is.as_ref());
    let Some(object) = after.or(before) else { return Vec::new() };
    // The owner is in the object's namespace or in none. Which one depends on the owner's scope, so both keys are woken.
    let both_scopes = |owner: &OwnerReference| {
        [object.namespace(), None].map(|namespace| ObjectReference::of_owner(owner, namespace).key())
    };
    let mut keys: Vec<ObjectKey> = concerned.owners.iter().flat_map(both_scopes).collect();
    if concerned.itself || concerned.dependents {
        keys.push(ObjectReference::of(api, object).key());
    }
    keys
}
