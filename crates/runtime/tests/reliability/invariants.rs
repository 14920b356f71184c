//! What `ARCHITECTURE.md` promises of the engine, each under its name. The parts have tests of their own beside them; here
//! the engine is looked at from outside, over the Kubernetes protocol.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Applied, ApplyOptions, BoxFuture, Cause, Change, Controller, ControllerOptions, Deleted, Error, Patch,
    Predicate, Run, Target, Trigger, Verdict, WatchSettings, What,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::faults::{Asked, Faults, Line, Random, Verdict as Fate};
use crate::operator::{Hand, Running, Small, children, eventually, key};

/// Names that were reconciled, in order.
type Ran = Arc<Mutex<Vec<String>>>;

fn count(ran: &Ran, name: &str) -> usize {
    ran.lock().iter().filter(|ran| *ran == name).count()
}

/// A reconciler that notes whom it was called for and does nothing.
fn noting(ran: &Ran) -> impl Fn(Run) -> BoxFuture<Result<Action, Error>> + use<> {
    let ran = ran.clone();
    move |run: Run| {
        ran.lock().push(run.key.name().to_owned());
        Box::pin(async { Ok(Action::await_change()) })
    }
}

fn wake(controller: &Controller, key: &ObjectKey) {
    let cause = Cause { kind: "Test".into(), key: key.clone(), what: What::Resync, resource_version: String::new() };
    controller.wake(key, cause);
}

async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// However reconciles end, also those that are cut for being late, and however often their keys are woken.
#[tokio::test(start_paused = true)]
async fn one_reconcile_per_key_at_a_time() {
    #[derive(Default)]
    struct Seen {
        inside: HashMap<String, usize>,
        most_of_one: usize,
        most_of_all: usize,
        verdicts: [usize; 4],
    }
    struct Inside(Arc<Mutex<Seen>>, String);
    impl Drop for Inside {
        fn drop(&mut self) {
            *self.0.lock().inside.get_mut(&self.1).unwrap() -= 1;
        }
    }
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    let options = ControllerOptions { timeout: Some(Duration::from_millis(300)), ..ControllerOptions::default() };
    let small = Small::new(&faults, options);
    let (seen, random) = (Arc::<Mutex<Seen>>::default(), Arc::new(Mutex::new(Random::new(3))));
    let running = small.run({
        let seen = seen.clone();
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let roll = random.lock().below(1600);
            let (seen, sleep, end) = (seen.clone(), roll / 4, roll as usize % 4);
            Box::pin(async move {
                {
                    let mut seen = seen.lock();
                    *seen.inside.entry(run.key.name().to_owned()).or_default() += 1;
                    seen.most_of_one = seen.most_of_one.max(seen.inside[run.key.name()]);
                    seen.most_of_all = seen.most_of_all.max(seen.inside.values().sum());
                }
                let _inside = Inside(seen.clone(), run.key.name().to_owned());
                pass(sleep).await;
                seen.lock().verdicts[end] += 1;
                match end {
                    0 => Ok(Action::await_change()),
                    1 => Ok(Action::requeue(Duration::from_millis(sleep))),
                    2 => Err(Error::new("on purpose")),
                    _ => panic!("on purpose"),
                }
            })
        }
    });
    for round in 0..400 {
        let name = format!("p{}", round % 7);
        hand.set(&name, &round.to_string()).await;
        wake(&small.controller, &key(&name));
        pass(round * 7 % 90).await;
    }
    running.stop().await;
    let seen = seen.lock();
    assert_eq!(seen.most_of_one, 1);
    assert!(seen.most_of_all >= 5, "different keys run at the same time: {}", seen.most_of_all);
    assert!(seen.verdicts.iter().all(|times| *times > 10), "{:?}", seen.verdicts);
}

