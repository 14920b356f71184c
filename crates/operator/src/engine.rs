//! What every reconcile of an operator shares: the client, the caches, the writer, the recorder. In: parts. Out: reads
//! that the watch answers where there is one, and writes that the caches know of at once.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Adopt, Applied, ApplyOptions, Cache, Caches, Child, Controller, Deleted, Error, Event, Member, Mode, OWNER_LABEL,
    Object, Owner, Recorder, SetStep, Severity, Subject, Target, Trigger, WatchState, Writer,
};
use kube::Client;
use kube::api::ListParams;
use kube::core::ApiResource;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::children::{ChildKind, Converged};
use crate::index::Indexes;
use crate::kind::{Kind, Scope};
use crate::metrics::Metrics;
use crate::state::States;
use crate::within::Absence;

/// How long a reconcile waits for a cache to be filled: long enough for a large list, short enough that a missing
/// permission is seen.
const FILLED_WITHIN: Duration = Duration::from_secs(30);

/// How much of a list is asked for at once: as much as clients of Kubernetes ask for.
const PAGE: u32 = 500;

/// A part of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<Box<RawValue>>,
}

/// What the reconciles of one controller share.
pub(crate) struct Engine {
    pub client: Client,
    pub caches: Caches,
    pub writer: Writer,
    pub recorder: Recorder,
    pub controller: Arc<Controller>,
    /// The namespaces that are looked at; none means all of them.
    pub namespaces: Vec<String>,
    /// The kind of the objects that are reconciled.
    pub owner: ApiResource,
    pub owner_scope: Scope,
    pub metrics: Metrics,
    /// The caches of kinds that belong to those objects: few, and asked for by every apply.
    pub owned: RwLock<Vec<Owned>>,
    /// What objects can be found by, under the name that the user gave it.
    pub indexes: Indexes,
    /// Whether the status of those objects says at which generation it was observed.
    pub observes_generation: bool,
    /// Of an operator that looks at some namespaces: the caches of what an object names in others.
    pub named: RwLock<Vec<Named>>,
    /// What the user's reconciles share.
    pub states: States,
}

/// Watches what an object names outside of the namespaces that are looked at, and gives the caches of it.
pub(crate) type Named = Box<dyn Fn(&Engine, &dyn Any) -> Vec<Cache> + Send + Sync>;

/// A kind that belongs to the objects that are reconciled.
pub(crate) struct Owned {
    kind: TypeId,
    /// Where it is looked at; none is everywhere.
    namespace: Option<Box<str>>,
    cache: Cache,
}

impl Engine {
    /// The cache of a kind whose objects belong to those that are reconciled, watched from now on: what happens to one
    /// of them wakes its owner. `namespace` is where the object lies that is wanted of it.
    pub fn owned<T: Kind>(&self, namespace: Option<&str>) -> Cache {
        let (kind, namespace) = (TypeId::of::<T>(), self.place::<T>(namespace));
        let is_it = |owned: &&Owned| owned.kind == kind && owned.namespace.as_deref() == namespace;
        if let Some(owned) = self.owned.read().iter().find(is_it) {
            return owned.cache.clone();
        }
        let mut known = self.owned.write();
        // Another reconcile may have been faster.
        if let Some(owned) = known.iter().find(is_it) {
            return owned.cache.clone();
        }
        let namespaced = self.owner_scope == Scope::Namespaced;
        let trigger = Trigger::owner(&*T::kind(&()), &self.owner.group, &self.owner.kind, namespaced);
        let cache = self.controller.watch(target::<T>(namespace), trigger);
        known.push(Owned { kind, namespace: namespace.map(Box::from), cache: cache.clone() });
        cache
    }

    /// The caches of a kind in all places where children of it may be, watched from now on: the namespaces that the
    /// operator looks at, and those where this process has wanted one.
    pub fn owned_anywhere<T: Kind>(&self) -> Vec<Cache> {
        for place in self.places::<T>() {
            self.owned::<T>(place);
        }
        let kind = TypeId::of::<T>();
        self.owned.read().iter().filter(|owned| owned.kind == kind).map(|owned| owned.cache.clone()).collect()
    }

    /// The cache of a kind, if something watches it already.
    pub fn watched<T: Kind>(&self, namespace: Option<&str>) -> Option<Cache> {
        self.caches.find(&self.target::<T>(namespace))
    }

