//! The spine of path A: one kind, what wakes its objects, and who works on them. In: targets to watch, triggers and a
//! reconciler. Out: reconciles, until it is told to stop; then what runs is let finish, and the rest stays undone.
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
use crate::queue::{Priority, Queue, QueueOptions, QueueStats, Wakeup};
use crate::trigger::{Cause, Predicate, Trigger, What, Which};
use crate::watch::Target;
use crate::worker::{Meter, Reconciler, Worker};

/// How long a reconcile may take to come to an await, where it can be cut.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// How often reconciles are looked for that do not end when their time is over.
const LOOK_FOR_STUCK: Duration = Duration::from_secs(5);

/// How a controller works.
#[derive(Clone)]
pub struct ControllerOptions {
    /// How many objects are worked on at the same time. Not unbounded: an API server has its limits, too.
    pub concurrency: usize,
    /// How long one reconcile may take.
    pub timeout: Option<Duration>,
    /// How often every object is looked at although nothing happened to it; never, if it is zero.
    pub resync: Option<Duration>,
    /// How long running reconciles may go on after a stop was asked.
    pub drain: Duration,
    /// Backoff, ageing, rate.
    pub queue: QueueOptions,
    /// Which changes of the objects themselves count; deletions and the start of one always do.
    pub predicate: Predicate,
    /// The objects whose changes go before those of others.
    pub urgent: Option<Which>,
    /// Who is told about the work.
    pub meter: Arc<dyn Meter>,
    /// Of how many objects the newest runs are kept for whoever asks; each takes a few kilobytes.
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
    /// The objects themselves, at least one cache of them.
    primaries: Vec<Cache>,
    caches: Caches,
    queue: Queue<Arc<Cause>>,
    history: Arc<History>,
    /// Of the workers.
    liveness: Arc<Liveness>,
    options: ControllerOptions,
    /// What is watched besides the objects themselves, with a subscription for each trigger.
    watched: Mutex<Vec<(Cache, Subscription)>>,
    /// The subscriptions to the objects themselves.
    itself: Mutex<Vec<Subscription>>,
}

impl Controller {
    /// A controller of the objects of `target`.
    pub fn new(name: &str, target: Target, caches: Caches, options: ControllerOptions) -> Arc<Self> {
        Self::over(name, target, [], caches, options)
    }

