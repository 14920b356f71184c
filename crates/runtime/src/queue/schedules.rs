//! The shell under many schedules. The same scenarios run twice: under loom, which tries every order in which few
//! threads can take the lock, and under shuttle, which tries random orders of more threads: a thousand for each
//! scenario, or as many as `SCHEDULES` says. A wakeup that is lost shows as a deadlock, which both find; a key handed
//! out twice as a failed check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use konverge_core::ObjectKey;

use super::{Added, Backoff, Priority, QueueOptions, Requeue, Wakeup};

const TICK: Duration = Duration::from_millis(10);

/// Failing keys come back after a tick; no jitter, which would differ from one schedule to the next.
fn options() -> QueueOptions {
    let backoff = Backoff { initial: TICK, max: TICK, jitter: 0.0, ..Backoff::default() };
    QueueOptions { backoff, ..QueueOptions::default() }
}

/// What is known of a key besides the queue. These are not the model checker's: they are no part of what is checked.
#[derive(Default)]
struct Object {
    running: AtomicBool,
    /// Wakeups so far: each change of the object has a number.
    changed: AtomicUsize,
    /// The newest of them that the queue took.
    woken: AtomicUsize,
    /// The newest of them that the last reconcile can have seen.
    seen: AtomicUsize,
    runs: AtomicUsize,
}

#[derive(Default)]
struct Cluster {
    objects: [Object; 3],
    finished: AtomicUsize,
}

impl Cluster {
    fn object(&self, key: &ObjectKey) -> &Object {
        &self.objects[key.name().parse::<usize>().expect("keys are numbers here")]
    }

    fn start(&self, key: &ObjectKey) {
        let object = self.object(key);
        assert!(!object.running.swap(true, SeqCst), "{key} runs twice at a time");
        object.seen.store(object.changed.load(SeqCst), SeqCst);
        object.runs.fetch_add(1, SeqCst);
    }

    /// To be called before the job is finished: afterwards somebody else may have the key.
    fn end(&self, key: &ObjectKey) {
        assert!(self.object(key).running.swap(false, SeqCst));
        self.finished.fetch_add(1, SeqCst);
    }

    fn check_nothing_lost(&self) {
        for (n, object) in self.objects.iter().enumerate() {
            let (woken, seen) = (object.woken.load(SeqCst), object.seen.load(SeqCst));
            assert!(seen >= woken, "object {n} was woken by change {woken}, its last reconcile saw {seen}");
        }
    }

    fn check_nothing_needless(&self) {
        for (n, object) in self.objects.iter().enumerate() {
            let (changed, runs) = (object.changed.load(SeqCst), object.runs.load(SeqCst));
            assert!(runs <= changed, "object {n} changed {changed} times and was reconciled {runs} times");
        }
    }
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(None, &n.to_string())
}