/// A change that comes at any point of a reconcile, whatever that ends with, leads to one that begins after it.
#[tokio::test(start_paused = true)]
async fn a_wakeup_during_a_reconcile_is_not_lost() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    hand.set("p", "first").await;
    let options = ControllerOptions { timeout: Some(Duration::from_millis(250)), ..ControllerOptions::default() };
    let small = Small::new(&faults, options);
    let (begun, saw) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<String>>::default());
    let running = small.run({
        let (small, begun, saw) = (small.clone(), begun.clone(), saw.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (parent, saw) = (small.controller.primary().get(&run.key), saw.clone());
            let round = begun.fetch_add(1, SeqCst);
            Box::pin(async move {
                // Read at the beginning, and nothing newer counts.
                *saw.lock() = parent.map(|parent| parent.resource_version().to_owned()).unwrap_or_default();
                pass(100).await;
                match round % 5 {
                    0 => Ok(Action::await_change()),
                    1 => Ok(Action::requeue(Duration::from_secs(3600))),
                    2 => Err(Error::new("on purpose")),
                    3 => Err(Error::permanent("on purpose")),
                    _ => std::future::pending().await,
                }
            })
        }
    });
    for round in 0..300 {
        let before = begun.load(SeqCst);
        // Something to be in the middle of.
        hand.set("p", &format!("begin-{round}")).await;
        eventually("a run", || begun.load(SeqCst) > before).await;
        pass(round * 13 % 260).await;
        let newest = hand.set("p", &format!("during-{round}")).await;
        eventually("a run that sees the last change", || *saw.lock() == newest).await;
    }
    running.stop().await;
}

/// Not by a predicate that lets nothing through, and not by a gap in the watch.
#[tokio::test(start_paused = true)]
async fn a_delete_is_never_filtered_away() {
    let never = || Predicate::new(|_, _| false);
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    for name in ["seen", "missed", "replaced", "owner"] {
        hand.set(name, "x").await;
    }
    hand.create_child("child", hand.get("owner").await.as_ref()).await;
    hand.create_child("missed-child", hand.get("owner").await.as_ref()).await;
    let caches = faults.caches(WatchSettings::default());
    let options = ControllerOptions { predicate: never(), ..ControllerOptions::default() };
    let controller = Controller::new("parents", Target::of::<ConfigMap>(), caches.clone(), options);
    controller.watch(Target::of::<Secret>(), Trigger::owner("Secret", "", "ConfigMap", true).when(never()));
    let ran = Ran::default();
    let running = Running::of(&controller, noting(&ran));
    eventually("the first runs", || ["seen", "missed", "replaced", "owner"].iter().all(|name| count(&ran, name) > 0))
        .await;
    pass(1000).await;
    ran.lock().clear();
    hand.set("seen", "changed").await;
    pass(1000).await;
    assert_eq!(*ran.lock(), [] as [String; 0], "an update is filtered away");

    hand.delete("seen").await;
    hand.delete_child("child").await;
    eventually("a run for each deletion", || count(&ran, "seen") == 1 && count(&ran, "owner") == 1).await;
    // While nobody looks, and what the watch has missed is gone from the server's memory.
    faults.plan(|asked, before| match (asked, before) {
        (Asked::Watch | Asked::Streamed, 0..2) => Fate::Answer(410, None),
        _ => Fate::Pass,
    });
    faults.cut_watches();
    hand.delete("missed").await;
    hand.delete_child("missed-child").await;
    hand.delete("replaced").await;
    hand.set("replaced", "another one of that name").await;
    eventually("a run for each deletion in the gap", || {
        count(&ran, "missed") == 1 && count(&ran, "owner") == 2 && count(&ran, "replaced") >= 1
    })
    .await;
    running.stop().await;
    caches.shutdown().await;
}

/// What wakes up depends on the change alone: it is the same when the cache has long moved on, and when it is gone.
#[tokio::test(start_paused = true)]
async fn triggers_never_read_the_cache() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    let caches = faults.caches(WatchSettings::default());
    let cache = caches.open(Target::of::<ConfigMap>());
    cache.synced().await;
    let changes = Arc::<Mutex<Vec<Change>>>::default();
    let subscription = cache.subscribe({
        let changes = changes.clone();
        move |change| changes.lock().push(change)
    });
    // Whom it concerns is in its data, and changes.
    let trigger =
        Trigger::mapped("ConfigMap", |object| object.value()["data"]["value"].as_str().map(key).into_iter().collect());
    let woken = |change: &Change| trigger.wakeups(change).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let mut at_once = Vec::new();
    for (step, value) in ["a", "b", "c"].into_iter().enumerate() {
        hand.set("moves", value).await;
        eventually("the change", || changes.lock().len() == step + 1).await;
        at_once.push(woken(&changes.lock()[step]));
    }
    hand.delete("moves").await;
    eventually("the deletion", || changes.lock().len() == 4).await;
    at_once.push(woken(&changes.lock()[3]));
    assert_eq!(at_once, [vec![key("a")], vec![key("a"), key("b")], vec![key("b"), key("c")], vec![key("c")]]);
    caches.shutdown().await;
    drop((subscription, cache, caches));
    let later: Vec<Vec<ObjectKey>> = changes.lock().iter().map(woken).collect();
    assert_eq!(later, at_once);
}