    /// A controller of the objects of one target and of others of the same kind, such as those in some namespaces: one
    /// queue and one set of workers for all of them.
    pub fn over(
        name: &str,
        target: Target,
        others: impl IntoIterator<Item = Target>,
        caches: Caches,
        options: ControllerOptions,
    ) -> Arc<Self> {
        let queue = Queue::new(&options.queue);
        let weak = queue.downgrade();
        options.meter.queue(Box::new(move || weak.upgrade().map(|queue| queue.stats())));
        Arc::new(Self {
            name: name.into(),
            primaries: std::iter::once(target).chain(others).map(|target| caches.open(target)).collect(),
            caches,
            queue,
            history: Arc::new(History::keeping(options.history)),
            liveness: Arc::new(Liveness::of(format!("a worker of {name}"))),
            options,
            watched: Mutex::default(),
            itself: Mutex::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects it is about; those of the first target, if there are several.
    pub fn primary(&self) -> &Cache {
        &self.primaries[0]
    }

    /// The objects it is about, by target.
    pub fn primaries(&self) -> &[Cache] {
        &self.primaries
    }

    /// The cache that an object is in, or would be.
    pub fn primary_of(&self, key: &ObjectKey) -> &Cache {
        let inside = |cache: &&Cache| cache.target().namespace.as_deref() == key.namespace();
        self.primaries.iter().find(inside).unwrap_or(self.primary())
    }

    /// Why its newest reconciles ran.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether its workers are alive, and if not, why: one panicked, and no reconcile has ended since.
    pub fn liveness(&self) -> Result<(), String> {
        self.liveness.check()
    }

    /// How its queue is doing.
    pub fn queue(&self) -> QueueStats {
        self.queue.stats()
    }

    /// Watches another kind: `trigger` says whom its changes wake. A target may have several triggers; it is watched once.
    pub fn watch(&self, target: Target, trigger: Trigger) -> Cache {
        let (cache, subscription) = self.watch_while(target, trigger);
        self.watched.lock().push((cache.clone(), subscription));
        cache
    }

    /// The same for as long as the subscription is kept.
    pub fn watch_while(&self, target: Target, trigger: Trigger) -> (Cache, Subscription) {
        let cache = self.caches.open(target);
        let subscription = self.subscribe(&cache, trigger);
        (cache, subscription)
    }

    /// Asks for a reconcile of an object, as if it had changed.
    pub fn wake(&self, key: &ObjectKey, cause: Cause) {
        add(&self.queue, key, Wakeup::new(Priority::Change, Arc::new(cause)));
    }

    /// Works until `stop` resolves. Then nothing new is begun, what runs may finish within the drain time, and what does
    /// not is cut off at an await: before a request, or while it waits for the answer to one. A server takes a request
    /// as a whole or not at all, so nothing is left half-written.
    pub async fn run(&self, reconciler: Arc<dyn Reconciler>, stop: impl Future<Output = ()> + Send) {
        let trigger =
            Trigger::itself(self.kind()).when(self.options.predicate.clone()).urgent(self.options.urgent.clone());
        *self.itself.lock() = self.primaries.iter().map(|cache| self.subscribe(cache, trigger.clone())).collect();
        let mut stop = std::pin::pin!(stop);
        let synced = async {
            let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
            for cache in self.primaries.iter().chain(&others) {
                cache.synced().await;
            }
        };
        tokio::select! {
            () = synced => {
                tracing::info!(controller = &*self.name, "the caches are filled; the work begins");
                self.options.meter.ready();
            }
            () = &mut stop => {
                self.queue.stop();
                return self.leave();
            }
        }
        let (cut, told) = watch::channel(false);
        let worker = Worker {
            name: self.name.clone(),
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
        self.queue.stop();
        let mut ended = async |within| {
            let all = async { while workers.join_next().await.is_some() {} };
            tokio::time::timeout(within, all).await.is_ok()
        };
        if !ended(self.options.drain).await {
            tracing::warn!(controller = &*self.name, "reconciles that did not end in time are cut");
            cut.send_replace(true);
            if !ended(CUT_WITHIN).await {
                // Nobody can end a thread; whoever waits for it would wait for ever.
                tracing::error!(controller = &*self.name, "a reconcile blocks its thread and is left behind");
                workers.detach_all();
            }
        }
        self.leave();
    }

    /// Nobody is told of changes any more.
    fn leave(&self) {
        self.itself.lock().clear();
        self.watched.lock().clear();
    }

    /// Starts another worker for each that panicked; never ends. After a pause: one that panics whatever it does would
    /// otherwise be all that the process does.
    async fn replace_dead(&self, workers: &mut JoinSet<()>, worker: Worker) {
        loop {
            // Without a panic no worker ends before the queue is closed.
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

    /// Wakes every object now and then; never ends.
    async fn resync(&self) {
        // Without a pause nothing else would be done.
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
                // They are many, and what changes meanwhile goes first.
                tokio::task::consume_budget().await;
            }
        }
    }

    /// Says which reconciles are past their timeout and have not ended; never ends. They block their thread, where nobody
    /// can end them, and whoever runs the operator would only see that an object is left alone.
    async fn report_stuck(&self) {
        let Some(timeout) = self.options.timeout else { return std::future::pending().await };
        let mut said: Vec<ObjectKey> = Vec::new();
        loop {
            tokio::time::sleep(LOOK_FOR_STUCK).await;
            let stuck = self.queue.overdue(timeout + LOOK_FOR_STUCK);
            said.retain(|key| stuck.iter().any(|(stuck, _)| stuck == key));
            for (key, ran) in stuck {
                if !said.contains(&key) {
                    tracing::error!(controller = &*self.name, %key, ?ran, "a reconcile is past its timeout and blocks its thread; use tokio::task::spawn_blocking for what blocks");
                    said.push(key);
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
            for wakeup in trigger.wakeups(&change) {
                add(&queue, &wakeup.key, Wakeup::new(wakeup.priority, wakeup.cause));
            }
        })
    }
}

/// Adds a key. The queue holds as many keys as there are objects and is closed only when nobody works any more, so nothing
/// is refused that would be missed.
fn add(queue: &Queue<Arc<Cause>>, key: &ObjectKey, wakeup: Wakeup<Arc<Cause>>) {
    let _ = queue.add(key, wakeup);
}
