//! A log that panics, as a program's own subscriber does whose stderr is a closed pipe: what is being done at that moment
//! fails, and the watches, the workers and the recorder go on. Liveness says so as long as they do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event as EventObject;
use konverge_runtime::{
    Action, BoxFuture, ControllerOptions, Error, Event, Recorder, RecorderOptions, Run, Subject, Target, WatchSettings,
};
use kube::Api;
use kube::api::ListParams;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Level, Metadata, Subscriber};

use crate::faults::{Asked, Faults, Line, Verdict};
use crate::operator::{Hand, Small, eventually, key, parents};

/// Panics about everything that is worse than information, while it is broken.
#[derive(Clone, Default)]
struct BrokenLog {
    broken: Arc<AtomicBool>,
    panics: Arc<AtomicUsize>,
}

impl Subscriber for BrokenLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &tracing::Event<'_>) {
        if self.broken.load(SeqCst) {
            self.panics.fetch_add(1, SeqCst);
            panic!("the log is closed");
        }
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl BrokenLog {
    fn set(&self, broken: bool) {
        self.broken.store(broken, SeqCst);
    }
}

/// A log that is heard until the guard is dropped, and an API server with somebody who makes objects on it.
async fn scene() -> (BrokenLog, DefaultGuard, Faults, Hand) {
    let log = BrokenLog::default();
    let heard = tracing::subscriber::set_default(log.clone());
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    (log, heard, faults, hand)
}

/// More objects fail than there are workers, and each failure is logged.
#[tokio::test(start_paused = true)]
async fn workers_outlive_a_log_that_panics() {
    let (log, _heard, faults, hand) = scene().await;
    for parent in 0..10 {
        hand.set(&format!("p{parent}"), "x").await;
    }
    let small = Small::new(&faults, ControllerOptions { concurrency: 2, ..ControllerOptions::default() });
    let (mended, went_well) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    log.set(true);
    let running = small.run({
        let (mended, went_well) = (mended.clone(), went_well.clone());
        move |_: Run| -> BoxFuture<Result<Action, Error>> {
            let (mended, went_well) = (mended.load(SeqCst), went_well.clone());
            Box::pin(async move {
                if !mended {
                    return Err(Error::new("on purpose"));
                }
                went_well.fetch_add(1, SeqCst);
                Ok(Action::await_change())
            })
        }
    });
    eventually("panics of the log", || log.panics.load(SeqCst) >= 10).await;
    let sick = small.controller.liveness().expect_err("no reconcile has ended since a worker panicked");
    assert!(sick.contains("parents") && sick.contains("the log is closed"), "{sick}");
    mended.store(true, SeqCst);
    eventually("a reconcile of each object", || went_well.load(SeqCst) >= 10).await;
    assert_eq!(small.controller.liveness(), Ok(()));
    running.stop().await;
    small.caches.shutdown().await;
}

/// The server is away for so long that the watch says so, and says again when it is back.
#[tokio::test(start_paused = true)]
async fn a_watch_outlives_a_log_that_panics() {
    let (log, _heard, faults, hand) = scene().await;
    hand.set("p", "x").await;
    let small = Small::new(&faults, ControllerOptions::default());
    let running = small.run(small.mirror());
    eventually("the caches", || small.children.is_synced() && small.controller.primary().is_synced()).await;
    log.set(true);
    faults.plan(|asked, _| match asked {
        Asked::Other => Verdict::Pass,
        _ => Verdict::Answer(500, None),
    });
    faults.cut_watches();
    eventually("panics of the log", || log.panics.load(SeqCst) >= 4).await;
    let sick = small.caches.liveness().expect_err("a watch has panicked");
    assert!(sick.contains("the log is closed"), "{sick}");
    faults.plan(|_, _| Verdict::Pass);
    hand.set("q", "y").await;
    eventually("what came meanwhile", || small.children.get(&key("q")).is_some()).await;
    eventually("all watches", || small.caches.liveness().is_ok()).await;
    running.stop().await;
    small.caches.shutdown().await;
}

/// An object without a name comes in the middle of every list, and the log panics about it: no list goes through, however
/// many of its objects came before.
#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_in_every_list_is_not_well() {
    let (log, _heard, faults, hand) = scene().await;
    for name in ["a", "b", "c"] {
        hand.set(name, "x").await;
    }
    log.set(true);
    faults.plan(|_, _| {
        let mut line = 0;
        Verdict::Lines(Box::new(move |_| {
            line += 1;
            let nameless = || "{\"type\":\"ADDED\",\"object\":{\"metadata\":{}}}\n".to_owned();
            if line == 3 { Line::After(nameless()) } else { Line::Pass }
        }))
    });
    let caches = faults.caches(WatchSettings::default());
    let cache = caches.open(Target::all(parents()));
    eventually("a panic of the log", || log.panics.load(SeqCst) >= 1).await;
    for second in 0..300 {
        assert!(cache.liveness().is_err(), "in second {second}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Pauses of 1, 2, 4, 8 and 16 seconds, and of 30 from then on.
    let lists = faults.asked().len();
    assert!((10..=15).contains(&lists), "{lists} lists in five minutes");
    faults.plan(|_, _| Verdict::Pass);
    eventually("a list that goes through", || cache.liveness().is_ok()).await;
    assert!(cache.is_synced());
    caches.shutdown().await;
}

/// Events that are refused are logged; those that come later are written all the same.
#[tokio::test(start_paused = true)]
async fn the_recorder_outlives_a_log_that_panics() {
    let (log, _heard, faults, hand) = scene().await;
    hand.set("p", "x").await;
    let small = Small::new(&faults, ControllerOptions::default());
    let (recorder, task) = Recorder::new(small.writer.clone(), RecorderOptions::default());
    let task = tokio::spawn(task.run());
    let parent = serde_json::to_value(hand.get("p").await).unwrap();
    let subject = Arc::new(Subject::of(&parents(), &parent).unwrap());
    log.set(true);
    faults.plan(|asked, before| match asked {
        Asked::Other if before < 3 => Verdict::Answer(403, None),
        _ => Verdict::Pass,
    });
    for refused in 0..3 {
        recorder.record(&subject, Event::warning("Refused", refused.to_string()));
    }
    eventually("a panic of the log", || log.panics.load(SeqCst) >= 1).await;
    eventually("the recorder's word for it", || recorder.liveness().is_err()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    recorder.record(&subject, Event::warning("Written", "at last"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events: Api<EventObject> = Api::default_namespaced(faults.client());
    let reasons: Vec<_> = events.list(&ListParams::default()).await.unwrap().into_iter().map(|e| e.reason).collect();
    assert_eq!(reasons, [Some("Written".to_owned())]);
    assert_eq!(recorder.liveness(), Ok(()));
    assert_eq!((recorder.counts().failed, recorder.counts().written), (3, 1));
    recorder.close();
    task.await.expect("the recorder does not panic");
    small.caches.shutdown().await;
}
