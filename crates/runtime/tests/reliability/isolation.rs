//! Reconcilers that panic, hang, hoard and block: they harm themselves and nobody else. On real threads and in real time,
//! because a blocked thread stops time for whoever shares it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use konverge_runtime::{
    Action, Backoff, BoxFuture, Cause, ControllerOptions, Error, Meter, QueueOptions, Run, Verdict, What, WorkerMeter,
};
use parking_lot::{Condvar, Mutex};

use crate::faults::{Faults, Random, tries};
use crate::operator::{Hand, Small, eventually, key};

const GOOD: usize = 40;

/// A door that threads wait at.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opens: Condvar,
    waiting: AtomicUsize,
}

impl Door {
    fn wait(&self) {
        self.waiting.fetch_add(1, SeqCst);
        let mut open = self.open.lock();
        while !*open {
            self.opens.wait(&mut open);
        }
        drop(open);
        self.waiting.fetch_sub(1, SeqCst);
    }

    fn set(&self, open: bool) {
        *self.open.lock() = open;
        self.opens.notify_all();
    }
}

/// Counts how reconciles end.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<HashMap<&'static str, usize>>>);

impl Tally {
    fn of(&self, what: &'static str) -> usize {
        self.0.lock().get(what).copied().unwrap_or_default()
    }

    fn count(&self, what: &'static str) {
        *self.0.lock().entry(what).or_default() += 1;
    }
}

impl Meter for Tally {
    fn worker(&self) -> Box<dyn WorkerMeter> {
        self.count("workers");
        Box::new(self.clone())
    }
}

impl WorkerMeter for Tally {
    fn ended(&mut self, verdict: &Verdict, _: Duration) {
        self.count(match verdict {
            Verdict::Panicked { .. } => "panicked",
            Verdict::TimedOut => "timed out",
            Verdict::Failed { .. } | Verdict::GaveUp { .. } => "failed",
            Verdict::Cut => "cut",
            Verdict::Success | Verdict::Requeued => "went well",
            other => panic!("this test does not know {other:?}"),
        });
    }
}

fn options(tally: &Tally) -> ControllerOptions {
    let backoff = Backoff { initial: Duration::from_millis(5), max: Duration::from_millis(20), ..Backoff::default() };
    ControllerOptions {
        concurrency: 8,
        timeout: Some(Duration::from_millis(200)),
        queue: QueueOptions { backoff, ..QueueOptions::default() },
        meter: Arc::new(tally.clone()),
        ..ControllerOptions::default()
    }
}

fn again(small: &Small, name: &str) {
    let cause = Cause { kind: "Test".into(), key: key(name), what: What::Resync, resource_version: String::new() };
    small.controller.wake(&key(name), cause);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bad_reconciles_do_not_disturb_others() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    let good: Vec<String> = (0..GOOD).map(|good| format!("good-{good}")).collect();
    for name in good.iter().map(String::as_str).chain(["hangs", "hoards", "blocks-1", "blocks-2"]) {
        hand.set(name, "x").await;
    }
    let (tally, door, runs) =
        (Tally::default(), Arc::new(Door::default()), Arc::<Mutex<HashMap<String, usize>>>::default());
    let (random, retried) = (Arc::new(Mutex::new(Random::new(17))), Arc::<Mutex<HashSet<String>>>::default());
    let small = Small::new(&faults, options(&tally));
    let running = small.run({
        let (door, runs, retried) = (door.clone(), runs.clone(), retried.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (door, runs, retried, roll) = (door.clone(), runs.clone(), retried.clone(), random.lock().below(100));
            Box::pin(async move {
                let name = run.key.name().to_owned();
                if run.attempt > 1 {
                    retried.lock().insert(name.clone());
                }
                match name.as_str() {
                    "hangs" => std::future::pending().await,
                    "hoards" => {
                        assert_eq!(vec![1u8; 100 << 20].iter().map(|byte| u64::from(*byte)).sum::<u64>(), 100 << 20)
                    }
                    "blocks-1" | "blocks-2" => door.wait(),
                    _ => assert!(roll > 0, "one in a hundred"),
                }
                *runs.lock().entry(name).or_default() += 1;
                Ok(Action::await_change())
            })
        }
    });
    let ran = |name: &str| runs.lock().get(name).copied().unwrap_or_default();
    eventually("both blocking", || door.waiting.load(SeqCst) == 2).await;
    // With half of the threads gone everybody else goes on.
    for round in 1..=tries(20, 500) {
        for name in &good {
            again(&small, name);
        }
        again(&small, "hoards");
        eventually("a round of all good ones", || good.iter().all(|name| ran(name) >= round)).await;
    }
    eventually("the hung one timing out", || tally.of("timed out") >= 2 && retried.lock().contains("hangs")).await;
    eventually("hoards", || ran("hoards") > 0).await;
    assert_eq!((door.waiting.load(SeqCst), ran("blocks-1"), ran("blocks-2")), (2, 0, 0));
    assert!(tally.of("panicked") > 0, "one in a hundred panics");
    assert!(good.iter().any(|name| retried.lock().contains(name)), "what panicked is tried again");
    let retries = small.controller.queue().retries;
    assert!(retries > tally.of("panicked") as u64, "a panic counts as a failure");
    door.set(true);
    eventually("those that blocked", || ran("blocks-1") > 0 && ran("blocks-2") > 0).await;
    // All workers are still there: each of them can be made to wait.
    door.set(false);
    assert_eq!(tally.of("workers"), 8);
    println!(
        "{} runs went well, {} panicked, {} timed out",
        tally.of("went well"),
        tally.of("panicked"),
        tally.of("timed out")
    );
    running.stop().await;
    small.caches.shutdown().await;
}

/// Two keys that are due at the same moment: the worker that watches the clock takes the first and calls another one for
/// the second. Had that one to wait for the thread that the first key blocks, the second would wait for the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_key_does_not_wait_for_the_thread_another_one_blocks() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    hand.set("blocks", "x").await;
    hand.set("good", "x").await;
    let (tally, released) = (Tally::default(), Arc::new((Mutex::new(0), Condvar::new())));
    let (blocked, good) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let small = Small::new(&faults, ControllerOptions { timeout: None, ..options(&tally) });
    let running = small.run({
        let (released, blocked, good) = (released.clone(), blocked.clone(), good.clone());
        let together = Arc::new(tokio::sync::Barrier::new(2));
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (released, blocked, good, together) =
                (released.clone(), blocked.clone(), good.clone(), together.clone());
            Box::pin(async move {
                if run.key.name() == "blocks" {
                    let round = blocked.fetch_add(1, SeqCst) + 1;
                    let mut rounds = released.0.lock();
                    while *rounds < round {
                        released.1.wait(&mut rounds);
                    }
                } else {
                    good.fetch_add(1, SeqCst);
                }
                // Both ask for the same time.
                together.wait().await;
                Ok(Action::requeue(Duration::from_millis(5)))
            })
        }
    });
    let rounds = tries(100, 2_000);
    for round in 1..=rounds {
        eventually("the one that blocks", || blocked.load(SeqCst) == round).await;
        eventually("the good one", || good.load(SeqCst) == round).await;
        *released.0.lock() = if round == rounds { usize::MAX } else { round };
        released.1.notify_all();
    }
    running.stop().await;
    small.caches.shutdown().await;
}
