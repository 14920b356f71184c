//! The cluster as the reconciles of one controller read and write it. In: kinds, keys and desired objects. Out: reads that
//! a watch answers where there is one, and writes that the caches know of at once. Kinds are values ([`ApiKind`]): the
//! Rust type of an object matters only where it is decoded or serialised.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use konverge_core::{LabelSelector, ObjectKey};
use konverge_runtime::{
    Adopt, Applied, ApplyOptions, Cache, Caches, Child, Controller, Deleted, Error, Event, LookUp, Member, Mode,
    NotServed, OWNER_LABEL, Object, Owner, Patch, Recorder, SetStep, Severity, ShardPart, Subject, Target, Trigger,
    WatchState, WriteError, Writer,
};
use kube::Client;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api_kind::ApiKind;
use crate::children::Converged;
use crate::index::Indexes;
use crate::metrics::Metrics;
use crate::objects::Absence;
use crate::state::States;

/// How long a reconcile waits for a cache to be filled: long enough for a large list, short enough that a missing
/// permission is seen.
const FILLED_WITHIN: Duration = Duration::from_secs(30);

/// The reason of an error about what may not be watched.
const FORBIDDEN: &str = "Forbidden";

/// How many objects a page of a list has: as many as client-go asks for.
const PAGE_SIZE: u32 = 500;

/// The error of an apply that breaks its promise.
const NO_CACHED_OBJECT: &str = "internal error: apply reported no change for an object that the cache does not have";

/// One page of a list.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<Box<RawValue>>,
}

/// Reads and writes for one controller, and what else its reconciles share.
pub(crate) struct CachedClient {
    pub client: Client,
    pub caches: Caches,
    pub writer: Writer,
    pub recorder: Recorder,
    pub controller: Arc<Controller>,
    /// The namespaces that the controller watches; none means all of them.
    pub namespaces: Vec<String>,
    /// The kind of the objects that are reconciled.
    pub kind: ApiKind,
    pub metrics: Metrics,
    /// The caches of kinds whose objects belong to the reconciled ones. A controller owns few kinds, and every apply
    /// looks for one, so this is a list.
    pub owned: RwLock<Vec<Owned>>,
    /// The indexes of the user, by kind and name.
    pub indexes: Indexes,
    /// Whether the status of the reconciled kind has a field `observedGeneration`.
    pub observes_generation: bool,
    /// Whether reconciles of an object in a namespace may reach into others.
    pub across_namespaces: bool,
    /// For a controller that watches some namespaces only: opens caches for what an object names in others.
    pub referenced: RwLock<Vec<WatchReferenced>>,
    /// What the user's reconciles share.
    pub states: States,
}

/// Watches what a reconciled object names outside of the watched namespaces, and returns the caches of it.
pub(crate) type WatchReferenced = Box<dyn Fn(&CachedClient, &dyn Any) -> Vec<Cache> + Send + Sync>;

/// A patch failed. Says which object it was for; the server's message often does not.
#[derive(Debug, thiserror::Error)]
#[error("cannot patch {kind} {key}")]
struct PatchError {
    kind: String,
    key: ObjectKey,
    source: WriteError,
}

/// A kind whose objects belong to the reconciled ones.
pub(crate) struct Owned {
    kind: ApiKind,
    /// The namespace that is watched; none is all of them.
    namespace: Option<Box<str>>,
    cache: Cache,
}

/// A child that `apply_all` applies.
pub(crate) struct DesiredChild {
    pub kind: ApiKind,
    pub key: ObjectKey,
    pub config: Value,
}

/// The namespace to watch for an object in `namespace`: all of them (`None`); or just that one, if only some are watched.
pub(crate) fn namespace_to_watch<'a>(
    watched: &[String],
    kind: &ApiKind,
    namespace: Option<&'a str>,
) -> Option<&'a str> {
    namespace.filter(|_| !watched.is_empty() && kind.is_namespaced())
}

