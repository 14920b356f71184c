//! Caches of watched objects: informers and listers in client-go's words. In: what watches bring, and our own writes. Out:
//! objects by key, selector and index, and changes for subscribers. Never asks the server what a watch answers, and never
//! makes a watch wait for a reader.

mod change;
mod decode_cache;
mod index;
mod layer;
mod mailbox;
mod shard_part;
mod sink;
mod state;
mod typed;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use konverge_core::{FieldSelector, LabelSelector, ObjectKey};
use konverge_leadership::Shards;
use kube::Client;
use kube::api::ApiResource;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use tokio::sync::{Notify, watch as channel};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::liveness::{Liveness, quietly};
use crate::object::{Mode, Object, ParseError};
use crate::watch::{self, Target, WatchSettings, WatchState};

pub use change::{Change, Origin};
pub use decode_cache::DecodeCache;
pub use shard_part::{LookUp, ShardPart};
pub use typed::CacheOf;

use index::{Function, Indexed, Sums};
use mailbox::Mailbox;
use shard_part::Keeper;
use state::State;

/// All caches of a process. Clones share them. A target that is opened twice is watched once.
#[derive(Clone)]
pub struct Caches(Arc<Registry>);

struct Registry {
    client: Client,
    settings: WatchSettings,
    /// The shards, if caches keep only what belongs to those that this instance holds.
    shards: Option<Shards>,
    /// A cache that is not used any more has ended its watch; its entry goes when somebody opens another.
    open: Mutex<HashMap<Target, Weak<Shared>>>,
    /// Changed and read under the lock of `open`.
    is_shut_down: AtomicBool,
}

/// The objects of one target, kept up to date by a watch. Clones share it; the watch ends with the last of them.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

/// What the handles of a cache share. The watch has only what is in `Core`, so that it does not keep itself alive.
struct Shared {
    core: Arc<Core>,
    /// The watch, and what keeps a cache of a part of the objects complete.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

struct Core {
    target: Target,
    labels: LabelSelector,
    fields: FieldSelector,
    /// Which objects are kept in full, if not all.
    keeper: Option<Keeper>,
    state: RwLock<State>,
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
    /// Told whenever the watch has brought something.
    progress: Notify,
    watch: channel::Sender<WatchState>,
    restarts: AtomicU64,
    unreadable: AtomicU64,
    liveness: Liveness,
    /// The names of the controllers that use the cache.
    users: Mutex<BTreeSet<String>>,
}

struct Subscriber {
    mailbox: Mailbox,
}

/// A subscription to the changes of a cache. Changes are handed out, and the watch goes on, until this is dropped.
#[must_use = "nobody is told of changes once this is dropped"]
pub struct Subscription {
    _cache: Cache,
    subscriber: Arc<Subscriber>,
    task: AbortHandle,
}

/// The watch did not bring what was waited for in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache of {kind} did not catch up within {waited:?}")]
pub struct NotCaughtUp {
    /// Of what kind.
    pub kind: String,
    /// How long.
    pub waited: Duration,
}

/// Figures of a cache, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// How many objects.
    pub objects: usize,
    /// How many bytes they take.
    pub bytes: usize,
    /// How many of our own writes the watch has not brought yet.
    pub ahead: usize,
    /// How many changes wait for slow subscribers.
    pub waiting: usize,
    /// How often the watch had to be tried again.
    pub restarts: u64,
    /// How many objects came without a name.
    pub unreadable: u64,
}

impl Caches {
    /// No caches yet.
    pub fn new(client: Client, settings: WatchSettings) -> Self {
        Self::over(client, settings, None)
    }

    /// No caches yet. Those of a [`ShardPart`] keep only what belongs to the shards that this instance holds.
    pub fn divided(client: Client, settings: WatchSettings, shards: Shards) -> Self {
        Self::over(client, settings, Some(shards))
    }

