//! Watches that are late by up to thirty seconds: whoever has just written sees it, so nothing is made twice. Half of the
//! parents name their child, and the server would refuse a second one; the others let the server make a name up, and
//! nothing but reading one's own writes keeps them from a second child.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use konverge_core::LabelSelector;
use konverge_runtime::{Action, BoxFuture, ControllerOptions, Deleted, Error, Owner, Patch, Reconciler, Run};
use kube::ResourceExt;
use kube::api::{Api, Patch as MergePatch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::faults::{Asked, Faults, Line, Random, Verdict, tries};
use crate::operator::{Hand, Small, children, key, parents};

const PARENTS: usize = 100;
const LATEST: u64 = 30_000;

/// All lines that come while one is held up are as late as that one at most.
fn late_watches(faults: &Faults) {
    faults.plan(|asked, before| match asked {
        Asked::Streamed | Asked::Watch => {
            let (mut random, mut until, mut listed) = (Random::new(before as u64), None, asked == Asked::Watch);
            Verdict::Lines(Box::new(move |line| {
                let now = Instant::now();
                if !listed || until.is_some_and(|until| now <= until) {
                    listed |= line.windows(18).any(|part| part == b"initial-events-end");
                    return Line::Pass;
                }
                let late = Duration::from_millis(random.below(LATEST + 1));
                until = Some(now + late);
                match random.below(50) {
                    // What it was late with may be lost as well.
                    0 => Line::Error(410),
                    _ => Line::Late(late),
                }
            }))
        }
        _ => Verdict::Pass,
    });
}

#[derive(Default)]
struct Book {
    /// How many children each parent has, as the answers of the server say.
    children: Mutex<HashMap<String, usize>>,
    reconciles: AtomicUsize,
    created: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

/// Creates a child where there is none, changes it, and deletes it now and then.
async fn reconcile(small: &Small, book: &Book, run: Run, roll: u64) -> Result<Action, Error> {
    let Some(parent) = small.controller.primary().get(&run.key) else { return Ok(Action::await_change()) };
    book.reconciles.fetch_add(1, SeqCst);
    let name = run.key.name();
    let found = small.children.by_owner(parent.uid());
    if found.len() > 1 {
        book.wrong.lock().push(format!("{name} sees {} children", found.len()));
    }
    match found.first() {
        None => {
            let owner = Owner::of(&parents(), &parent.value())?;
            let mut child = json!({"metadata": {"namespace": "default", "ownerReferences": [{
                "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner.uid, "controller": true,
            }]}});
            match name.ends_with("named") {
                true => child["metadata"]["name"] = json!(format!("child-of-{name}")),
                false => child["metadata"]["generateName"] = json!(format!("child-of-{name}-")),
            }
            let written = small.writer.create(&children(), &child).await?;
            small.wrote(&written)?;
            book.created.fetch_add(1, SeqCst);
            let mut children = book.children.lock();
            let count = children.entry(name.to_owned()).or_default();
            *count += 1;
            if *count > 1 {
                book.wrong.lock().push(format!("{name} has {count} children"));
            }
        }
        Some(child) if roll.is_multiple_of(4) => {
            if small.writer.delete(&children(), &child.value()).await? == Deleted::Gone {
                small.caches.removed(&children(), &child.key(), child.uid());
                *book.children.lock().get_mut(name).unwrap() -= 1;
            }
            if !small.children.by_owner(parent.uid()).is_empty() {
                book.wrong.lock().push(format!("{name} still sees the child it deleted"));
            }
        }
        Some(child) if roll % 4 == 1 => {
            let patch = json!({"metadata": {"annotations": {"roll": roll.to_string()}}});
            let patch = Patch::Merge { patch, resource_version: child.resource_version().to_owned() };
            let written = small.writer.patch(&children(), &child.key(), "", patch).await?;
            small.wrote(&written)?;
            let seen = small.children.get(&child.key()).map(|seen| seen.resource_version().to_owned());
            if seen.as_deref() != written["metadata"]["resourceVersion"].as_str() {
                book.wrong.lock().push(format!("{name} does not see its write"));
            }
        }
        Some(_) => {}
    }
    Ok(Action::requeue(Duration::from_millis(roll % 3000)))
}

/// A write wakes its owner when it is made. The watch brings it five seconds later, which wakes nobody: the reconcile that
/// the write has caused saw it. What somebody else changes is told, also while an own write is on its way.
#[tokio::test(start_paused = true)]
async fn the_echo_of_a_write_wakes_nobody_and_what_others_change_does() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    hand.set("p", "x").await;
    faults.plan(|asked, _| match asked {
        Asked::Streamed | Asked::Watch => {
            let mut listed = asked == Asked::Watch;
            Verdict::Lines(Box::new(move |line| match std::mem::replace(&mut listed, true) {
                true => Line::Late(Duration::from_secs(5)),
                false => {
                    listed = line.windows(18).any(|part| part == b"initial-events-end");
                    Line::Pass
                }
            }))
        }
        _ => Verdict::Pass,
    });
    let small = Small::new(&faults, ControllerOptions::default());
    let runs = Arc::new(AtomicUsize::new(0));
    let running = small.run({
        let (runs, small, mirror) = (runs.clone(), small.clone(), Arc::new(small.mirror()));
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (runs, small, mirror) = (runs.clone(), small.clone(), mirror.clone());
            Box::pin(async move {
                runs.fetch_add(1, SeqCst);
                mirror.reconcile(run.clone()).await?;
                // Two more writes, whose echoes come one after the other.
                for step in ["first", "second"] {
                    let child = small.children.get(&run.key).expect("it was just made");
                    if child.annotation(step).is_none() {
                        let patch = json!({"metadata": {"annotations": {step: "done"}}});
                        let patch = Patch::Merge { patch, resource_version: child.resource_version().to_owned() };
                        let written = small.writer.patch(&children(), &run.key, "", patch).await?;
                        small.wrote(&written)?;
                    }
                }
                Ok(Action::await_change())
            })
        }
    });
    let child: Api<Secret> = Api::namespaced(faults.client(), "default");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(child.get("p").await.unwrap().data.is_some());
    assert_eq!(runs.load(SeqCst), 2, "one that writes, and one that the writes caused");
    // The spec changes, and before the watch has brought what we write then, somebody else writes to the same child.
    hand.set("p", "y").await;
    let began = Instant::now();
    while runs.load(SeqCst) < 4 && began.elapsed() < Duration::from_secs(600) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(runs.load(SeqCst), 4);
    let meddle = json!({"data": {"value": null}});
    child.patch("p", &PatchParams::default(), &MergePatch::Merge(meddle)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(runs.load(SeqCst), 6, "one that puts it back, and one that this caused");
    assert_eq!(child.get("p").await.unwrap().data.unwrap()["value"].0, b"y");
    running.stop().await;
    small.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn no_duplicate_children_while_watches_are_late() {
    let faults = Faults::new().await;
    let hand = Hand::new(&faults.client());
    for parent in 0..PARENTS {
        let kind = if parent % 2 == 0 { "named" } else { "unnamed" };
        hand.set(&format!("p{parent}-{kind}"), "x").await;
    }
    late_watches(&faults);
    let small = Small::new(&faults, ControllerOptions::default());
    let book = Arc::new(Book::default());
    let random = Arc::new(Mutex::new(Random::new(1)));
    let running = small.run({
        let (small, book) = (small.clone(), book.clone());
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            let (small, book, roll) = (small.clone(), book.clone(), random.lock().below(1 << 30));
            Box::pin(async move {
                let name = run.key.name().to_owned();
                let answer = reconcile(&small, &book, run, roll).await;
                if let Err(error) = &answer {
                    // A child that exists, or a version that is old, is a stale read that the server caught.
                    book.wrong.lock().push(format!("{name}: {error}"));
                }
                answer
            })
        }
    });
    let enough = tries(4_000, 100_000);
    let mut ahead = 0;
    while book.reconciles.load(SeqCst) < enough {
        tokio::time::sleep(Duration::from_secs(5)).await;
        ahead = ahead.max(small.children.figures().ahead);
        assert_eq!(*book.wrong.lock(), [] as [String; 0]);
    }
    running.stop().await;
    assert_eq!(*book.wrong.lock(), [] as [String; 0]);
    assert!(ahead > PARENTS / 2, "the watch was hardly ever late: {ahead}");
    // What the server has is what the answers said.
    let mut there: HashMap<String, usize> = HashMap::new();
    for secret in hand.secrets().await {
        *there.entry(secret.owner_references()[0].name.clone()).or_default() += 1;
    }
    book.children.lock().retain(|_, count| *count > 0);
    assert_eq!(there, *book.children.lock());
    let (reconciles, created) = (book.reconciles.load(SeqCst), book.created.load(SeqCst));
    println!("{reconciles} reconciles created {created} children, none twice; up to {ahead} writes ahead of the watch");
    assert!(created > reconciles / 10);
    // In the end the watch has it all.
    for secret in hand.secrets().await {
        let (key, version) = (key(&secret.name_any()), secret.resource_version().unwrap());
        small.children.seen(&key, &version, Duration::from_secs(600)).await.unwrap();
        small.children.caught_up(&key, Duration::from_secs(600)).await.unwrap();
    }
    assert_eq!(small.children.list(None, &LabelSelector::default()).len(), there.values().sum::<usize>());
    small.caches.shutdown().await;
}