/// Each namespace in which a kind is watched; `None` is all of them in one watch.
pub(crate) fn namespaces_to_watch<'a>(watched: &'a [String], kind: &ApiKind) -> Vec<Option<&'a str>> {
    match watched {
        some @ [_, ..] if kind.is_namespaced() => some.iter().map(|one| Some(one.as_str())).collect(),
        _ => vec![None],
    }
}

/// Waits until a cache has been filled by its first list. A kind that the server does not serve, or that may not be
/// watched, is an error at once: waiting would only hold up a worker, and the reconcile is retried.
///
/// With shards, a cache is filled when it has everything of the shards that this instance holds.
async fn filled(cache: &Cache) -> Result<(), Error> {
    if cache.is_synced() && cache.is_complete() {
        return Ok(());
    }
    let here = async {
        cache.synced().await;
        cache.complete().await;
    };
    let is_final = |state: &WatchState| {
        matches!(state, WatchState::NotInstalled(_) | WatchState::Forbidden(_) | WatchState::Stopped)
    };
    let mut states = cache.states();
    tokio::select! {
        () = here => Ok(()),
        Ok(state) = states.wait_for(is_final) => Err(match &*state {
            WatchState::NotInstalled(why) => NotServed::new(&cache.target().resource, why.clone()).into(),
            WatchState::Forbidden(_) => {
                let waiting_for = cache.waiting_for().unwrap_or_default();
                Error::new(format!("this operator may not watch {waiting_for}")).reason(FORBIDDEN)
            }
            _ => stopping(cache.waiting_for()),
        }),
        () = tokio::time::sleep(FILLED_WITHIN) => {
            let reading = || format!("{}: the objects of its shards are being read", cache.target().resource.kind);
            let waiting_for = cache.waiting_for().unwrap_or_else(reading);
            Err(Error::new(format!("a cache is not filled within {FILLED_WITHIN:?}: {waiting_for}")))
        }
    }
}

/// The error of a read that is not answered, because the operator stops.
pub(crate) fn stopping(waiting_for: Option<String>) -> Error {
    let waiting_for = waiting_for.map(|kind| format!("; still waiting for {kind}")).unwrap_or_default();
    Error::new(format!("the operator stops{waiting_for}")).reason("Stopping")
}

/// What the server has of a kind in a namespace, or in all, page by page.
pub(crate) async fn list_from_server(
    client: &Client,
    kind: &ApiKind,
    namespace: Option<&str>,
    selector: &LabelSelector,
) -> Result<Vec<Arc<Object>>, Error> {
    let path = <DynamicObject as kube::Resource>::url_path(kind.resource(), namespace);
    let request = kube::core::Request::new(path);
    let mut params = ListParams::default().labels(&selector.to_string()).limit(PAGE_SIZE);
    let mut found = Vec::new();
    loop {
        let request = request.list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page = client.request(request).await?;
        for object in &page.items {
            found.push(Arc::new(Object::parse(kind.resource(), object.get(), Mode::Full)?));
        }
        match page.metadata.continue_ {
            Some(more) if !more.is_empty() => params = params.continue_token(&more),
            _ => return Ok(found),
        }
    }
}

impl CachedClient {
    /// The cache of a kind whose objects belong to the reconciled ones, watched from now on: a change of one of them
    /// reconciles its owner. `namespace` is where the wanted object lies.
    pub(crate) fn owned(&self, kind: &ApiKind, namespace: Option<&str>) -> Cache {
        let namespace = self.watched_namespace(kind, namespace);
        let is_it = |owned: &&Owned| owned.kind == *kind && owned.namespace.as_deref() == namespace;
        if let Some(owned) = self.owned.read().iter().find(is_it) {
            return owned.cache.clone();
        }
        let mut known = self.owned.write();
        // Another reconcile may have been faster.
        if let Some(owned) = known.iter().find(is_it) {
            return owned.cache.clone();
        }
        let cache =
            self.controller.watch(kind.target(namespace).part(ShardPart::OwnChildren), self.owner_trigger(kind));
        known.push(Owned { kind: kind.clone(), namespace: namespace.map(Box::from), cache: cache.clone() });
        cache
    }