/// The scenarios, over the locks and threads of one model checker.
macro_rules! scenarios {
    ($checker:ident) => {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};
        use std::time::Instant;

        use $checker::future::block_on;
        use $checker::sync::{Condvar, Mutex};
        use $checker::thread;

        use super::super::platform::{Lock, Platform};
        use super::super::{Job, Queue};
        use super::*;

        pub(crate) struct Guarded<T>(Mutex<T>);

        impl<T> Lock<T> for Guarded<T> {
            fn new(value: T) -> Self {
                Self(Mutex::new(value))
            }

            fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
                act(&mut self.0.lock().expect("no test panics and goes on"))
            }
        }

        /// A clock that stands still until it is turned. Its own lock is none of the model checker's: every use of it
        /// is next to one of the queue's, where threads are switched.
        #[derive(Clone)]
        pub(crate) struct World(Arc<std::sync::Mutex<Clock>>);

        struct Clock {
            now: Instant,
            sleepers: Vec<(Instant, Waker)>,
        }

        impl World {
            fn new() -> Self {
                Self(Arc::new(std::sync::Mutex::new(Clock { now: Instant::now(), sleepers: Vec::new() })))
            }

            fn turn(&self, by: Duration) {
                let due: Vec<Waker> = {
                    let mut clock = self.0.lock().expect("no test panics and goes on");
                    clock.now += by;
                    let now = clock.now;
                    clock.sleepers.extract_if(.., |(at, _)| *at <= now).map(|(_, waker)| waker).collect()
                };
                due.into_iter().for_each(Waker::wake);
            }
        }

        pub(crate) struct Sleep(World, Instant);

        impl Future for Sleep {
            type Output = ();

            fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                // Copied before the lock: to copy a waker may switch threads.
                let waker = cx.waker().clone();
                let mut clock = self.0.0.lock().expect("no test panics and goes on");
                if clock.now < self.1 {
                    clock.sleepers.push((self.1, waker));
                    return Poll::Pending;
                }
                drop(clock);
                drop(waker);
                Poll::Ready(())
            }
        }

        impl Platform for World {
            type Lock<T: Send> = Guarded<T>;
            type Sleep = Sleep;

            fn now(&self) -> Instant {
                self.0.lock().expect("no test panics and goes on").now
            }

            fn sleep_until(&self, at: Instant) -> Sleep {
                Sleep(self.clone(), at)
            }

            fn proceed<R>(&self, cx: &mut Context<'_>, act: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
                act(cx)
            }
        }

        /// One run: a queue, its clock, the objects.
        #[derive(Clone)]
        struct Scene {
            world: World,
            queue: Queue<(), World>,
            cluster: Arc<Cluster>,
        }

        impl Scene {
            fn new() -> Self {
                let world = World::new();
                Self { queue: Queue::on(world.clone(), &options()), world, cluster: Arc::default() }
            }

            /// Changes an object, then wakes its key.
            fn add(&self, n: usize, after: Option<Duration>) {
                let object = &self.cluster.objects[n];
                let change = object.changed.fetch_add(1, SeqCst) + 1;
                let added = self.queue.add(&key(n), Wakeup { priority: Priority::Change, after, cause: () });
                if added != Added::Closed {
                    object.woken.fetch_max(change, SeqCst);
                }
            }

            fn reconcile(&self, job: Job<'_, (), World>, requeue: Option<Requeue>) {
                self.run(&job);
                match requeue {
                    Some(requeue) => _ = job.done(requeue),
                    None => drop(job),
                }
            }

            fn run(&self, job: &Job<'_, (), World>) {
                self.cluster.start(job.key());
                // Gives the others a chance while it runs.
                thread::yield_now();
                self.cluster.end(job.key());
            }

            /// A worker until the queue ends, as it works in earnest: it exchanges one job for the next.
            fn work(&self) {
                let mut ready = None;
                while let Some(job) = ready.take().or_else(|| block_on(self.queue.get())) {
                    self.run(&job);
                    ready = job.done_and_get(Requeue::Forget, self.world.now()).1;
                }
            }

            /// A worker that closes the queue once this many reconciles have finished, and every key was seen.
            fn work_until(&self, finished: usize) {
                while let Some(job) = block_on(self.queue.get()) {
                    self.reconcile(job, Some(Requeue::Forget));
                    if self.cluster.finished.load(SeqCst) >= finished {
                        self.queue.shutdown();
                    }
                }
            }

            fn spawn(&self, act: impl FnOnce(Scene) + Send + 'static) -> thread::JoinHandle<()> {
                let scene = self.clone();
                thread::spawn(move || act(scene))
            }
        }

        fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
            threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
        }

        /// Wakeups from two threads while a worker works: each is seen by a reconcile, none runs next to another.
        pub(crate) fn wakeups_race_with_a_worker(keys: usize) {
            let scene = Scene::new();
            let worker = scene.spawn(|scene| scene.work());
            let other = scene.spawn(|scene| scene.add(0, None));
            scene.add(keys - 1, None);
            join([other]);
            scene.queue.shutdown();
            join([worker]);
            scene.cluster.check_nothing_lost();
            scene.cluster.check_nothing_needless();
        }

        /// Some workers, some keys, nobody but the queue to wake them.
        pub(crate) fn workers_share(workers: usize, keys: usize) {
            let scene = Scene::new();
            let workers: Vec<_> = (0..workers).map(|_| scene.spawn(|scene| scene.work())).collect();
            (0..keys).for_each(|n| scene.add(n, None));
            scene.queue.shutdown();
            join(workers);
            scene.cluster.check_nothing_lost();
            scene.cluster.check_nothing_needless();
        }

        /// A worker looks, finds nothing, and gives up, perhaps just when it was called: another gets the key.
        pub(crate) fn a_call_for_one_that_left_is_passed_on() {
            let scene = Scene::new();
            let leaver = scene.spawn(|scene| {
                block_on(async {
                    let mut next = pin!(scene.queue.get());
                    let first = std::future::poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
                    if let Poll::Ready(Some(job)) = first {
                        scene.reconcile(job, Some(Requeue::Forget));
                        scene.queue.shutdown();
                    }
                });
            });
            let stayer = scene.spawn(|scene| scene.work_until(1));
            scene.add(0, None);
            join([leaver, stayer]);
            scene.cluster.check_nothing_lost();
        }

        /// Keys that wait for a time, and one that does not, for two workers: whoever watches the clock may take the
        /// one that is ready, and then the other has to watch it.
        pub(crate) fn somebody_always_watches_the_clock(last: Duration) {
            let scene = Scene::new();
            let workers = [scene.spawn(|scene| scene.work_until(3)), scene.spawn(|scene| scene.work_until(3))];
            scene.add(0, Some(TICK * 2));
            scene.add(1, Some(last));
            scene.add(2, None);
            scene.world.turn(TICK * 2);
            join(workers);
            scene.cluster.check_nothing_lost();
            scene.cluster.check_nothing_needless();
        }

        /// Whoever watches the clock gets the first key, and does not end before the second: the other has to watch it.
        pub(crate) fn a_long_reconcile_does_not_stop_the_clock() {
            let scene = Scene::new();
            let second = Arc::new((Mutex::new(false), Condvar::new()));
            let worker = |_| {
                let second = Arc::clone(&second);
                scene.spawn(move |scene| {
                    let job = block_on(scene.queue.get()).expect("nobody closes it");
                    let (done, called) = &*second;
                    if job.key() == &key(1) {
                        *done.lock().expect("no test panics and goes on") = true;
                        called.notify_all();
                    } else {
                        let mut done = done.lock().expect("no test panics and goes on");
                        while !*done {
                            done = called.wait(done).expect("no test panics and goes on");
                        }
                    }
                    job.done(Requeue::Forget);
                })
            };
            let workers: Vec<_> = (0..2).map(worker).collect();
            scene.add(0, Some(TICK));
            scene.add(1, Some(TICK * 2));
            scene.world.turn(TICK);
            scene.world.turn(TICK);
            join(workers);
        }

        /// A job that is dropped comes back after its backoff, to the worker that sleeps.
        pub(crate) fn a_dropped_job_comes_back() {
            let scene = Scene::new();
            scene.add(0, None);
            let job = block_on(scene.queue.get()).expect("it is open");
            let worker = scene.spawn(|scene| scene.work_until(2));
            scene.reconcile(job, None);
            scene.world.turn(TICK);
            join([worker]);
            assert_eq!(scene.cluster.objects[0].runs.load(SeqCst), 2);
        }

        /// Closing while wakeups come in: what was taken is reconciled, what was refused is said to be, and whoever
        /// waits for the end sees it.
        pub(crate) fn closing_races_with_wakeups() {
            let scene = Scene::new();
            let worker = scene.spawn(|scene| scene.work());
            let closer = scene.spawn(|scene| {
                scene.queue.shutdown();
                block_on(scene.queue.drained());
                assert!(scene.cluster.objects.iter().all(|object| !object.running.load(SeqCst)));
            });
            scene.add(0, None);
            scene.add(0, None);
            join([worker, closer]);
            scene.cluster.check_nothing_lost();
        }
    };
}