    fn over(client: Client, settings: WatchSettings, shards: Option<Shards>) -> Self {
        let (open, is_shut_down) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(Registry { client, settings, shards, open, is_shut_down }))
    }

    /// Whether caches of a [`ShardPart`] keep only what belongs to the shards that this instance holds.
    pub fn is_divided(&self) -> bool {
        self.0.shards.is_some()
    }

    /// Caches that keep everything are the same, whoever asks for a part.
    fn target(&self, target: Target) -> Target {
        match &self.0.shards {
            Some(_) => target,
            None => target.part(ShardPart::Everything),
        }
    }

    /// The cache of a target. Its watch is started if nobody has it open. Needs to be called within a tokio runtime.
    ///
    /// A selector that does not parse is left to the server, which refuses it: the cache's state says so. After
    /// [`Caches::shutdown`] nothing new is watched: such a cache is empty, and its state is [`WatchState::Stopped`].
    pub fn open(&self, target: Target) -> Cache {
        let target = self.target(target);
        let mut open = self.0.open.lock();
        if let Some(shared) = open.get(&target).and_then(Weak::upgrade) {
            return Cache(shared);
        }
        open.retain(|_, shared| shared.strong_count() > 0);
        let core = Arc::new(Core::new(target.clone(), self.0.shards.as_ref()));
        if self.0.is_shut_down.load(Ordering::Relaxed) {
            core.watch.send_replace(WatchState::Stopped);
            return Cache(Arc::new(Shared { core, tasks: Mutex::default() }));
        }
        let (client, settings) = (self.0.client.clone(), self.0.settings.clone());
        let mut tasks = Vec::new();
        if core.keeper.is_some() {
            tasks.push(tokio::spawn(shard_part::keep_complete(core.clone(), client.clone(), settings.clone())));
        }
        tasks.push(tokio::spawn(watch::watch(target.clone(), client, settings, core.clone())));
        let shared = Arc::new(Shared { core, tasks: Mutex::new(tasks) });
        open.insert(target, Arc::downgrade(&shared));
        Cache(shared)
    }

    /// The cache of a target, if it is in use.
    pub fn find(&self, target: &Target) -> Option<Cache> {
        self.0.open.lock().get(&self.target(target.clone())).and_then(Weak::upgrade).map(Cache)
    }

    /// The caches that are in use.
    pub fn all(&self) -> Vec<Cache> {
        self.0.open.lock().values().filter_map(Weak::upgrade).map(Cache).collect()
    }

    /// We wrote an object, and this is the JSON the server answered with: reads see it from now on.
    pub fn wrote(&self, resource: &ApiResource, json: &str) -> Result<(), ParseError> {
        let caches = self.of(resource);
        if caches.is_empty() {
            return Ok(());
        }
        notify_caches(&caches, &Arc::new(Object::parse(resource, json, Mode::Full)?), json)
    }

    /// The same for an answer that was read already. A cache with managedFields shows it without them until the watch
    /// brings them.
    pub fn wrote_object(&self, resource: &ApiResource, object: &Arc<Object>) -> Result<(), ParseError> {
        notify_caches(&self.of(resource), object, object.json())
    }

    /// We deleted an object and it is gone at once: reads no longer see it. If it is still being deleted, because of
    /// finalizers or a grace period, the server answers with the object, and [`Caches::wrote`] is for that.
    pub fn removed(&self, resource: &ApiResource, key: &ObjectKey, uid: &str) {
        for cache in self.of(resource) {
            cache.removed(key, uid);
        }
    }

    /// Whether all watches are alive; what is wrong with the first that is not. One that cannot reach its server is alive.
    pub fn liveness(&self) -> Result<(), String> {
        self.all().iter().try_for_each(Cache::liveness)
    }

    /// Those of a kind.
    fn of(&self, resource: &ApiResource) -> Vec<Cache> {
        self.all().into_iter().filter(|cache| cache.is_of(resource)).collect()
    }

    /// Ends all watches and waits until they have ended. What is cached stays readable, and no watch is started any more.
    pub async fn shutdown(&self) {
        {
            let _open = self.0.open.lock();
            self.0.is_shut_down.store(true, Ordering::Relaxed);
        }
        for cache in self.all() {
            cache.stop().await;
        }
    }
}

/// Tells caches of one kind what was written: each keeps as much of it as it keeps of all.
fn notify_caches(caches: &[Cache], object: &Arc<Object>, json: &str) -> Result<(), ParseError> {
    for cache in caches {
        let Target { resource, mode, .. } = cache.target();
        match mode {
            Mode::Full => cache.0.core.wrote(object, object.clone()),
            mode => cache.0.core.wrote(object, Arc::new(Object::parse(resource, json, *mode)?)),
        }
    }
    Ok(())
}