/// Wherever user code panics: in its function, in its future, in what it leaves behind, in the words of its error, in a
/// predicate, a mapping or an index.
#[tokio::test(start_paused = true)]
async fn a_panic_in_user_code_ends_one_reconcile_not_the_process() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "when dropped");
        }
    }
    #[derive(Debug)]
    struct PanicsWhenRead;
    impl fmt::Display for PanicsWhenRead {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("when read")
        }
    }
    impl std::error::Error for PanicsWhenRead {}

    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    let panics = [
        ("function", "in the function"),
        ("future", "in the future"),
        ("cut", "when dropped"),
        ("ended", "when dropped"),
        ("error", "when read"),
        ("payload", "without a message"),
    ];
    for (name, _) in panics {
        hand.set(name, "x").await;
    }
    hand.set("good", "x").await;
    let caches = faults.caches(WatchSettings::default());
    let options = ControllerOptions {
        // As many as there are panics, so that a worker that dies is missed.
        concurrency: 2,
        timeout: Some(Duration::from_secs(1)),
        predicate: Predicate::new(|_, _| panic!("in a predicate")),
        ..ControllerOptions::default()
    };
    let controller = Controller::new("parents", Target::of::<ConfigMap>(), caches.clone(), options);
    controller.primary().add_index("panics", |_| panic!("in an index"));
    controller.watch(
        Target::of::<Secret>(),
        Trigger::mapped("Secret", |secret| match secret.name() {
            "bad" => panic!("in a mapping"),
            _ => vec![key("good")],
        }),
    );
    let (ran, trouble) = (Ran::default(), Arc::new(AtomicBool::new(true)));
    let running = Running::of(&controller, {
        let (ran, trouble) = (ran.clone(), trouble.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let name = run.key.name().to_owned();
            let trouble = trouble.load(SeqCst);
            assert!(!(trouble && name == "function"), "in the function");
            let ran = ran.clone();
            Box::pin(async move {
                match name.as_str() {
                    _ if !trouble => {}
                    "future" => panic!("in the future"),
                    "cut" => {
                        let _left = PanicsWhenDropped;
                        std::future::pending().await
                    }
                    "ended" => drop(PanicsWhenDropped),
                    "error" => return Err(Error::new(PanicsWhenRead)),
                    "payload" => std::panic::panic_any(7),
                    _ => {}
                }
                ran.lock().push(name);
                Ok(Action::await_change())
            })
        }
    });
    let last = |name: &str| controller.history().of(&key(name)).last().map(|record| record.verdict.clone());
    for (name, message) in panics {
        let expect = Verdict::Panicked { message: message.to_owned() };
        eventually(name, || last(name).as_ref() == Some(&expect)).await;
    }
    // They are tried again, and then all is well; others never noticed.
    trouble.store(false, SeqCst);
    for (name, _) in panics {
        eventually(name, || count(&ran, name) == 1).await;
    }
    assert_eq!(count(&ran, "good"), 1);
    hand.set("good", "changed").await;
    eventually("a change that the predicate panics about", || count(&ran, "good") == 2).await;
    hand.create_child("bad", None).await;
    hand.create_child("fine", None).await;
    eventually("a mapping after one that panicked", || count(&ran, "good") == 3).await;
    running.stop().await;
    caches.shutdown().await;
}

/// Even if the watch never brings it.
#[tokio::test(start_paused = true)]
async fn reads_after_a_write_see_at_least_that_write() {
    let faults = Faults::new().await;
    faults.plan(|asked, _| match asked {
        Asked::Streamed | Asked::Watch => {
            let mut listed = false;
            Fate::Lines(Box::new(move |line| {
                let silent = listed;
                listed |= line.windows(18).any(|part| part == b"initial-events-end");
                if silent { Line::Silence } else { Line::Pass }
            }))
        }
        _ => Fate::Pass,
    });
    let small = Small::new(&faults, ControllerOptions::default());
    small.children.synced().await;
    let (api, value) = (children(), |value: &str| {
        json!({
            "metadata": {"name": "a", "namespace": "default", "labels": {"value": value}},
        })
    });
    let label = |object: &konverge_runtime::Object| object.value()["metadata"]["labels"]["value"].clone();
    let read = || small.children.get(&key("a"));
    for round in ["first", "second"] {
        let made = small.writer.create(&api, &value("created")).await.unwrap();
        small.wrote(&made).unwrap();
        assert_eq!(label(&read().unwrap()), "created", "{round}");
        let live = read().unwrap();
        let applied = small.writer.apply(&api, Some(&live), &value("applied"), ApplyOptions::default()).await.unwrap();
        let Applied::Updated(applied) = applied else { panic!("{applied:?}") };
        small.wrote(&applied.value()).unwrap();
        assert_eq!(label(&read().unwrap()), "applied", "{round}");
        // An answer that comes late does not take back a newer one.
        small.wrote(&made).unwrap();
        assert_eq!(label(&read().unwrap()), "applied", "{round}");
        let patch = Patch::Merge {
            patch: json!({"metadata": {"labels": {"value": "patched"}}}),
            resource_version: read().unwrap().resource_version().to_owned(),
        };
        small.wrote(&small.writer.patch(&api, &key("a"), "", patch).await.unwrap()).unwrap();
        assert_eq!(label(&read().unwrap()), "patched", "{round}");
        let live = read().unwrap();
        assert_eq!(small.writer.delete(&api, &live.value()).await.unwrap(), Deleted::Gone);
        small.caches.removed(&api, &key("a"), live.uid());
        assert!(read().is_none(), "{round}");
    }
    small.caches.shutdown().await;
}

