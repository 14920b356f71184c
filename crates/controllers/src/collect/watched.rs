//! Everything that can be deleted, watched. In: the kinds a server has. Out: objects by place and by owner, and whom a change
//! concerns. Of kinds that others watch in full their cache is used, so that each is watched once.

use std::collections::HashMap;
use std::sync::Arc;

use konverge_core::{Concerned, ObjectKey, OwnerReference, Ownership};
use konverge_runtime::{Cache, Caches, Change, Mode, Object, Result, Subscription, Target};
use kube::core::ApiResource;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;

use super::place::{Place, group};
use crate::kinds::Kind;
use crate::meta::Meta;

/// Everything that is watched, by group and kind.
#[derive(Default)]
pub(super) struct Watched(RwLock<HashMap<(String, String), Entry>>);

struct Entry {
    kind: Arc<Kind>,
    cache: Cache,
    _told: Subscription,
}

/// An object that was found.
#[derive(Clone)]
pub(super) struct Found {
    pub kind: Arc<Kind>,
    pub object: Arc<Object>,
}

#[derive(Deserialize)]
struct WithMeta {
    metadata: Meta,
}

impl Found {
    /// Its metadata.
    pub fn meta(&self) -> Result<Meta> {
        Ok(self.object.decode::<WithMeta>()?.metadata)
    }

    /// Its owners as they are written.
    pub fn owners(&self) -> Vec<Value> {
        let text = self.object.pointer("/metadata/ownerReferences").unwrap_or("[]");
        serde_json::from_str(text).unwrap_or_default()
    }
}

impl Watched {
    /// Watches these kinds and no others. `told` hears of every change, with its kind.
    pub fn update(
        &self,
        caches: &Caches,
        kinds: &[Kind],
        told: impl Fn(&ApiResource, &Change) + Clone + Send + 'static,
    ) {
        let id = |api: &ApiResource| (api.group.clone(), api.kind.clone());
        let mut watched = self.0.write();
        // Nothing owns an event, and an event owns nothing.
        let wanted = || kinds.iter().filter(|kind| !(kind.api.group.is_empty() && kind.api.kind == "Event"));
        watched.retain(|_, entry| wanted().any(|kind| *kind == *entry.kind));
        for kind in wanted() {
            if watched.contains_key(&id(&kind.api)) {
                continue;
            }
            let cache = caches.open(target(caches, &kind.api));
            let (told, api) = (told.clone(), kind.api.clone());
            let subscription = cache.subscribe(move |change| told(&api, &change));
            watched.insert(id(&kind.api), Entry { kind: Arc::new(kind.clone()), cache, _told: subscription });
        }
    }

    /// A kind, by what an owner reference says of it. Versions of a group are the same objects.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let id = (group(api_version).to_owned(), kind.to_owned());
        self.0.read().get(&id).map(|entry| entry.kind.clone())
    }

    /// The object at a place: that one, not another of its name.
    pub fn find(&self, place: &Place) -> Option<Found> {
        let watched = self.0.read();
        let entry = watched.get(&(place.group.clone(), place.kind.clone()))?;
        let object = entry.cache.get(&place.object).filter(|object| object.uid() == place.uid)?;
        Some(Found { kind: entry.kind.clone(), object })
    }

    /// What an owner has.
    pub fn dependents(&self, uid: &str) -> Vec<Found> {
        let watched = self.0.read();
        let of = |entry: &Entry| {
            let found = entry.cache.by_owner(uid).into_iter();
            found.map(|object| Found { kind: entry.kind.clone(), object }).collect::<Vec<_>>()
        };
        watched.values().flat_map(of).collect()
    }

    /// Whether all that was there is known. One that is not installed any more has nothing.
    pub fn is_filled(&self) -> bool {
        let watched = self.0.read();
        watched
            .values()
            .all(|entry| entry.cache.is_synced() || entry.cache.state() == konverge_runtime::WatchState::NotInstalled)
    }
}

/// What to watch of a kind: what others have open in full, or else only the metadata.
fn target(caches: &Caches, api: &ApiResource) -> Target {
    let full = Target::all(api.clone());
    match caches.all().iter().any(|cache| *cache.target() == full) {
        true => full,
        false => full.mode(Mode::Metadata),
    }
}

/// What an object says of its deletion and its owners.
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

/// Whom a change concerns: the object, and those that may wait for it. The place of one that is gone stands for what depended
/// on it.
pub(super) fn concerned(api: &ApiResource, change: &Change) -> Vec<ObjectKey> {
    let (before, after) = (change.before(), change.after());
    let (was, is) = (before.map(|object| ownership(object)), after.map(|object| ownership(object)));
    let concerned = Concerned::by(was.as_ref(), is.as_ref());
    let Some(object) = after.or(before) else { return Vec::new() };
    // An owner in no namespace has another place than one beside the object; which it is, the kind would say.
    let places =
        |owner: &OwnerReference| [Place::of_owner(owner, object.namespace()).key(), Place::of_owner(owner, None).key()];
    let mut keys: Vec<ObjectKey> = concerned.owners.iter().flat_map(places).collect();
    if concerned.itself || concerned.dependents {
        keys.push(Place::of(api, object).key());
    }
    keys
}