    /// What to watch of a kind to see an object in `namespace`.
    pub fn target<T: Kind>(&self, namespace: Option<&str>) -> Target {
        target::<T>(self.place::<T>(namespace))
    }

    /// Where to look for an object in `namespace`: everywhere; or just there, where the operator looks at some namespaces
    /// only, also if it is another one that it was told to look into.
    fn place<'a, T: Kind>(&self, namespace: Option<&'a str>) -> Option<&'a str> {
        namespace.filter(|_| !self.namespaces.is_empty() && T::scope() == Scope::Namespaced)
    }

    /// All places where a kind is looked at: each namespace, or everything.
    pub fn places<T: Kind>(&self) -> Vec<Option<&str>> {
        match self.namespaces.as_slice() {
            some @ [_, ..] if T::scope() == Scope::Namespaced => some.iter().map(|one| Some(one.as_str())).collect(),
            _ => vec![None],
        }
    }

    /// Waits until a cache shows what the server has.
    pub async fn filled(&self, cache: &Cache) -> Result<(), Error> {
        if cache.is_synced() || tokio::time::timeout(FILLED_WITHIN, cache.synced()).await.is_ok() {
            return Ok(());
        }
        let kind = &cache.target().resource.kind;
        Err(Error::new(format!("the cache of {kind} is not filled yet: {:?}", cache.state())))
    }

    /// Waits until everything that an object names is watched. What may not be watched is an error that says which rule is
    /// missing: the object would be reconciled once, and never when what it names changes.
    pub async fn names_are_watched(&self, object: &(dyn Any + Sync)) -> Result<(), Error> {
        let caches: Vec<Cache> = self.named.read().iter().flat_map(|named| named(self, object)).collect();
        for cache in caches {
            let mut states = cache.states();
            let decided = states.wait_for(|state| *state != WatchState::Starting);
            // One that stays undecided is the business of whoever waits for it to be filled.
            if let Ok(Ok(state)) = tokio::time::timeout(FILLED_WITHIN, decided).await
                && let WatchState::Forbidden(rule) = &*state
            {
                let Target { resource, namespace, .. } = cache.target();
                let (kind, namespace) = (&resource.kind, namespace.as_deref().unwrap_or_default());
                return Err(Error::new(format!(
                    "the object names a {kind} in the namespace {namespace}, which this operator may not watch: {rule}"
                ))
                .reason("Forbidden"));
            }
            self.filled(&cache).await?;
        }
        Ok(())
    }

    /// Makes the child of this key look as wanted.
    pub async fn apply<T: Kind>(
        &self,
        (owner, adopt): (&Owner, Adopt<'_>),
        key: &ObjectKey,
        desired: &T,
    ) -> Result<T, Error> {
        let cache = self.owned::<T>(key.namespace());
        self.filled(&cache).await?;
        let (api, live) = (&cache.target().resource, cache.get(key));
        let options = ApplyOptions { namespace: key.namespace(), owner: Some(owner), adopt, ..ApplyOptions::default() };
        let object = match self.writer.apply(api, live.as_deref(), desired, options).await? {
            Applied::Unchanged => live.ok_or_else(|| Error::new("nothing was there to be left unchanged"))?,
            Applied::Created(object) | Applied::Updated(object) => {
                self.wrote(api, &object)?;
                object
            }
        };
        Ok(object.decode()?)
    }

    /// The child of this key, made if it is not there. Another writer that made it meanwhile was faster: that is an error
    /// which is tried again at once, with what is there then.
    pub async fn create_once<T: Kind>(&self, owner: &Owner, key: &ObjectKey, wanted: &T) -> Result<T, Error> {
        let cache = self.owned::<T>(key.namespace());
        self.filled(&cache).await?;
        if let Some(there) = cache.get(key) {
            return Ok(there.decode()?);
        }
        let (api, mut config) = (&cache.target().resource, serde_json::to_value(wanted)?);
        if let Some(namespace) = key.namespace() {
            config["metadata"]["namespace"] = namespace.into();
        }
        owner.put_into(&mut config)?;
        let made = self.writer.create(api, &config).await?;
        self.caches.wrote(api, &made.to_string())?;
        Ok(serde_json::from_value(made)?)
    }

    /// Makes a set of children true: each wanted one with its key, and of each kind what is no longer wanted.
    pub async fn apply_all(
        &self,
        (owner, adopt): (&Owner, Adopt<'_>),
        set: &str,
        kinds: &[ChildKind],
        wanted: Vec<(ChildKind, ObjectKey, Value)>,
    ) -> Result<Converged, Error> {
        let own = owner.key.namespace();
        let add = |caches: &mut Vec<Cache>, cache: Cache| {
            if caches.iter().all(|known| known.target() != cache.target()) {
                caches.push(cache);
            }
        };
        let mut members = Vec::new();
        for kind in kinds {
            let mut caches = vec![(kind.cache)(self, own)];
            let alike = || wanted.iter().filter(|(of, ..)| of.api == kind.api).map(|(_, key, _)| key);
            for key in alike() {
                add(&mut caches, (kind.cache)(self, key.namespace()));
            }
            for cache in &caches {
                self.filled(cache).await?;
            }
            // Where nothing is wanted, something may be left. Nobody waits for it, as somebody may have wanted a child
            // where nothing can be seen: a child that comes to light later wakes its owner.
            for cache in (kind.anywhere)(self).into_iter().filter(Cache::is_synced) {
                add(&mut caches, cache);
            }
            for cache in caches {
                cache.add_index(OWNER_LABEL, |object| {
                    object.label(OWNER_LABEL).map(Cow::into_owned).into_iter().collect()
                });
                let found = cache.by_index(OWNER_LABEL, &owner.uid).into_iter();
                // What is wanted is not deleted, so nobody has to look at it as a member.
                let others = found.filter(|object| !alike().any(|key| *key == object.key()));
                members.extend(others.map(|object| Member { api: kind.api.clone(), live: object.value() }));
            }
        }
        let child = |(kind, key, config): (ChildKind, ObjectKey, Value)| {
            let live = (kind.cache)(self, key.namespace()).get(&key);
            Child { api: kind.api, config, live }
        };
        let wanted: Vec<Child> = wanted.into_iter().map(child).collect();
        let mut noted = Ok(());
        // At once: what comes later may fail, or be cut.
        let note = |step: SetStep<'_>| {
            let done = match step {
                SetStep::Applied(api, applied) => applied.object().map_or(Ok(()), |object| self.wrote(api, object)),
                SetStep::Pruned(member, deleted) => self.deleted(&member.api, &member.live, deleted),
            };
            if noted.is_ok() {
                noted = done;
            }
        };
        let report = self.writer.apply_all(set, owner, adopt, wanted, &members, note).await?;
        noted?;
        let mut converged = Converged::default();
        for applied in &report.applied {
            match applied {
                Applied::Unchanged => converged.unchanged += 1,
                Applied::Created(_) => converged.created += 1,
                Applied::Updated(_) => converged.updated += 1,
            }
        }
        for (Member { api, live }, _) in &report.pruned {
            converged.pruned.push((api.kind.clone(), Owner::of(api, live)?.key));
        }
        Ok(converged)
    }

    /// Tells the caches what the server answered, so that the next read sees it.
    pub fn wrote(&self, api: &ApiResource, object: &Arc<Object>) -> Result<(), Error> {
        Ok(self.caches.wrote_object(api, object)?)
    }

    /// Records an event about a reconciled object.
    pub fn record(
        &self,
        object: &Object,
        severity: Severity,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Result<(), Error> {
        let subject = Subject::of(&self.owner, &object.value())?;
        self.metrics.event_recorded(severity);
        self.recorder.record(&Arc::new(subject), Event::new(severity, reason, message));
        Ok(())
    }

    /// One object: from the cache of a watched kind, else from the server.
    pub async fn get<T: Kind>(&self, key: &ObjectKey, absence: Absence) -> Result<Option<T>, Error> {
        if let Some(cache) = self.watched::<T>(key.namespace()) {
            self.filled(&cache).await?;
            let cached = cache.get(key);
            if cached.is_some() || absence == Absence::Believed {
                return Ok(cached.map(|object| object.decode()).transpose()?);
            }
        }
        let found = self.writer.get(&T::resource(), key).await?;
        Ok(found.map(serde_json::from_value).transpose()?)
    }

    /// The objects of a kind in a namespace, or in all that are looked at, that a selector selects. The kind is watched from
    /// now on, and its cache is asked, unless that may lack something.
    pub async fn list<T: Kind>(
        &self,
        namespace: Option<&str>,
        selector: &LabelSelector,
        absence: Absence,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for (place, cache) in self.looked_at::<T>(namespace) {
            found.extend(match absence {
                Absence::Believed => {
                    self.filled(&cache).await?;
                    cache.list(namespace, selector)
                }
                Absence::Doubted => self.ask::<T>(place, selector).await?,
            });
        }
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// The same for those that an index finds under a value.
    pub async fn list_by_index<T: Kind>(
        &self,
        namespace: Option<&str>,
        index: &str,
        value: &str,
        absence: Absence,
    ) -> Result<Vec<T>, Error> {
        let index = self.indexes.of::<T>(index)?;
        let inside = |object: &Arc<Object>| namespace.is_none() || object.namespace() == namespace;
        let mut found = Vec::new();
        for (place, cache) in self.looked_at::<T>(namespace) {
            match absence {
                Absence::Believed => {
                    self.filled(&cache).await?;
                    found.extend(index.find(&cache, value).into_iter().filter(inside));
                }
                Absence::Doubted => {
                    let all = self.ask::<T>(place, &LabelSelector::default()).await?;
                    found.extend(all.into_iter().filter(|object| index.finds(object, value)));
                }
            }
        }
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// Where a kind is looked at for what lies in a namespace, or in any, and the caches of it, watched from now on.
    fn looked_at<'a, T: Kind>(&'a self, namespace: Option<&'a str>) -> Vec<(Option<&'a str>, Cache)> {
        let places = if namespace.is_some() { vec![namespace] } else { self.places::<T>() };
        let cache = |place| self.watched::<T>(place).unwrap_or_else(|| self.owned::<T>(place));
        places.into_iter().map(|place| (place, cache(place))).collect()
    }

    /// What the server has of a kind in a namespace, or in all.
    async fn ask<T: Kind>(&self, namespace: Option<&str>, selector: &LabelSelector) -> Result<Vec<Arc<Object>>, Error> {
        let (api, request) = (T::resource(), kube::core::Request::new(T::url_path(&(), namespace)));
        let mut params = ListParams::default().labels(&selector.to_string()).limit(PAGE);
        let mut found = Vec::new();
        loop {
            let request = request.list(&params).map_err(kube::Error::BuildRequest)?;
            let page: Page = self.client.request(request).await?;
            for object in &page.items {
                found.push(Arc::new(Object::parse(&api, object.get(), Mode::Full)?));
            }
            match page.metadata.continue_ {
                Some(more) if !more.is_empty() => params = params.continue_token(&more),
                _ => return Ok(found),
            }
        }
    }

    /// Deletes one object; that there is none is fine.
    pub async fn delete<T: Kind>(&self, key: &ObjectKey, absence: Absence) -> Result<(), Error> {
        let (api, watched) = (T::resource(), self.watched::<T>(key.namespace()));
        let mut live = None;
        if let Some(cache) = &watched {
            self.filled(cache).await?;
            live = cache.get(key).map(|object| object.value());
        }
        if live.is_none() && (watched.is_none() || absence == Absence::Doubted) {
            live = self.writer.get(&api, key).await?;
        }
        match live {
            Some(live) => {
                let deleted = self.writer.delete(&api, &live).await?;
                self.deleted(&api, &live, &deleted)
            }
            None => Ok(()),
        }
    }

    /// Tells the caches what became of an object that was to be deleted, so that the next read sees it.
    fn deleted(&self, api: &ApiResource, live: &Value, deleted: &Deleted) -> Result<(), Error> {
        match deleted {
            Deleted::Going(object) => Ok(self.caches.wrote(api, &object.to_string())?),
            Deleted::Gone | Deleted::Absent => {
                let text = |path: &str| live.pointer(path).and_then(Value::as_str);
                let name = text("/metadata/name").unwrap_or_default();
                let key = ObjectKey::new(text("/metadata/namespace"), name);
                self.caches.removed(api, &key, text("/metadata/uid").unwrap_or_default());
                Ok(())
            }
            Deleted::Leaving => Ok(()),
        }
    }
}

/// What to watch of a kind: one namespace, or everything.
pub(crate) fn target<T: Kind>(namespace: Option<&str>) -> Target {
    match namespace {
        Some(namespace) if T::scope() == Scope::Namespaced => Target::all(T::resource()).within(namespace),
        _ => Target::all(T::resource()),
    }
}