impl Cache {
    /// What is cached.
    pub fn target(&self) -> &Target {
        &self.0.core.target
    }

    /// One object; nothing if there is none. Sees what we have written, even before the watch brings it.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.0.core.state.read().get(key).cloned()
    }

    /// The objects in a namespace, or in all of them, that a selector selects, in no order.
    pub fn list(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Arc<Object>> {
        // Labels are read after the lock is given back: a long list must not hold up the watch.
        let mut found: Vec<Arc<Object>> = match namespace {
            Some(namespace) => self.0.core.state.read().iter_in(namespace).cloned().collect(),
            None => self.0.core.state.read().iter().cloned().collect(),
        };
        if !selector.is_everything() {
            found.retain(|object| object.matches(selector));
        }
        found
    }

    /// The objects whose owner has this uid.
    pub fn by_owner(&self, uid: &str) -> Vec<Arc<Object>> {
        self.by_index(index::OWNERS, uid)
    }

    /// The objects an index finds under a value. Nothing if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Object>> {
        self.0.core.state.read().by_index(name, value).unwrap_or_default()
    }

    /// Adds an index: `values` says under which values an object is found. It is asked once for each version of an object,
    /// while nothing is locked. An index of that name that is there already stays as it is.
    pub fn add_index(&self, name: &str, values: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static) {
        let state = &self.0.core.state;
        // It is asked for far more often than it is new, and readers need not wait for that.
        if state.read().index(name).is_some() {
            return;
        }
        let function = Function { name: name.into(), values: Arc::new(values), summer: state.read().summer() };
        // Objects with their sums, so that no address is used again meanwhile.
        let mut known: HashMap<usize, (Arc<Object>, Sums)> = HashMap::new();
        loop {
            let is_new = |object: &&Arc<Object>| !known.contains_key(&layer::address(object));
            let new: Vec<Arc<Object>> = state.read().kept().filter(is_new).cloned().collect();
            let sums = |object: &Object| if object.is_stub() { Sums::None } else { function.of(object) };
            known.extend(new.into_iter().map(|object| (layer::address(&object), (object.clone(), sums(&object)))));
            let mut state = state.write();
            if state.index(name).is_some() {
                return;
            }
            // What came meanwhile is looked at first; each time that is less.
            if state.kept().all(|object| known.contains_key(&layer::address(object))) {
                return state.add_index(function, |object| known[&layer::address(object)].1.clone());
            }
        }
    }

    /// Whether everything that was there at the start is here.
    pub fn is_synced(&self) -> bool {
        self.0.core.state.read().is_synced()
    }

    /// Waits until everything that was there at the start is here. For ever, if the watch never succeeds: see
    /// [`Cache::state`] for why.
    pub async fn synced(&self) {
        self.0.core.until(|state| state.is_synced()).await;
    }

    /// How the watch is doing.
    pub fn state(&self) -> WatchState {
        self.0.core.watch.borrow().clone()
    }

    /// How the watch is doing, as it changes.
    pub fn states(&self) -> channel::Receiver<WatchState> {
        self.0.core.watch.subscribe()
    }

    /// Notes that a controller uses the cache: what the watch logs then names the controller.
    pub fn add_user(&self, controller: &str) {
        self.0.core.users.lock().insert(controller.to_owned());
    }

    /// What the cache waits for until it is filled, with the reason if there is one: `Widget of example.com/v1: …`. `None`
    /// once it is filled.
    pub fn waiting_for(&self) -> Option<String> {
        if self.is_synced() {
            return None;
        }
        let ApiResource { kind, api_version, .. } = &self.target().resource;
        let why = match self.state() {
            WatchState::Starting => "the server has not responded yet".to_owned(),
            WatchState::Listing | WatchState::Live => "its list is being read".to_owned(),
            WatchState::NotInstalled(why) | WatchState::Forbidden(why) | WatchState::Failing(why) => why,
            WatchState::Stopped => "its watch has ended".to_owned(),
        };
        Some(format!("{kind} of {api_version}: {why}"))
    }

    /// Whether the watch is alive, and if not, why: it panicked, and no list went through since.
    pub fn liveness(&self) -> Result<(), String> {
        self.0.core.liveness.check()
    }

    /// Figures for metrics.
    pub fn figures(&self) -> CacheFigures {
        let core = &self.0.core;
        let waiting = core.subscribers.lock().iter().filter_map(Weak::upgrade).map(|to| to.mailbox.len()).sum();
        let state = core.state.read();
        CacheFigures {
            objects: state.len(),
            bytes: state.bytes(),
            ahead: state.ahead(),
            waiting,
            restarts: core.restarts.load(Ordering::Relaxed),
            unreadable: core.unreadable.load(Ordering::Relaxed),
        }
    }

    /// Tells `handler` of every change from now on, beginning with all objects that are here: of each change once, of our own
    /// writes when they are made. In order for each object; a handler that is slow is told the sum of what it missed. It runs on a task of its own, so it may take its time,
    /// and if it panics it loses that change only. Needs to be called within a tokio runtime.
    pub fn subscribe(&self, mut handler: impl FnMut(Change) + Send + 'static) -> Subscription {
        let core = &self.0.core;
        let subscriber = Arc::new(Subscriber { mailbox: Mailbox::default() });
        {
            // Under the lock the watch writes with: nothing comes between what is here and what is told.
            let state = core.state.write();
            let here = state.iter().map(|object| Change::created(object.clone(), Origin::Initial));
            subscriber.mailbox.push(here);
            core.subscribers.lock().push(Arc::downgrade(&subscriber));
        }
        let (told, kind) = (subscriber.clone(), core.target.resource.kind.clone());
        let task = tokio::spawn(async move {
            loop {
                for change in told.mailbox.next().await {
                    let key = change.key();
                    if std::panic::catch_unwind(AssertUnwindSafe(|| handler(change))).is_err() {
                        quietly(|| tracing::error!(kind, %key, "a handler panicked; the change is lost to it"));
                    }
                    tokio::task::consume_budget().await;
                }
            }
        });
        Subscription { _cache: self.clone(), subscriber, task: task.abort_handle() }
    }

    /// We wrote this object: reads see it from now on, until the watch has brought it or something newer.
    pub fn wrote(&self, object: Arc<Object>) {
        self.0.core.wrote(&object, object.clone());
    }

    /// We deleted the object with this uid, and it is gone at once: reads no longer see it.
    pub fn removed(&self, key: &ObjectKey, uid: &str) {
        self.0.core.change(|state, changes| state.removed(key, uid, Instant::now(), changes));
    }

    /// Waits until the watch has brought this version of an object, or something newer.
    pub async fn seen(&self, key: &ObjectKey, version: &str, timeout: Duration) -> Result<(), NotCaughtUp> {
        self.within(timeout, |state| state.has_seen(key, version)).await
    }

    /// Waits until the watch has brought every write of ours to an object.
    pub async fn caught_up(&self, key: &ObjectKey, timeout: Duration) -> Result<(), NotCaughtUp> {
        self.within(timeout, |state| state.is_caught_up(key)).await
    }

    async fn within(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> Result<(), NotCaughtUp> {
        let kind = || self.target().resource.kind.clone();
        let waited = tokio::time::timeout(timeout, self.0.core.until(is_so)).await;
        waited.map_err(|_| NotCaughtUp { kind: kind(), waited: timeout })
    }

    fn is_of(&self, resource: &ApiResource) -> bool {
        let own = &self.target().resource;
        (&own.api_version, &own.kind) == (&resource.api_version, &resource.kind)
    }

    async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for task in tasks {
            task.abort();
            // An aborted task has only its cancellation to report.
            let _ = task.await;
        }
        self.0.core.watch.send_replace(WatchState::Stopped);
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target();
        f.debug_struct("Cache").field("target", target).field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
        self.core.watch.send_replace(WatchState::Stopped);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Subscription {
    /// How many objects' changes wait to be told.
    pub fn waiting(&self) -> usize {
        self.subscriber.mailbox.len()
    }
}

impl Core {
    fn new(target: Target, shards: Option<&Shards>) -> Self {
        Self {
            keeper: Keeper::new(target.part, shards),
            labels: LabelSelector::parse(&target.labels).unwrap_or_default(),
            fields: FieldSelector::parse(&target.fields).unwrap_or_default(),
            liveness: Liveness::of(format!("the watch of {}", target.resource.kind)),
            target,
            state: RwLock::new(State::new()),
            subscribers: Mutex::default(),
            progress: Notify::new(),
            watch: channel::Sender::new(WatchState::Starting),
            restarts: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            users: Mutex::default(),
        }
    }

    /// Waits until something is so.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let progress = self.progress.notified();
            let mut progress = std::pin::pin!(progress);
            // Listening comes before looking: what happens in between is heard.
            progress.as_mut().enable();
            if is_so(&self.state.read()) {
                return;
            }
            progress.await;
        }
    }

    /// Changes the state and tells everybody, in one order for all.
    fn change(&self, act: impl FnOnce(&mut State, &mut Vec<Change>)) {
        self.change_locked(self.state.write(), act);
    }

    /// The same for an object that came in, with what indexes find it by.
    fn take(&self, object: Object, act: impl FnOnce(&mut State, Arc<Object>, Indexed, &mut Vec<Change>)) {
        let whole = Arc::new(object);
        let Some(keeper) = &self.keeper else {
            let (state, indexed) = self.lock_for(&whole);
            return self.change_locked(state, |state, changes| act(state, whole, indexed, changes));
        };
        loop {
            let keeps = keeper.keeps(&whole);
            let kept = if keeps { whole.clone() } else { Arc::new(keeper.stub(&self.target, &whole)) };
            let (state, indexed) = self.lock_for(&kept);
            // A shard that came meanwhile has been looked through, and would miss the stub.
            if keeper.keeps(&whole) == keeps {
                return self.change_locked(state, |state, changes| act(state, kept, indexed, changes));
            }
        }
    }

    fn change_locked(&self, mut state: RwLockWriteGuard<'_, State>, act: impl FnOnce(&mut State, &mut Vec<Change>)) {
        let mut changes = Vec::new();
        act(&mut state, &mut changes);
        if !changes.is_empty() {
            let mut subscribers = self.subscribers.lock();
            subscribers.retain(|subscriber| {
                let Some(subscriber) = subscriber.upgrade() else { return false };
                subscriber.mailbox.push(changes.iter().cloned());
                true
            });
        }
        drop(state);
        self.progress.notify_waiters();
    }

    /// Locks the state for an object, and says what indexes find it by. That is asked before: the functions are those of
    /// users, which may take their time and look into this cache. Nothing is asked about a version that is known already.
    fn lock_for(&self, object: &Object) -> (RwLockWriteGuard<'_, State>, Indexed) {
        loop {
            let functions = {
                let state = self.state.read();
                if state.is_known(object) { Arc::default() } else { state.functions() }
            };
            let sums = |function: &Function| if object.is_stub() { Sums::None } else { function.of(object) };
            let indexed: Indexed = functions.iter().map(sums).collect();
            let state = self.state.write();
            // Somebody may have added an index meanwhile.
            if indexed.len() == state.functions().len() || state.is_known(object) {
                return (state, indexed);
            }
        }
    }

    /// `whole` is what was written, and `kept` is as much of it as is kept here.
    fn wrote(&self, whole: &Object, kept: Arc<Object>) {
        let elsewhere = self.target.namespace.is_some() && whole.namespace() != self.target.namespace.as_deref();
        // What belongs to another instance is left to the watch: nobody reads it here.
        if elsewhere || self.keeper.as_ref().is_some_and(|keeper| !keeper.keeps(whole)) {
            return;
        }
        let field = |path: &str| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let text = whole.pointer(&pointer).unwrap_or_default();
            serde_json::from_str::<String>(text).unwrap_or_else(|_| text.to_owned()).into()
        };
        if whole.matches(&self.labels) && self.fields.matches(field) {
            let (state, indexed) = self.lock_for(&kept);
            self.change_locked(state, |state, changes| state.wrote(kept, indexed, Instant::now(), changes));
        } else {
            // It has left what is selected; for whoever looks here it is gone.
            self.change(|state, changes| state.left(whole, Instant::now(), changes));
        }
    }
}