/// Reconciles that find everything as it should be cost the server nothing; over hours, watches are renewed and no more.
#[tokio::test(start_paused = true)]
async fn a_steady_state_makes_no_api_call() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    for parent in 0..20 {
        hand.set(&format!("p{parent}"), "x").await;
    }
    let options = ControllerOptions { resync: Some(Duration::from_secs(60)), ..ControllerOptions::default() };
    let small = Small::new(&faults, options);
    let runs = Arc::new(AtomicUsize::new(0));
    let running = small.run({
        let (mirror, runs) = (small.mirror(), runs.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            runs.fetch_add(1, SeqCst);
            konverge_runtime::Reconciler::reconcile(&mirror, run)
        }
    });
    while hand.there().await != hand.wanted().await {
        pass(100).await;
    }
    pass(1000).await;
    // Shorter than a watch lives.
    faults.plan(|_, _| Fate::Pass);
    let before = runs.load(SeqCst);
    for _ in 0..20 {
        pass(10_000).await;
        (0..20).for_each(|parent| wake(&small.controller, &key(&format!("p{parent}"))));
    }
    assert!(runs.load(SeqCst) >= before + 400);
    assert_eq!(faults.asked(), [], "requests although all is as it should be");
    pass(3_600_000).await;
    assert!(faults.sent().iter().all(|sent| sent.asked == Asked::Watch), "{:?}", faults.sent());
    running.stop().await;
    small.caches.shutdown().await;
}

/// Seen from outside: an engine whose reconciler writes nothing writes nothing. Seen from inside: no other file has a
/// word for a request that writes.
#[tokio::test(start_paused = true)]
async fn only_write_status_and_recorder_send_writes() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    hand.set("p", "x").await;
    let small = Small::new(&faults, ControllerOptions::default());
    let ran = Ran::default();
    let running = small.run(noting(&ran));
    for round in 0..50 {
        hand.set("p", &round.to_string()).await;
        pass(500).await;
        if round % 5 == 0 {
            faults.cut_watches();
        }
    }
    running.stop().await;
    let (runs, requests) = (ran.lock().len(), faults.sent().len());
    assert!(runs >= 10 && requests >= 10, "{runs} runs, {requests} requests");
    let methods: BTreeSet<String> = faults.sent().iter().map(|sent| sent.method.to_string()).collect();
    assert_eq!(methods, BTreeSet::from(["GET".to_owned()]));

    let words = ["Operation::", "Call {", "Method::", "PostParams", "PatchParams", "DeleteParams", "Request::builder"];
    let (mut looked, mut wrong) = (0, Vec::new());
    each_source(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |path, text| {
        looked += 1;
        let part = path.split(['/', '.']).next().unwrap();
        if !["write", "status", "recorder"].contains(&part) {
            // `request` reads the head of a request that others send, and so it names methods.
            let is_wrong = |word: &&&str| text.contains(**word) && !(part == "request" && **word == "Method::");
            wrong.extend(words.iter().filter(is_wrong).map(|word| format!("{path} says {word}")));
        }
    });
    assert!(looked > 40, "only {looked} files were found");
    assert_eq!(wrong, [] as [String; 0]);
    small.caches.shutdown().await;
}

/// Every source file with its path under `root`, and its text without tests.
fn each_source(root: &Path, see: &mut dyn FnMut(&str, &str)) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                see(&path.strip_prefix(root).unwrap().to_string_lossy(), code);
            }
        }
    }
}
