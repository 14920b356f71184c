//! The spine of path A: one kind, what wakes its objects, and the workers that reconcile them. In: targets to watch, triggers
//! and a reconciler. Out: reconciles, until it is asked to stop. Then running reconciles may finish, and nothing new begins.
//!
//! ```text
//! cache.subscribe → trigger.wakeups → queue.add → worker → reconciler
//! ```
//!
//! `controller/sharded` is the same for an instance that reconciles a part of the objects.

mod sharded;

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{LabelSelector, ObjectKey};
use konverge_leadership::{Leadership, Shards};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cache::{Cache, Caches, Change, Subscription};
use crate::failure_log::FailureLog;
use crate::history::{self, History};
use crate::liveness::Liveness;
use crate::meter::Meter;
use crate::object::Object;
use crate::ownership::{Ownership, Primaries, ReadShards, ShardedObjects, WakeupFilter};
use crate::queue::{Priority, Queue, QueueOptions, QueueStats, Wakeup};
use crate::reconciler::Reconciler;
use crate::trigger::{Cause, ObjectFilter, Predicate, Trigger, What};
use crate::watch::Target;
use crate::worker::Worker;

/// How long a reconcile that is cut off may take to reach its next await.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// How often the controller looks for reconciles that are past their timeout and have not ended.
const STUCK_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How a controller works.
#[derive(Clone)]
pub struct ControllerOptions {
    /// How many objects are reconciled at the same time. Not unbounded: an API server has its limits, too.
    pub concurrency: usize,
    /// How long one reconcile may take.
    pub timeout: Option<Duration>,
    /// How often every object is reconciled although nothing changed; never, if it is none or zero.
    pub resync: Option<Duration>,
    /// How long running reconciles may go on after the controller was asked to stop.
    pub drain: Duration,
    /// Backoff, ageing, rate.
    pub queue: QueueOptions,
    /// Which changes of the objects themselves count; deletions and the start of one always do.
    pub predicate: Predicate,
    /// The objects whose changes go before those of others.
    pub urgent: Option<ObjectFilter>,
    /// Whether this instance leads. Watches work without it; wakeups are queued and reconciles run only in a term.
    pub leadership: Leadership,
    /// The shards that the objects are divided into, if they are. Then only the objects of shards that this instance holds are reconciled,
    /// each in the term of its shard, and [`ControllerOptions::leadership`] is not asked.
    pub shards: Option<Shards>,
    /// Told about the work.
    pub meter: Arc<dyn Meter>,
    /// The newest runs of this many objects are kept for people who ask; each object takes a few kilobytes.
    pub history: usize,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            concurrency: 10,
            timeout: Some(Duration::from_secs(60)),
            resync: None,
            drain: Duration::from_secs(10),
            queue: QueueOptions::default(),
            predicate: Predicate::always(),
            urgent: None,
            leadership: Leadership::always(""),
            shards: None,
            meter: Arc::new(()),
            history: history::KEYS,
        }
    }
}

/// Why reconciling ended.
enum Ended {
    /// This instance does not lead any more.
    TermOver,
    /// The controller was asked to stop.
    Stopped,
}

/// Watches objects of one kind and whatever concerns them, and reconciles those that something happened to.
pub struct Controller {
    name: Arc<str>,
    /// The caches of the reconciled objects.
    primaries: Primaries,
    caches: Caches,
    queue: Queue<Arc<Cause>>,
    history: Arc<History>,
    /// Whether the workers are alive.
    liveness: Arc<Liveness>,
    options: ControllerOptions,
    /// The number of the term that was held before the first subscription. No wakeup was dropped for as long as that term goes on.
    first_term: Option<u64>,
    /// The shards whose objects are in the caches, if objects are divided.
    read: ReadShards,
    /// What is watched besides the reconciled objects, with a subscription for each trigger.
    watched: Mutex<Vec<(Cache, Subscription)>>,
    /// The subscriptions to the reconciled objects.
    own: Mutex<Vec<Subscription>>,
}

impl Controller {
    /// A controller of the objects of `target`.
    pub fn new(name: &str, target: Target, caches: Caches, options: ControllerOptions) -> Arc<Self> {
        Self::over(name, target, [], caches, options)
    }