mod exhaustive {
    scenarios!(loom);

    /// Every order in which the threads can take the lock, as far as it needs at most two switches of threads that
    /// nothing forces; `LOOM_MAX_PREEMPTIONS` allows more.
    fn check(scenario: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        check_with(model, scenario);
    }

    /// Every order without exception; for two threads.
    fn check_all(scenario: impl Fn() + Send + Sync + 'static) {
        check_with(loom::model::Builder::new(), scenario);
    }

    fn check_with(model: loom::model::Builder, scenario: impl Fn() + Send + Sync + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        model.check(move || {
            counted.fetch_add(1, SeqCst);
            scenario();
        });
        println!("{} schedules", count.load(SeqCst));
    }

    #[test]
    fn wakeups_of_one_key_race_with_a_worker() {
        check(|| wakeups_race_with_a_worker(1));
    }

    #[test]
    fn wakeups_of_two_keys_race_with_a_worker() {
        check(|| wakeups_race_with_a_worker(2));
    }

    #[test]
    fn one_worker_takes_two_keys() {
        check_all(|| workers_share(1, 2));
    }

    #[test]
    fn two_workers_share_one_key() {
        check(|| workers_share(2, 1));
    }

    #[test]
    fn a_call_for_one_that_left_goes_to_another() {
        check(a_call_for_one_that_left_is_passed_on);
    }