    /// What reconciles the owner of a changed object.
    fn owner_trigger(&self, kind: &ApiKind) -> Trigger {
        let owner = self.kind.resource();
        Trigger::owner(kind.name(), &owner.group, &owner.kind, self.kind.is_namespaced())
    }

    /// The caches of a kind wherever children of it may be, watched from now on: the namespaces that the controller
    /// watches, and those where this process has applied one.
    pub(crate) fn owned_anywhere(&self, kind: &ApiKind) -> Vec<Cache> {
        for namespace in self.watched_namespaces(kind) {
            self.owned(kind, namespace);
        }
        self.owned.read().iter().filter(|owned| owned.kind == *kind).map(|owned| owned.cache.clone()).collect()
    }

    /// The cache of all objects of a kind, if something watches them already.
    fn watched(&self, kind: &ApiKind, namespace: Option<&str>) -> Option<Cache> {
        self.caches.find(&self.target(kind, namespace))
    }

    /// The caches of a kind that know whether an object is there: one of all objects, or those of this instance's part.
    fn knowing(&self, kind: &ApiKind, namespace: Option<&str>) -> Vec<Cache> {
        let target = self.target(kind, namespace);
        if let Some(cache) = self.caches.find(&target) {
            return vec![cache];
        }
        let parts = [ShardPart::OwnObjects, ShardPart::OwnChildren].into_iter();
        parts.filter_map(|part| self.caches.find(&target.clone().part(part))).collect()
    }

    /// An object as a cache has it, or as the server has it if it belongs to another instance.
    async fn live(&self, cache: &Cache, kind: &ApiKind, key: &ObjectKey) -> Result<Option<Arc<Object>>, Error> {
        match cache.look_up(key) {
            LookUp::Here(object) => Ok(Some(object)),
            LookUp::Elsewhere => self.read_from_server(kind, key).await,
            LookUp::Absent => Ok(None),
        }
    }

    async fn read_from_server(&self, kind: &ApiKind, key: &ObjectKey) -> Result<Option<Arc<Object>>, Error> {
        let found = self.writer.get(kind.resource(), key).await?;
        let parse = |found: Value| Object::parse(kind.resource(), &found.to_string(), Mode::Full).map(Arc::new);
        Ok(found.map(parse).transpose()?)
    }

    /// What to watch of a kind to see an object in `namespace`.
    pub(crate) fn target(&self, kind: &ApiKind, namespace: Option<&str>) -> Target {
        kind.target(self.watched_namespace(kind, namespace))
    }

