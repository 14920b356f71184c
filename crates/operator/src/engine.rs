//! What every reconcile of an operator shares: the client, the caches, the writer, the recorder. In: parts. Out: reads
//! that the watch answers where there is one, and writes that the caches know of at once.

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Applied, ApplyOptions, Cache, Caches, Controller, Error, Event, Object, Owner, Recorder, Subject, Target, Trigger,
    Writer,
};
use kube::core::ApiResource;
use serde_json::Value;

use crate::kind::{Kind, Scope};

/// How long a reconcile waits for a cache to be filled: long enough for a large list, short enough that a missing
/// permission is seen.
const FILLED_WITHIN: Duration = Duration::from_secs(30);

/// What the reconciles of one controller share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Engine {
    pub caches: Caches,
    pub writer: Writer,
    pub recorder: Recorder,
    pub controller: Arc<Controller>,
    /// The namespace that is looked at; none is all of them.
    pub namespace: Option<Arc<str>>,
    /// The kind of the objects that are reconciled.
    pub owner: ApiResource,
    pub owner_scope: Scope,
}

impl Engine {
    /// The cache of a kind whose objects belong to those that are reconciled, watched from now on: what happens to one
    /// of them wakes its owner.
    pub fn owned<T: Kind>(&self) -> Cache {
        let api = T::resource();
        let namespaced = self.owner_scope == Scope::Namespaced;
        let trigger = Trigger::owner(api.kind.as_str(), &self.owner.group, &self.owner.kind, namespaced);
        self.controller.watch(self.target(api, T::scope()), trigger)
    }

    /// The cache of a kind, if something watches it already.
    pub fn watched<T: Kind>(&self) -> Option<Cache> {
        let target = self.target(T::resource(), T::scope());
        self.caches.all().into_iter().find(|cache| *cache.target() == target)
    }

    /// What to watch of a kind: the one namespace, or everything.
    pub fn target(&self, api: ApiResource, scope: Scope) -> Target {
        target(self.namespace.as_deref(), api, scope)
    }

    /// Waits until a cache shows what the server has.
    pub async fn filled(&self, cache: &Cache) -> Result<(), Error> {
        if cache.is_synced() || tokio::time::timeout(FILLED_WITHIN, cache.synced()).await.is_ok() {
            return Ok(());
        }
        let kind = &cache.target().resource.kind;
        Err(Error::new(format!("the cache of {kind} is not filled yet: {:?}", cache.state())))
    }

    /// Makes a child look as wanted.
    pub async fn apply<T: Kind>(&self, owner: &Owner, key: &ObjectKey, config: Value) -> Result<T, Error> {
        let api = T::resource();
        let cache = self.owned::<T>();
        self.filled(&cache).await?;
        let live = cache.get(key).map(|object| object.value());
        // What belongs to nobody here cannot be owned from another namespace; it is applied all the same.
        let owner = Some(owner).filter(|owner| owner.may_own(key));
        let options = ApplyOptions { owner, ..ApplyOptions::default() };
        let applied = self.writer.apply(&api, live.as_ref(), config, options).await?;
        let object = match &applied {
            Applied::Unchanged => live.ok_or_else(|| Error::new("nothing was there to be left unchanged"))?,
            Applied::Created(object) | Applied::Updated(object) => {
                self.wrote(&api, object)?;
                object.clone()
            }
        };
        Ok(serde_json::from_value(object)?)
    }

    /// Tells the caches what the server answered, so that the next read sees it.
    pub fn wrote(&self, api: &ApiResource, object: &Value) -> Result<(), Error> {
        Ok(self.caches.wrote(api, &object.to_string())?)
    }

    /// One object: from the cache of a watched kind, else from the server.
    pub async fn get<T: Kind>(&self, key: &ObjectKey) -> Result<Option<T>, Error> {
        match self.watched::<T>() {
            Some(cache) => {
                self.filled(&cache).await?;
                Ok(cache.get(key).map(|object| object.decode()).transpose()?)
            }
            None => {
                let found = self.writer.get(&T::resource(), key).await?;
                Ok(found.map(serde_json::from_value).transpose()?)
            }
        }
    }

    /// The objects of a kind in a namespace that a selector selects, from its cache, which is watched from now on.
    pub async fn list<T: Kind>(&self, namespace: Option<&str>, selector: &LabelSelector) -> Result<Vec<T>, Error> {
        let cache = self.watched::<T>().unwrap_or_else(|| self.owned::<T>());
        self.filled(&cache).await?;
        let objects: Vec<Arc<Object>> = cache.list(namespace, selector);
        objects.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// Deletes one object; that there is none is fine.
    pub async fn delete<T: Kind>(&self, key: &ObjectKey) -> Result<(), Error> {
        let api = T::resource();
        let live = match self.watched::<T>() {
            Some(cache) => {
                self.filled(&cache).await?;
                cache.get(key).map(|object| object.value())
            }
            None => self.writer.get(&api, key).await?,
        };
        if let Some(live) = live {
            self.writer.delete(&api, &live).await?;
        }
        Ok(())
    }

    /// Records an event about an object.
    pub fn event(&self, object: &Value, event: Event) -> Result<(), Error> {
        let subject = Subject::of(&self.owner, object)?;
        self.recorder.record(&Arc::new(subject), event);
        Ok(())
    }
}

/// What to watch of a kind: one namespace, or everything.
pub(crate) fn target(namespace: Option<&str>, api: ApiResource, scope: Scope) -> Target {
    match namespace {
        Some(namespace) if scope == Scope::Namespaced => Target::all(api).within(namespace),
        _ => Target::all(api),
    }
}