    #[test]
    fn the_clock_is_watched_for_an_earlier_key() {
        check(|| somebody_always_watches_the_clock(TICK));
    }

    #[test]
    fn the_clock_is_watched_during_a_long_reconcile() {
        check(a_long_reconcile_does_not_stop_the_clock);
    }

    #[test]
    fn a_job_that_was_dropped_comes_back() {
        check_all(a_dropped_job_comes_back);
    }

    #[test]
    fn closing_and_waking_at_once() {
        check(closing_races_with_wakeups);
    }
}

mod random {
    scenarios!(shuttle);

    /// Random orders: half of them any, half of them with few but badly placed switches.
    fn check(scenario: impl Fn() + Clone + Send + Sync + 'static) {
        let count: usize = std::env::var("SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000);
        shuttle::check_random(scenario.clone(), count.div_ceil(2));
        shuttle::check_pct(scenario, count.div_ceil(2), 3);
    }

    #[test]
    fn wakeups_of_two_keys_race_with_a_worker() {
        check(|| wakeups_race_with_a_worker(2));
    }

    #[test]
    fn two_workers_share_three_keys() {
        check(|| workers_share(2, 3));
    }

    #[test]
    fn a_call_for_one_that_left_goes_to_another() {
        check(a_call_for_one_that_left_is_passed_on);
    }

    #[test]
    fn the_clock_is_watched_for_an_earlier_key() {
        check(|| somebody_always_watches_the_clock(TICK));
    }

    #[test]
    fn the_clock_is_watched_for_keys_due_together() {
        check(|| somebody_always_watches_the_clock(TICK * 2));
    }

    #[test]
    fn the_clock_is_watched_during_a_long_reconcile() {
        check(a_long_reconcile_does_not_stop_the_clock);
    }

    #[test]
    fn a_job_that_was_dropped_comes_back() {
        check(a_dropped_job_comes_back);
    }

    #[test]
    fn closing_and_waking_at_once() {
        check(closing_races_with_wakeups);
    }

    /// Everything at once: three threads wake three keys, three workers fail, give up, ask again and are cancelled.
    #[test]
    fn a_busy_queue_loses_nothing() {
        check(|| {
            let scene = Scene::new();
            let workers: Vec<_> = (0..3)
                .map(|n| {
                    scene.spawn(move |scene| {
                        let outcomes =
                            [Some(Requeue::RateLimited), Some(Requeue::After(TICK)), None, Some(Requeue::GiveUp)];
                        let mut outcomes = outcomes.into_iter().skip(n);
                        while let Some(job) = block_on(scene.queue.get()) {
                            scene.reconcile(job, outcomes.next().unwrap_or(Some(Requeue::Forget)));
                        }
                    })
                })
                .collect();
            let producers: Vec<_> = (0..3)
                .map(|n| {
                    scene.spawn(move |scene| {
                        scene.add(n, None);
                        scene.add((n + 1) % 3, Some(TICK));
                        scene.world.turn(TICK);
                    })
                })
                .collect();
            join(producers);
            // What is due when the queue is closed is still served, and by now every wakeup is due.
            scene.world.turn(TICK);
            scene.queue.shutdown();
            join(workers);
            scene.cluster.check_nothing_lost();
        });
    }
}
