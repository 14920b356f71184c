//! The spine of path A: one kind, what wakes its objects, and the workers that reconcile them. In: targets to watch, triggers
//! and a reconciler. Out: reconciles, until it is asked to stop. Then running reconciles may finish, and nothing new begins.
//!
//! ```text
//! cache.subscribe → trigger.wakeups → queue.add → worker → reconciler
//! ```

use std::sync::Arc;
use std::time::Duration;

use konverge_core::{LabelSelector, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cache::{Cache, Caches, Change, Subscription};
use crate::history::{self, History};
use crate::liveness::Liveness;
use crate::meter::Meter;
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
            meter: Arc::new(()),
            history: history::KEYS,
        }
    }
}

/// Watches objects of one kind and whatever concerns them, and reconciles those that something happened to.
pub struct Controller {
    name: Arc<str>,
    /// The caches of the reconciled objects, at least one.
    primaries: Vec<Cache>,
    caches: Caches,
    queue: Queue<Arc<Cause>>,
    history: Arc<History>,
    /// Whether the workers are alive.
    liveness: Arc<Liveness>,
    options: ControllerOptions,
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
        let primaries = std::iter::once(target).chain(others).map(open).collect();
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
        &self.primaries[0]
    }

    /// The caches of the reconciled objects, one a target.
    pub fn primaries(&self) -> &[Cache] {
        &self.primaries
    }

    /// The cache that an object of this key is in, or would be in.
    pub fn primary_of(&self, key: &ObjectKey) -> &Cache {
        let inside = |cache: &&Cache| cache.target().namespace.as_deref() == key.namespace();
        self.primaries.iter().find(inside).unwrap_or(self.primary())
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
        let mut waiting: Vec<String> = self.primaries.iter().chain(&others).filter_map(Cache::waiting_for).collect();
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
    /// one, so a source that is faster than the workers takes no memory.
    pub fn wake(&self, key: &ObjectKey, cause: Cause) {
        add(&self.queue, key, Wakeup::new(Priority::Change, Arc::new(cause)));
    }

    /// Waits until the caches are filled, then reconciles until `stop` resolves. After that nothing new begins; running
    /// reconciles may finish within the drain time, and those that do not are cut off at an await: before a request, or
    /// while they wait for the answer to one. A server carries a request out as a whole or not at all, so nothing is left
    /// half-written.
    pub async fn run(&self, reconciler: Arc<dyn Reconciler>, stop: impl Future<Output = ()> + Send) {
        let trigger =
            Trigger::itself(self.kind()).when(self.options.predicate.clone()).urgent(self.options.urgent.clone());
        *self.own.lock() = self.primaries.iter().map(|cache| self.subscribe(cache, trigger.clone())).collect();
        let mut stop = std::pin::pin!(stop);
        let synced = async {
            let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
            for cache in self.primaries.iter().chain(&others) {
                cache.synced().await;
            }
        };
        tokio::select! {
            () = synced => {
                tracing::info!(controller = &*self.name, "the caches are filled; reconciling begins");
                self.options.meter.ready();
            }
            () = &mut stop => {
                self.queue.shutdown_now();
                return self.unsubscribe();
            }
        }
        let (cut, told) = watch::channel(false);
        let worker = Worker {
            controller: self.name.clone(),
            queue: self.queue.clone(),
            reconciler,
            timeout: self.options.timeout,
            cut: told,
            meter: self.options.meter.clone(),
            history: self.history.clone(),
            liveness: self.liveness.clone(),
        };
        let mut workers = JoinSet::new();
        for _ in 0..self.options.concurrency.max(1) {
            workers.spawn(worker.clone().work());
        }
        tokio::select! {
            () = self.replace_dead(&mut workers, worker) => {}
            () = self.resync() => {}
            () = self.report_stuck() => {}
            () = stop => {}
        }
        self.queue.shutdown_now();
        let mut ended = async |within| {
            let all = async { while workers.join_next().await.is_some() {} };
            tokio::time::timeout(within, all).await.is_ok()
        };
        if !ended(self.options.drain).await {
            tracing::warn!(controller = &*self.name, "cutting off reconciles that did not end within the drain time");
            cut.send_replace(true);
            if !ended(CUT_WITHIN).await {
                // A thread cannot be ended from outside, and waiting for it could take for ever.
                tracing::error!(controller = &*self.name, "a reconcile blocks its thread; shutting down without it");
                workers.detach_all();
            }
        }
        self.unsubscribe();
    }

    /// Ends all subscriptions: changes wake nothing any more.
    fn unsubscribe(&self) {
        self.own.lock().clear();
        self.watched.lock().clear();
    }

    /// Starts another worker for each that panicked, after a pause; never ends. Without the pause, a worker that panics at
    /// once would keep the process busy.
    async fn replace_dead(&self, workers: &mut JoinSet<()>, worker: Worker) {
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
    async fn resync(&self) {
        // A period of zero would keep the process busy with resyncs.
        let period = self.options.resync.filter(|period| !period.is_zero());
        let Some(period) = period else { return std::future::pending().await };
        loop {
            tokio::time::sleep(period).await;
            let kind = self.kind();
            let all = |cache: &Cache| cache.list(None, &LabelSelector::default());
            for object in self.primaries.iter().flat_map(all) {
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
    }

    /// Logs which reconciles are past their timeout and have not ended; never ends. Such a reconcile blocks its thread, so it
    /// cannot be ended, and without the log line people would only see that nothing happens to an object.
    async fn report_stuck(&self) {
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
        let queue = self.queue.clone();
        cache.subscribe(move |change: Change| {
            for (key, wakeup) in trigger.wakeups(&change) {
                add(&queue, &key, wakeup);
            }
        })
    }
}

/// Adds a key. The queue refuses a key only after it was shut down, when nothing is reconciled any more, so the answer does
/// not matter.
fn add(queue: &Queue<Arc<Cause>>, key: &ObjectKey, wakeup: Wakeup<Arc<Cause>>) {
    let _ = queue.add(key, wakeup);
}