    /// A controller of the objects of several targets of one kind, such as the objects in some namespaces. They share one
    /// queue and one set of workers.
    pub fn over(
        name: &str,
        target: Target,
        others: impl IntoIterator<Item = Target>,
        caches: Caches,
        options: ControllerOptions,
    ) -> Arc<Self> {
        let open = |target| {
            let cache = caches.open(target);
            cache.add_user(name);
            cache
        };
        let primaries = Primaries::new(std::iter::once(target).chain(others).map(open));
        let queue = Queue::new(&options.queue);
        let weak = queue.downgrade();
        options.meter.queue(Box::new(move || weak.upgrade().map(|queue| queue.stats())));
        Arc::new(Self {
            name: name.into(),
            primaries,
            caches,
            queue,
            history: Arc::new(History::keeping(options.history)),
            liveness: Arc::new(Liveness::of(format!("a worker of {name}"))),
            read: ReadShards::new(options.shards.as_ref().map_or(0, Shards::count)),
            first_term: options.leadership.term().map(|term| term.number),
            options,
            watched: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// The name of the controller, in logs and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cache of the reconciled objects; of the first target, if there are several.
    pub fn primary(&self) -> &Cache {
        &self.primaries.all()[0]
    }

    /// The caches of the reconciled objects, one a target.
    pub fn primaries(&self) -> &[Cache] {
        self.primaries.all()
    }

    /// The cache that an object of this key is in, or would be in.
    pub fn primary_of(&self, key: &ObjectKey) -> &Cache {
        self.primaries.of(key)
    }

    /// Why the newest reconciles ran.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether the workers are alive. If not, a worker panicked and no reconcile has ended since; the text says why.
    pub fn liveness(&self) -> Result<(), String> {
        self.liveness.check()
    }

    /// The caches that are not filled yet, each as a sentence that says what it waits for. Reconciles begin when there are
    /// none.
    pub fn waiting_for(&self) -> Vec<String> {
        let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
        let mut waiting: Vec<String> = self.primaries().iter().chain(&others).filter_map(Cache::waiting_for).collect();
        // A kind is watched in several namespaces, or for several triggers.
        waiting.sort();
        waiting.dedup();
        waiting
    }

    /// What the queue holds and has done so far.
    pub fn queue(&self) -> QueueStats {
        self.queue.stats()
    }

    /// Watches another kind. `trigger` says which objects its changes wake. A target may have several triggers; it is
    /// watched once.
    pub fn watch(&self, target: Target, trigger: Trigger) -> Cache {
        let (cache, subscription) = self.watch_while(target, trigger);
        self.watched.lock().push((cache.clone(), subscription));
        cache
    }

    /// Watches another kind for as long as the subscription is kept.
    pub fn watch_while(&self, target: Target, trigger: Trigger) -> (Cache, Subscription) {
        let cache = self.caches.open(target);
        cache.add_user(&self.name);
        let subscription = self.subscribe(&cache, trigger);
        (cache, subscription)
    }

    /// Asks for a reconcile of an object, as if it had changed. This is how triggers outside of the cluster work: the cause
    /// is [`What::Triggered`] then and names the source. Never waits, and wakeups of one object that has not run yet are
    /// one, so a source that is faster than the workers takes no memory. While another instance leads, or holds the object's shard, it is
    /// that instance's to reconcile.
    pub fn wake(&self, key: &ObjectKey, cause: Cause) {
        let filter = self.wakeup_filter();
        if filter.takes_some() && filter.takes(key) {
            add(&self.queue, key, Wakeup::new(Priority::Change, Arc::new(cause)));
        }
    }

    /// Waits until the caches are filled, then reconciles whenever this instance leads, until `stop` resolves. After that nothing new
    /// begins; running reconciles may finish within the drain time, and those that do not are cut off at an await: before a request,
    /// or while they wait for the answer to one. A server carries a request out as a whole or not at all, so nothing is left
    /// half-written.
    ///
    /// When a term ends, running reconciles are cut off at once. Their keys and all others stay queued, the caches stay filled, and the
    /// next term of this instance begins with a reconcile of every object: another instance may have left any of them half done. So
    /// wakeups between two terms, and before the first one, are dropped: objects that come and go under a standby take no memory.
    pub async fn run(&self, reconciler: Arc<dyn Reconciler>, stop: impl Future<Output = ()> + Send) {
        let trigger =
            Trigger::itself(self.kind()).when(self.options.predicate.clone()).urgent(self.options.urgent.clone());
        *self.own.lock() = self.primaries().iter().map(|cache| self.subscribe(cache, trigger.clone())).collect();
        let mut stop = std::pin::pin!(stop);
        let synced = async {
            let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
            for cache in self.primaries().iter().chain(&others) {
                cache.synced().await;
            }
        };
        tokio::select! {
            () = synced => self.options.meter.ready(),
            () = &mut stop => return self.stop(),
        }
        if let Some(objects) = self.sharded() {
            self.reconcile_shards(&objects, &reconciler, &mut stop).await;
            return self.stop();
        }
        loop {
            let term = tokio::select! {
                term = self.options.leadership.begun() => term,
                () = &mut stop => return self.stop(),
            };
            tracing::info!(controller = &*self.name, "the caches are filled; reconciling begins");
            // A wakeup that was dropped is made good here: it was dropped before this term began, and its object was in the cache by then.
            if self.first_term != Some(term.number) {
                self.wake_all().await;
            }
            let over = self.options.leadership.ended(&term);
            let ownership = Ownership::All(self.options.leadership.clone(), term);
            if let Ended::Stopped = self.reconcile_in(ownership, &reconciler, over, &mut stop).await {
                return self.stop();
            }
            tracing::warn!(controller = &*self.name, "this instance does not lead any more; reconciling pauses");
        }
    }

    /// Reconciles until the term is over or the controller ends. When it returns, no reconcile runs but for one that blocks its thread.
    async fn reconcile_in(
        &self,
        ownership: Ownership,
        reconciler: &Arc<dyn Reconciler>,
        over: impl Future<Output = ()> + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Ended {
        let (cut, told) = watch::channel(false);
        let worker = Worker {
            controller: self.name.clone(),
            queue: self.queue.clone(),
            reconciler: reconciler.clone(),
            timeout: self.options.timeout,
            ownership,
            cut: told,
            meter: self.options.meter.clone(),
            history: self.history.clone(),
            liveness: self.liveness.clone(),
            failures: Arc::new(FailureLog::new(Instant::now())),
        };
        let mut workers = JoinSet::new();
        for _ in 0..self.options.concurrency.max(1) {
            workers.spawn(worker.clone().work());
        }
        let mut over = std::pin::pin!(over);
        let ended = tokio::select! {
            ended = self.replace_dead(&mut workers, worker) => ended,
            ended = self.resync() => ended,
            ended = self.report_stuck() => ended,
            () = &mut over => Ended::TermOver,
            () = stop => Ended::Stopped,
        };
        let mut all_ended = async |within| {
            let all = async { while workers.join_next().await.is_some() {} };
            tokio::time::timeout(within, all).await.is_ok()
        };
        if let Ended::Stopped = ended {
            self.queue.shutdown_now();
            let drained = tokio::select! {
                drained = all_ended(self.options.drain) => drained,
                () = over => false,
            };
            if drained {
                return ended;
            }
            tracing::warn!(controller = &*self.name, "cutting off reconciles that did not end within the drain time");
        }
        cut.send_replace(true);
        if !all_ended(CUT_WITHIN).await {
            // A thread cannot be ended from outside, and waiting for it could take for ever.
            tracing::error!(controller = &*self.name, "a reconcile blocks its thread; going on without it");
            workers.detach_all();
        }
        ended
    }

    /// Ends the queue and all subscriptions.
    fn stop(&self) {
        self.queue.shutdown_now();
        self.unsubscribe();
    }

    /// Ends all subscriptions: changes wake nothing any more.
    fn unsubscribe(&self) {
        self.own.lock().clear();
        self.watched.lock().clear();
    }

    /// Starts another worker for each that panicked, after a pause; never ends. Without the pause, a worker that panics at
    /// once would keep the process busy.
    async fn replace_dead(&self, workers: &mut JoinSet<()>, worker: Worker) -> Ended {
        loop {
            // Without a panic no worker ends before the queue is shut down.
            let Some(Err(ended)) = workers.join_next().await else { return std::future::pending().await };
            let panic = ended.try_into_panic();
            tokio::time::sleep(panic.map_or(Duration::ZERO, |panic| self.liveness.panicked(&*panic))).await;
            let mut dead = 1;
            while workers.try_join_next().is_some() {
                dead += 1;
            }
            for _ in 0..dead {
                workers.spawn(worker.clone().work());
            }
        }
    }

    /// Wakes every object once a resync period; never ends.
    async fn resync(&self) -> Ended {
        // A period of zero would keep the process busy with resyncs.
        let period = self.options.resync.filter(|period| !period.is_zero());
        let Some(period) = period else { return std::future::pending().await };
        loop {
            tokio::time::sleep(period).await;
            self.wake_all().await;
        }
    }

    /// Wakes every object.
    async fn wake_all(&self) {
        match self.sharded() {
            Some(objects) => self.wake_those(|object| objects.shards.is_open(objects.shards.of(object.uid()))).await,
            None => self.wake_those(|_| true).await,
        }
    }

    /// Wakes some objects.
    async fn wake_those(&self, which: impl Fn(&Object) -> bool) {
        let kind = self.kind();
        let all = |cache: &Cache| cache.list(None, &LabelSelector::default());
        for object in self.primaries().iter().flat_map(all).filter(|object| which(object)) {
            let cause = Cause {
                kind: kind.clone(),
                key: object.key(),
                what: What::Resync,
                resource_version: object.resource_version().to_owned(),
            };
            let key = cause.key.clone();
            add(&self.queue, &key, Wakeup::new(Priority::Resync, Arc::new(cause)));
            // There may be many objects, and other tasks want to run.
            tokio::task::consume_budget().await;
        }
    }

    /// Logs which reconciles are past their timeout and have not ended; never ends. Such a reconcile blocks its thread, so it
    /// cannot be ended, and without the log line people would only see that nothing happens to an object.
    async fn report_stuck(&self) -> Ended {
        let Some(timeout) = self.options.timeout else { return std::future::pending().await };
        let mut logged: Vec<ObjectKey> = Vec::new();
        loop {
            tokio::time::sleep(STUCK_CHECK_INTERVAL).await;
            let stuck = self.queue.overdue(timeout + STUCK_CHECK_INTERVAL);
            logged.retain(|key| stuck.iter().any(|(stuck, _)| stuck == key));
            for (key, ran) in stuck {
                if !logged.contains(&key) {
                    tracing::error!(controller = &*self.name, %key, ?ran, "a reconcile is past its timeout and blocks its thread; use tokio::task::spawn_blocking for what blocks");
                    logged.push(key);
                }
            }
        }
    }

    fn kind(&self) -> Arc<str> {
        self.primary().target().resource.kind.as_str().into()
    }

    fn subscribe(&self, cache: &Cache, trigger: Trigger) -> Subscription {
        let (queue, filter) = (self.queue.clone(), self.wakeup_filter());
        cache.subscribe(move |change: Change| {
            if !filter.takes_some() {
                return;
            }
            for (key, wakeup) in trigger.wakeups(&change) {
                if filter.takes(&key) {
                    add(&queue, &key, wakeup);
                }
            }
        })
    }

    /// Which wakeups are queued.
    fn wakeup_filter(&self) -> WakeupFilter {
        match self.sharded() {
            Some(objects) => WakeupFilter::Shards(objects),
            None => WakeupFilter::Leader(self.options.leadership.clone()),
        }
    }

    /// The shards of the objects, if they are divided.
    fn sharded(&self) -> Option<ShardedObjects> {
        let shards = self.options.shards.clone()?;
        Some(ShardedObjects { shards, primaries: self.primaries.clone(), read: self.read.clone() })
    }
}

/// Adds a key. The queue refuses a key only after it was shut down, when nothing is reconciled any more, so the answer does
/// not matter.
fn add(queue: &Queue<Arc<Cause>>, key: &ObjectKey, wakeup: Wakeup<Arc<Cause>>) {
    let _ = queue.add(key, wakeup);
}