    fn watched_namespace<'a>(&self, kind: &ApiKind, namespace: Option<&'a str>) -> Option<&'a str> {
        namespace_to_watch(&self.namespaces, kind, namespace)
    }

    /// Each namespace in which a kind is watched; `None` is all of them in one watch.
    pub(crate) fn watched_namespaces(&self, kind: &ApiKind) -> Vec<Option<&str>> {
        namespaces_to_watch(&self.namespaces, kind)
    }

    /// Waits until a cache has been filled by its first list: see [`filled`].
    pub(crate) async fn synced(&self, cache: &Cache) -> Result<(), Error> {
        filled(cache).await
    }

    /// Waits until everything that an object names is watched. What may not be watched is an error that says which rule is
    /// missing: the object would be reconciled once, and never when what it names changes.
    pub(crate) async fn watch_referenced(&self, object: &(dyn Any + Sync)) -> Result<(), Error> {
        let caches: Vec<Cache> = self.referenced.read().iter().flat_map(|watch| watch(self, object)).collect();
        for cache in caches {
            let mut states = cache.states();
            let decided = states.wait_for(|state| !matches!(state, WatchState::Starting | WatchState::Listing));
            // A watch that stays undecided fails below, where the cache is waited for.
            if let Ok(Ok(state)) = tokio::time::timeout(FILLED_WITHIN, decided).await
                && let WatchState::Forbidden(rule) = &*state
            {
                let Target { resource, namespace, .. } = cache.target();
                let (kind, namespace) = (&resource.kind, namespace.as_deref().unwrap_or_default());
                return Err(Error::new(format!(
                    "the object names a {kind} in the namespace {namespace}, which this operator may not watch: {rule}"
                ))
                .reason(FORBIDDEN));
            }
            self.synced(&cache).await?;
        }
        Ok(())
    }

    /// Makes the object of this key look as desired; with an owner, as its child.
    pub(crate) async fn apply<T: Serialize + DeserializeOwned + Sync>(
        &self,
        kind: &ApiKind,
        owner: Option<(&Owner, Adopt<'_>)>,
        key: &ObjectKey,
        desired: &T,
    ) -> Result<T, Error> {
        let cache = self.owned(kind, key.namespace());
        self.synced(&cache).await?;
        let (api, live) = (kind.resource(), self.live(&cache, kind, key).await?);
        let options = match owner {
            Some((owner, adopt)) => ApplyOptions { owner: Some(owner), adopt, ..ApplyOptions::default() },
            None => ApplyOptions::default(),
        };
        let options = ApplyOptions { namespace: key.namespace(), ..options };
        let object = match self.writer.apply(api, live.as_deref(), desired, options).await? {
            Applied::Unchanged => live.ok_or_else(|| Error::new(NO_CACHED_OBJECT))?,
            Applied::Created(object) | Applied::Updated(object) => {
                self.wrote(api, &object)?;
                object
            }
        };
        Ok(object.decode()?)
    }

    /// The child of this key, created if the cache has none. If another writer creates it meanwhile, the create is
    /// refused, and the reconcile is retried after a short pause with what is there then.
    pub(crate) async fn create_once<T: Serialize + DeserializeOwned>(
        &self,
        kind: &ApiKind,
        owner: &Owner,
        key: &ObjectKey,
        object: &T,
    ) -> Result<T, Error> {
        let cache = self.owned(kind, key.namespace());
        self.synced(&cache).await?;
        match self.live(&cache, kind, key).await? {
            Some(there) => Ok(there.decode()?),
            None => self.create(kind, owner, key.namespace(), object).await,
        }
    }

    /// Creates a child in a namespace, and watches its kind from now on.
    pub(crate) async fn create<T: Serialize + DeserializeOwned>(
        &self,
        kind: &ApiKind,
        owner: &Owner,
        namespace: Option<&str>,
        object: &T,
    ) -> Result<T, Error> {
        // The kind is watched before there is a child of it, so that no change of the child is missed.
        let cache = self.owned(kind, namespace);
        self.synced(&cache).await?;
        let (api, mut config) = (kind.resource(), serde_json::to_value(object)?);
        config["apiVersion"] = api.api_version.as_str().into();
        config["kind"] = api.kind.as_str().into();
        if let Some(namespace) = namespace {
            config["metadata"]["namespace"] = namespace.into();
        }
        // A generated name is not known yet, and only the namespace decides whether there can be an owner reference.
        let name = config["metadata"]["name"].as_str().unwrap_or_default();
        owner.put_into(&ObjectKey::new(namespace, name), &mut config)?;
        let created = self.writer.create(api, &config).await?;
        self.caches.wrote(api, &created.to_string())?;
        Ok(serde_json::from_value(created)?)
    }

    /// Patches an object.
    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        patch: Patch,
    ) -> Result<T, Error> {
        let failed = |source| PatchError { kind: kind.name().to_owned(), key: key.clone(), source };
        let patched = self.writer.patch(kind.resource(), key, "", patch).await.map_err(failed)?;
        self.caches.wrote(kind.resource(), &patched.to_string())?;
        Ok(serde_json::from_value(patched)?)
    }

    /// Applies all children of a set, then deletes those of the set's kinds that are no longer in it.
    pub(crate) async fn apply_all(
        &self,
        (owner, adopt): (&Owner, Adopt<'_>),
        set: &str,
        kinds: &[ApiKind],
        children: Vec<DesiredChild>,
    ) -> Result<Converged, Error> {
        let add = |caches: &mut Vec<Cache>, cache: Cache| {
            if caches.iter().all(|known| known.target() != cache.target()) {
                caches.push(cache);
            }
        };
        let mut members = Vec::new();
        for kind in kinds {
            let mut caches = vec![self.owned(kind, owner.key.namespace())];
            let keys = || children.iter().filter(|child| child.kind == *kind).map(|child| &child.key);
            for key in keys() {
                add(&mut caches, self.owned(kind, key.namespace()));
            }
            for cache in &caches {
                self.synced(cache).await?;
            }
            // Former children may lie where none is desired now. Caches that are not filled are left out, because a
            // namespace may be one that cannot be watched; a former child that is seen later reconciles its owner.
            for cache in self.owned_anywhere(kind).into_iter().filter(Cache::is_synced) {
                add(&mut caches, cache);
            }
            for cache in caches {
                cache.add_index(OWNER_LABEL, |object| {
                    object.label(OWNER_LABEL).map(Cow::into_owned).into_iter().collect()
                });
                let found = cache.by_index(OWNER_LABEL, &owner.uid).into_iter();
                // Desired children are not pruned, so they need not be parsed as members.
                let others = found.filter(|object| !keys().any(|key| *key == object.key()));
                members.extend(others.map(|object| Member { api: kind.resource().clone(), live: object.value() }));
            }
        }
        let mut desired = Vec::new();
        for DesiredChild { kind, key, config } in children {
            let live = self.live(&self.owned(&kind, key.namespace()), &kind, &key).await?;
            desired.push(Child { api: kind.resource().clone(), config, live });
        }
        let mut noted = Ok(());
        // The caches are told at once: a later child may fail, or the reconcile may be cut off.
        let note = |step: SetStep<'_>| {
            let done = match step {
                SetStep::Applied(api, applied) => applied.object().map_or(Ok(()), |object| self.wrote(api, object)),
                SetStep::Pruned(member, deleted) => self.deleted(&member.api, &member.live, deleted),
            };
            if noted.is_ok() {
                noted = done;
            }
        };
        let report = self.writer.apply_all(set, owner, adopt, desired, &members, note).await?;
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

    /// Tells the caches what the server answered to a write, so that the next read sees it.
    pub(crate) fn wrote(&self, api: &ApiResource, object: &Arc<Object>) -> Result<(), Error> {
        Ok(self.caches.wrote_object(api, object)?)
    }

    /// Records an event about a reconciled object.
    pub(crate) fn record(
        &self,
        object: &Object,
        severity: Severity,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Result<(), Error> {
        let subject = Subject::of(self.kind.resource(), &object.value())?;
        self.metrics.event_recorded(severity);
        self.recorder.record(&Arc::new(subject), Event::new(severity, reason, message));
        Ok(())
    }

    /// One object: from the cache of a watched kind, else from the server.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        kind: &ApiKind,
        key: &ObjectKey,
        absence: Absence,
    ) -> Result<Option<T>, Error> {
        let knowing = self.knowing(kind, key.namespace());
        // An object is absent if every cache says so: the one that heard of an own write need not be the first.
        let mut is_absent = !knowing.is_empty() && absence == Absence::Believed;
        for cache in knowing {
            match self.synced(&cache).await {
                // A rule that allows to read an object need not allow to watch all of them.
                Err(error) if error.get_reason() == FORBIDDEN => is_absent = false,
                filled => {
                    filled?;
                    match cache.look_up(key) {
                        LookUp::Here(object) => return Ok(Some(object.decode()?)),
                        LookUp::Elsewhere => is_absent = false,
                        LookUp::Absent => {}
                    }
                }
            }
        }
        if is_absent {
            return Ok(None);
        }
        let found = self.writer.get(kind.resource(), key).await?;
        Ok(found.map(serde_json::from_value).transpose()?)
    }

    /// The objects of a kind in a namespace, or in all watched ones, that a selector selects. The kind is watched from now
    /// on, and its cache answers, unless the cache's word that something is absent is not enough.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        kind: &ApiKind,
        namespace: Option<&str>,
        selector: &LabelSelector,
        absence: Absence,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for (watched, cache) in self.caches_for_list(kind, namespace) {
            found.extend(match absence {
                Absence::Believed => {
                    self.synced(&cache).await?;
                    cache.list(namespace, selector)
                }
                Absence::Doubted => list_from_server(&self.client, kind, watched, selector).await?,
            });
        }
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// The same for the objects that an index finds under a value.
    pub(crate) async fn list_by_index<T: DeserializeOwned>(
        &self,
        kind: &ApiKind,
        namespace: Option<&str>,
        (index, value): (&str, &str),
        absence: Absence,
    ) -> Result<Vec<T>, Error> {
        let index = self.indexes.get(kind, index)?;
        let is_inside = |object: &Arc<Object>| namespace.is_none() || object.namespace() == namespace;
        let mut found = Vec::new();
        for (watched, cache) in self.caches_for_list(kind, namespace) {
            match absence {
                Absence::Believed => {
                    self.synced(&cache).await?;
                    found.extend(index.find(&cache, value).into_iter().filter(is_inside));
                }
                Absence::Doubted => {
                    let everything = LabelSelector::default();
                    let all = list_from_server(&self.client, kind, watched, &everything).await?;
                    found.extend(all.into_iter().filter(|object| index.finds(object, value)));
                }
            }
        }
        found.iter().map(|object| Ok(object.decode()?)).collect()
    }

    /// The caches that a list reads, watched from now on, each with the namespace that it watches.
    fn caches_for_list<'a>(&'a self, kind: &ApiKind, namespace: Option<&'a str>) -> Vec<(Option<&'a str>, Cache)> {
        let namespaces = if namespace.is_some() { vec![namespace] } else { self.watched_namespaces(kind) };
        let cache = |namespace| self.watched(kind, namespace).unwrap_or_else(|| self.everything(kind, namespace));
        namespaces.into_iter().map(|namespace| (namespace, cache(namespace))).collect()
    }

    /// The cache of all objects of a kind, watched from now on. With shards that is more than this instance's part of them.
    fn everything(&self, kind: &ApiKind, namespace: Option<&str>) -> Cache {
        match self.caches.is_divided() {
            true => self.controller.watch(self.target(kind, namespace), self.owner_trigger(kind)),
            false => self.owned(kind, namespace),
        }
    }

    /// Deletes one object; that there is none is fine.
    pub(crate) async fn delete(&self, kind: &ApiKind, key: &ObjectKey, absence: Absence) -> Result<(), Error> {
        let (api, watched) = (kind.resource(), self.knowing(kind, key.namespace()));
        let (mut live, mut is_known) = (None, !watched.is_empty());
        for cache in &watched {
            self.synced(cache).await?;
            match cache.look_up(key) {
                LookUp::Here(object) => live = live.or_else(|| Some(object.value())),
                LookUp::Elsewhere => is_known = false,
                LookUp::Absent => {}
            }
        }
        if live.is_none() && (!is_known || absence == Absence::Doubted) {
            live = self.writer.get(api, key).await?;
        }
        match live {
            Some(live) => {
                let deleted = self.writer.delete(api, &live).await?;
                self.deleted(api, &live, &deleted)
            }
            None => Ok(()),
        }
    }

    /// Tells the caches how a delete ended, so that the next read sees it.
    fn deleted(&self, api: &ApiResource, live: &Value, deleted: &Deleted) -> Result<(), Error> {
        match deleted {
            Deleted::Terminating(object) => Ok(self.caches.wrote(api, &object.to_string())?),
            Deleted::Gone | Deleted::NotFound => {
                let text = |path: &str| live.pointer(path).and_then(Value::as_str);
                let name = text("/metadata/name").unwrap_or_default();
                let key = ObjectKey::new(text("/metadata/namespace"), name);
                self.caches.removed(api, &key, text("/metadata/uid").unwrap_or_default());
                Ok(())
            }
            Deleted::AlreadyTerminating => Ok(()),
        }
    }
}
