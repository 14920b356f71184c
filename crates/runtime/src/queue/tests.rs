//! The shell on tokio: its clock is paused where time matters, so that no test waits and none is in a hurry.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Wake;

use futures_util::FutureExt;
use tokio::time::{self, timeout};

use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn options() -> QueueOptions {
    let backoff = Backoff { initial: MILLI * 100, jitter: 0.0, max_retries: Some(2), ..Backoff::default() };
    QueueOptions { backoff, ..QueueOptions::default() }
}

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(Some("default"), &n.to_string())
}

fn add<P: Platform>(queue: &Queue<usize, P>, n: usize, after: Option<Duration>) {
    let added = queue.add(&key(n), Wakeup { priority: Priority::Change, after, cause: n });
    assert!(matches!(added, Added::New | Added::Merged), "{added:?}");
}

async fn next(queue: &Queue<usize>) -> Job<'_, usize> {
    queue.get().await.expect("it is open")
}

/// Milliseconds since `start`, on tokio's clock.
fn since(start: time::Instant) -> u64 {
    start.elapsed().as_millis() as u64
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_when_they_are_due() {
    let (queue, start) = (Queue::new(&options()), time::Instant::now());
    for (n, after) in [(1, 300), (2, 100), (3, 200), (4, 86_400_000)] {
        add(&queue, n, Some(MILLI * after));
    }
    for (n, at) in [(2, 100), (3, 200), (1, 300), (4, 86_400_000)] {
        let job = next(&queue).await;
        assert_eq!((job.key(), since(start), job.waited()), (&key(n), at, Duration::ZERO));
        job.done(Requeue::Forget);
    }
    assert!(queue.get().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_worker_is_woken_for_an_earlier_key() {
    let (queue, start) = (Queue::new(&options()), time::Instant::now());
    add(&queue, 1, Some(MILLI * 1_000));
    let adder = async {
        time::sleep(MILLI * 10).await;
        add(&queue, 2, Some(MILLI * 40));
        time::sleep(MILLI * 60).await;
        add(&queue, 3, None);
    };
    let worker = async {
        for (n, at) in [(2, 50), (3, 70), (1, 1_000)] {
            let job = next(&queue).await;
            assert_eq!((job.key(), since(start)), (&key(n), at));
            job.done(Requeue::Forget);
        }
    };
    tokio::join!(adder, worker);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_waiting_loses_nothing() {
    let queue = Queue::new(&options());
    add(&queue, 1, Some(MILLI * 100));
    for _ in 0..9 {
        assert!(timeout(MILLI * 10, queue.get()).await.is_err());
    }
    add(&queue, 2, None);
    for n in [2, 1] {
        next(&queue).map(|job| assert_eq!(job.key(), &key(n))).await;
        // The job was dropped: that is a failure, and it is not the other key's turn to wait for it.
    }
    assert_eq!(next(&queue).await.attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn outcomes_lead_where_they_say() {
    let (queue, start) = (Queue::new(&options()), time::Instant::now());
    add(&queue, 1, None);
    let finish = async |requeue, at, attempt| {
        let job = next(&queue).await;
        assert_eq!((since(start), job.attempt()), (at, attempt), "{requeue:?}");
        job.done(requeue)
    };
    let waits = |at: u64, failures| Settled::Waits { until: (start + MILLI * at as u32).into_std(), failures };
    assert_eq!(finish(Requeue::RateLimited, 0, 1).await, waits(100, 1));
    assert_eq!(finish(Requeue::NotBefore(MILLI * 500), 100, 2).await, waits(600, 1));
    assert_eq!(finish(Requeue::After(MILLI * 50), 600, 2).await, waits(650, 0));
    assert_eq!(finish(Requeue::GiveUp, 650, 1).await, Settled::GaveUp { failures: 1 });
    assert_eq!(queue.stats().resting, 1);
    add(&queue, 1, None);
    assert_eq!(finish(Requeue::Forget, 650, 1).await, Settled::Idle);
    assert_eq!(queue.stats(), QueueStats { adds: 5, retries: 1, ..QueueStats::default() });
}

#[tokio::test(start_paused = true)]
async fn a_job_is_exchanged_for_the_next_that_is_ready() {
    let queue = Queue::new(&options());
    add(&queue, 1, None);
    add(&queue, 2, None);
    let first = next(&queue).await;
    let now = tokio::time::Instant::now().into_std();
    let (settled, second) = first.done_and_get(Requeue::Forget, now);
    let second = second.expect("another key is ready");
    assert_eq!((settled, second.key()), (Settled::Idle, &key(2)));
    // A key that fails is not its own successor before it is due.
    let (settled, third) = second.done_and_get(Requeue::RateLimited, now);
    assert!(matches!(settled, Settled::Waits { failures: 1, .. }) && third.is_none(), "{settled:?} {third:?}");
    let again = next(&queue).await;
    assert_eq!((again.key(), again.attempt()), (&key(2), 2));
    // One that was woken while it ran is, and the last one out of a closed queue ends everybody's wait.
    add(&queue, 2, None);
    let (settled, again) = again.done_and_get(Requeue::Forget, now);
    assert_eq!((settled, again.as_ref().map(Job::attempt)), (Settled::Ready, Some(1)));
    let ends = queue.clone();
    let waits = tokio::spawn(async move { ends.get().await.is_none() });
    tokio::task::yield_now().await;
    queue.shutdown();
    assert!(again.is_some_and(|again| matches!(again.done_and_get(Requeue::Forget, now), (Settled::Idle, None))));
    assert!(waits.await.expect("it does not panic"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_cancelled_task_fails_the_job_and_no_more() {
    let queue = Queue::new(&options());
    add(&queue, 1, None);
    let job = next(&queue).await;
    let panics = AssertUnwindSafe(async move {
        assert_eq!(job.attempt(), 7, "on purpose");
    });
    assert!(panics.catch_unwind().await.is_err());

    let (other, (took, taken)) = (queue.clone(), tokio::sync::oneshot::channel());
    let task = tokio::spawn(async move {
        let job = next(&other).await;
        took.send(job.attempt()).expect("the test waits for it");
        std::future::pending::<()>().await;
        job.done(Requeue::Forget)
    });
    assert_eq!(taken.await, Ok(2));
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));

    let job = next(&queue).await;
    assert_eq!(job.attempt(), 3);
    assert_eq!(job.done(Requeue::RateLimited), Settled::GaveUp { failures: 3 });
}

#[tokio::test(start_paused = true)]
async fn closing_drains_and_stopping_does_not() {
    let check = async |stop: bool, expect: &[usize]| {
        let queue = Queue::new(&options());
        add(&queue, 1, None);
        let running = next(&queue).await;
        add(&queue, 2, None);
        add(&queue, 3, Some(MILLI));
        add(&queue, 1, None);
        match stop {
            true => queue.shutdown_now(),
            false => queue.shutdown(),
        }
        assert_eq!(queue.add(&key(4), Wakeup::new(Priority::Urgent, 4)), Added::Closed);
        let mut drained = pin!(queue.drained());
        assert!(drained.as_mut().now_or_never().is_none());
        let worker = async {
            let mut taken: Vec<usize> = Vec::new();
            while let Some(job) = queue.get().await {
                taken.push(job.causes().iter().copied().sum());
                job.done(Requeue::RateLimited);
            }
            taken
        };
        let (taken, settled) = tokio::join!(worker, async { running.done(Requeue::After(MILLI)) });
        assert_eq!(settled, if stop { Settled::Idle } else { Settled::Ready });
        assert_eq!(taken, expect);
        drained.await;
        assert!(queue.get().await.is_none());
    };
    check(false, &[2, 1]).await;
    check(true, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn stats_show_what_is_there() {
    let queue = Queue::new(&options());
    for (n, priority) in
        [Priority::Change, Priority::Resync, Priority::Change, Priority::Resync].into_iter().enumerate()
    {
        let _ = queue.add(&key(n), Wakeup::new(priority, n));
    }
    add(&queue, 9, Some(MILLI * 5_000));
    let first = next(&queue).await;
    time::advance(MILLI * 30).await;
    let second = next(&queue).await;
    time::advance(MILLI * 10).await;
    let expect = QueueStats {
        ready: [2, 0, 0, 0],
        waiting: 1,
        running: 2,
        longest_running: Some(MILLI * 40),
        oldest_ready: Some(MILLI * 40),
        adds: 4,
        ..QueueStats::default()
    };
    assert_eq!((queue.stats(), queue.len()), (expect, 2));
    assert_eq!((first.waited(), second.waited(), second.priority()), (Duration::ZERO, MILLI * 30, Priority::Change));
    assert_eq!(queue.overdue(MILLI * 9).len(), 2);
    assert_eq!(queue.overdue(MILLI * 10), [(first.key().clone(), MILLI * 40)]);
    first.done(Requeue::Forget);
    assert_eq!(queue.stats().longest_running, Some(MILLI * 10));
    assert_eq!(queue.overdue(MILLI * 10), []);
    assert!(queue.forget(&key(9)) && !queue.forget(&key(2)));
    assert_eq!(queue.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_rate_spreads_reconciles_over_time() {
    let rate = Some(Rate { every: MILLI * 100, burst: 2 });
    let (queue, start) = (Queue::new(&QueueOptions { rate, ..options() }), time::Instant::now());
    (0..4).for_each(|n| add(&queue, n, None));
    let mut times = Vec::new();
    for _ in 0..4 {
        next(&queue).await.done(Requeue::Forget);
        times.push(since(start));
    }
    assert_eq!(times, [0, 0, 100, 200]);
}

/// A worker whose wakes are counted.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn one_worker_is_woken_for_each_key() {
    let queue = Queue::new(&options());
    let counters: Vec<Arc<Counter>> = (0..8).map(|_| Arc::default()).collect();
    let mut waiting: Vec<_> = (0..8).map(|_| Some(Box::pin(queue.get()))).collect();
    // Everybody who still waits looks; those who got a job are gone.
    let mut look = || {
        let mut jobs = Vec::new();
        for (slot, counter) in waiting.iter_mut().zip(&counters) {
            let waker = counter.clone().into();
            let Some(next) = slot else { continue };
            if let Poll::Ready(job) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
                jobs.extend(job);
                *slot = None;
            }
        }
        jobs
    };
    let woken = || counters.iter().map(|counter| counter.0.swap(0, SeqCst)).sum::<usize>();
    assert_eq!((look().len(), woken()), (0, 0));
    // One key, one worker; the same key again wakes nobody else.
    add(&queue, 1, None);
    add(&queue, 1, None);
    assert_eq!(woken(), 1);
    add(&queue, 2, None);
    add(&queue, 3, None);
    assert_eq!(woken(), 2);
    let jobs = look();
    assert_eq!((jobs.len(), woken()), (3, 0));
    // One to watch the clock; the same one for an earlier time; nobody for a later one.
    for (n, after, expect) in [(4, 100, 1), (5, 50, 1), (6, 200, 0)] {
        add(&queue, n, Some(MILLI * after));
        assert_eq!((woken(), look().len()), (expect, 0), "after {after}");
    }
    // A time that comes wakes the one that watches the clock, and that one somebody to watch it next.
    time::sleep(MILLI * 60).await;
    assert_eq!(woken(), 1);
    assert_eq!((look().len(), woken()), (1, 1));
    // A job that ends wakes nobody, unless its key is due again.
    jobs.into_iter().for_each(|job| _ = job.done(Requeue::Forget));
    assert_eq!((look().len(), woken()), (0, 0));
    // Everybody to hear that it is over.
    queue.shutdown();
    assert_eq!((woken(), look().len()), (4, 0));
}

/// Nothing but this queue in the thread: a worker that always finds a key has to let others run.
#[tokio::test]
async fn a_full_queue_does_not_keep_the_thread() {
    let queue = Queue::new(&options());
    let stop = AtomicBool::new(false);
    let worker = async {
        let mut count = 0u64;
        while !stop.load(SeqCst) {
            add(&queue, 1, None);
            next(&queue).await.done(Requeue::Forget);
            count += 1;
        }
        count
    };
    let other = async {
        tokio::task::yield_now().await;
        stop.store(true, SeqCst);
    };
    let (count, ()) = tokio::join!(worker, other);
    assert!(count < 10_000, "{count} reconciles before anybody else could run");
}

/// Real threads, real time: what controller-runtime's fuzz test of its queue asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_key_is_lost_or_runs_twice() {
    const KEYS: usize = 50;
    let backoff = Backoff { initial: MILLI, max: MILLI * 3, max_retries: None, ..Backoff::default() };
    let queue = Queue::new(&QueueOptions { backoff, ..QueueOptions::default() });
    let running: Arc<Vec<AtomicBool>> = Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect());
    let versions: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let seen: Arc<Mutex<HashMap<usize, usize>>> = Arc::default();
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let (queue, running, versions, seen) = (queue.clone(), running.clone(), versions.clone(), seen.clone());
            tokio::spawn(async move {
                let mut round = worker;
                while let Some(job) = queue.get().await {
                    let n: usize = job.key().name().parse().expect("keys are numbers here");
                    assert!(!running[n].swap(true, SeqCst), "{n} runs twice at a time");
                    let version = versions[n].load(SeqCst);
                    tokio::task::yield_now().await;
                    round += 1;
                    let requeue = match round % 7 {
                        0 => Requeue::RateLimited,
                        1 => Requeue::After(MILLI),
                        _ => Requeue::Forget,
                    };
                    if requeue == Requeue::Forget {
                        seen.lock().expect("nobody panics").insert(n, version);
                    }
                    running[n].store(false, SeqCst);
                    match round % 11 {
                        0 if requeue == Requeue::RateLimited => drop(job),
                        _ => _ = job.done(requeue),
                    }
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (queue, versions) = (queue.clone(), versions.clone());
            tokio::task::spawn_blocking(move || {
                for round in 0..2_000 {
                    let n = (round * 7 + producer * 13) % KEYS;
                    versions[n].fetch_add(1, SeqCst);
                    let after = (round % 5 == 0).then_some(MILLI);
                    let priority = Priority::ALL[round % 4];
                    let _ = queue.add(&key(n), Wakeup { priority, after, cause: round });
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.expect("a producer does not panic");
    }
    let all_seen = || {
        let seen = seen.lock().expect("nobody panics");
        (0..KEYS).all(|n| seen.get(&n) == Some(&versions[n].load(SeqCst)))
    };
    // Every key that is not done yet is in the queue, so it gets there; the limit is for a queue that lost one.
    let wait = async {
        while !all_seen() {
            time::sleep(MILLI).await;
        }
    };
    timeout(Duration::from_secs(30), wait).await.expect("every version of every key is reconciled");
    queue.shutdown_now();
    queue.drained().await;
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
}

#[test]
fn handles_and_jobs_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn sendable<T: Send>(_: &T) {}
    anywhere::<Queue<String>>();
    anywhere::<Job<'_, String>>();
    let queue = Queue::<String>::new(&options());
    let next: Pin<Box<dyn Future<Output = _>>> = Box::pin(queue.get());
    drop(next);
    sendable(&queue.get());
    sendable(&queue.drained());
}
