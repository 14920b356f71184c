//! A stop in the middle of the work: nothing new is begun, what runs ends or is cut within the drain time, no request
//! follows, and what was written is whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use konverge_runtime::{Action, ApplyOptions, BoxFuture, ControllerOptions, Error, Run};
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::faults::{Asked, Faults, Random, Verdict, tries};
use crate::operator::{Hand, Small, children};

const DRAIN: Duration = Duration::from_secs(2);
const STEPS: usize = 3;

/// Counts while a reconcile lives, however it ends.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Whether something was cut off.
async fn check(seed: u64) -> bool {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    let mut random = Random::new(seed);
    for parent in 0..20 {
        hand.set(&format!("p{parent}"), "x").await;
    }
    // Servers take their time, some more than there is.
    faults.plan(move |asked, before| match asked {
        Asked::Other => match Random::new(seed ^ (before as u64) << 8).below(8) {
            0 => Verdict::Answered(Duration::from_millis(before as u64 * 37 % 4000)),
            1 => Verdict::Delayed(Duration::from_millis(before as u64 * 53 % 4000)),
            _ => Verdict::Answered(Duration::from_millis(before as u64 * 11 % 150)),
        },
        _ => Verdict::Pass,
    });
    let options = ControllerOptions { drain: DRAIN, concurrency: 5, ..ControllerOptions::default() };
    let small = Small::new(&faults, options);
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(BTreeMap::<String, usize>::new())));
    let begun = Arc::new(AtomicUsize::new(0));
    let running = small.run({
        let (small, inside, done, begun) = (small.clone(), inside.clone(), done.clone(), begun.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (small, inside, done, begun) = (small.clone(), inside.clone(), done.clone(), begun.clone());
            Box::pin(async move {
                inside.fetch_add(1, SeqCst);
                begun.fetch_add(1, SeqCst);
                let _inside = Inside(inside);
                for step in 0..STEPS {
                    let name = format!("{}-{step}", run.key.name());
                    let config = json!({
                        "metadata": {"name": name, "namespace": "default"},
                        "stringData": {"one": "a".repeat(50), "two": "b".repeat(50)},
                    });
                    small.writer.apply(&children(), None, &config, ApplyOptions::default()).await?;
                    *done.lock().entry(run.key.name().to_owned()).or_default() = step + 1;
                }
                Ok(Action::requeue(Duration::from_millis(100)))
            })
        }
    });
    tokio::time::sleep(Duration::from_millis(random.below(3000))).await;
    let asked = Instant::now();
    running.stop().await;
    let took = asked.elapsed();
    assert!(took <= DRAIN + Duration::from_millis(100), "seed {seed}: it took {took:?} to stop");
    assert_eq!(inside.load(SeqCst), 0, "seed {seed}: a reconcile goes on");
    assert_eq!(small.controller.queue().running, 0, "seed {seed}: a key was not handed back");
    small.caches.shutdown().await;
    let (last, runs) = (faults.sent().len(), begun.load(SeqCst));
    hand.set("p0", "changed").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((faults.sent().len(), begun.load(SeqCst)), (last, runs), "seed {seed}: it goes on after its end");
    assert_eq!(faults.open_watches(), 0, "seed {seed}: a watch is still open");
    // Steps came one after the other, and each is whole; the last one may be there without its answer.
    let mut there: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for secret in hand.secrets().await {
        let data = secret.data.clone().unwrap_or_default();
        assert!(data["one"].0.len() == 50 && data["two"].0.len() == 50, "seed {seed}: half of {}", secret.name_any());
        let (parent, step) =
            secret.name_any().rsplit_once('-').map(|(p, s)| (p.to_owned(), s.parse().unwrap())).unwrap();
        there.entry(parent).or_default().push(step);
    }
    for (parent, mut steps) in there {
        steps.sort();
        assert_eq!(steps, (0..steps.len()).collect::<Vec<_>>(), "seed {seed}: {parent} skipped a step");
        let done = done.lock().get(&parent).copied().unwrap_or_default();
        assert!(steps.len() >= done.min(STEPS), "seed {seed}: a step of {parent} was acknowledged and is not there");
    }
    took >= DRAIN
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_load_ends_in_time_and_leaves_nothing_half_written() {
    let runs = tries(40, 1_000);
    let mut cut = 0;
    for seed in 0..runs as u64 {
        cut += usize::from(check(seed).await);
    }
    println!("{runs} stops, in {cut} of them reconciles had to be cut");
    assert!(cut > 0 && cut < runs, "{cut} of {runs} had to be cut");
}

/// Whoever updates an operator is not to be told that its reconciles time out.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_is_cut_by_a_stop_did_not_time_out() {
    let faults = Faults::new().await;
    Hand::new(&faults.client()).set("p", "x").await;
    let small = Small::new(&faults, ControllerOptions { drain: DRAIN, ..ControllerOptions::default() });
    let begun = Arc::new(AtomicUsize::new(0));
    let running = small.run({
        let begun = begun.clone();
        move |_: Run| -> BoxFuture<Result<Action, Error>> {
            begun.fetch_add(1, SeqCst);
            Box::pin(std::future::pending())
        }
    });
    crate::operator::eventually("the reconcile", || begun.load(SeqCst) == 1).await;
    running.stop().await;
    let runs = small.controller.history().of(&crate::operator::key("p"));
    assert_eq!(runs.into_iter().map(|run| run.verdict).collect::<Vec<_>>(), [konverge_runtime::Verdict::Cut]);
    small.caches.shutdown().await;
}

/// Nobody can end a thread that user code blocks, but nobody waits for it either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_thread_does_not_hold_up_a_stop() {
    let faults = Faults::new().await;
    Hand::new(&faults.client()).set("p", "x").await;
    let options = ControllerOptions { drain: Duration::from_millis(10), ..ControllerOptions::default() };
    let small = Small::new(&faults, options);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (blocked, begun) = (Arc::new(Mutex::new(blocked)), Arc::new(AtomicUsize::new(0)));
    let running = small.run({
        let begun = begun.clone();
        move |_: Run| -> BoxFuture<Result<Action, Error>> {
            let (blocked, begun) = (blocked.clone(), begun.clone());
            Box::pin(async move {
                begun.fetch_add(1, SeqCst);
                let _ = blocked.lock().recv();
                Ok(Action::await_change())
            })
        }
    });
    crate::operator::eventually("the reconcile", || begun.load(SeqCst) == 1).await;
    running.stop().await;
    drop(release);
    small.caches.shutdown().await;
}
