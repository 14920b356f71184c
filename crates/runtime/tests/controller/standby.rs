//! A controller of an instance that does not lead, or that holds no shard: its queue does not grow, and when its term begins, no object
//! is missed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use konverge_runtime::{
    Action, BoxFuture, Cause, Controller, ControllerOptions, Error, Leadership, Mode, Object, QueueStats, Run, Seat,
    ShardSeats, Shards, Term, What,
};
use kube::api::{Api, ApiResource, DeleteParams};
use tokio::time::Instant;

use crate::{client, create, eventually, key, quick, with_controller};

/// What was reconciled, by name.
#[derive(Clone, Default)]
struct Reconciled(Arc<Mutex<Vec<String>>>);

impl Reconciled {
    fn reconciler(&self) -> impl Fn(Run) -> BoxFuture<Result<Action, Error>> + Send + Sync + use<> {
        let reconciled = self.clone();
        move |run: Run| -> BoxFuture<Result<Action, Error>> {
            reconciled.0.lock().unwrap().push(run.key.name().to_owned());
            Box::pin(async { Ok(Action::await_change()) })
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn names(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().iter().cloned().collect()
    }
}

fn term(number: u64) -> (Term, Instant) {
    (Term { number, holder: "web-0".into(), fence: None }, Instant::now() + Duration::from_secs(3600))
}

fn lead(seat: &Seat, number: u64) {
    let (term, deadline) = term(number);
    seat.lead(term, deadline);
}

fn lead_shard(seats: &ShardSeats, shard: usize, number: u64) {
    let (term, deadline) = term(number);
    seats.lead(shard, term, deadline);
}

/// How many keys a queue has.
fn keys(stats: &QueueStats) -> usize {
    stats.ready.iter().sum::<usize>() + stats.waiting + stats.running + stats.resting
}

fn triggered(name: &str) -> Cause {
    let what = What::Triggered { source: "test".into() };
    Cause { kind: "ConfigMap".into(), key: key(name), what, resource_version: String::new() }
}

/// Objects come and go, as the cache tells of them.
async fn come_and_go(controller: &Controller, count: usize) {
    let (cache, api) = (controller.primary(), ApiResource::erase::<ConfigMap>(&()));
    cache.synced().await;
    for number in 0..count {
        // Later than whatever the server has.
        let (name, version) = (format!("passing-{number}"), u64::MAX / 2 + number as u64);
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{number}","resourceVersion":"{version}"}}}}"#
        );
        cache.wrote(Arc::new(Object::parse(&api, &json, Mode::Full).unwrap()));
        controller.wake(&key(&name), triggered(&name));
        if number % 64 == 63 {
            // Whoever is slow is told a sum, which for an object that came and went is nothing.
            eventually("changes are told", || cache.figures().waiting == 0).await;
        }
        cache.removed(&key(&name), &number.to_string());
    }
    eventually("all changes are told", || cache.figures().waiting == 0).await;
}

#[tokio::test]
async fn the_queue_of_a_standby_does_not_grow() {
    let (leadership, seat) = Leadership::vacant();
    let (options, reconciled) = (ControllerOptions { leadership, ..quick() }, Reconciled::default());
    with_controller(client().await, options, reconciled.reconciler(), async |controller| {
        come_and_go(controller, 10_000).await;
        assert_eq!(keys(&controller.queue()), 0, "{:?}", controller.queue());
        // The same after a term.
        lead(&seat, 1);
        controller.wake(&key("a"), triggered("a"));
        eventually("a reconcile", || reconciled.names().contains("a")).await;
        seat.follow(None);
        come_and_go(controller, 1_000).await;
        assert_eq!(keys(&controller.queue()), 0, "{:?}", controller.queue());
    })
    .await;
}

#[tokio::test]
async fn the_queue_of_an_instance_without_a_shard_does_not_grow() {
    let (shards, seats) = Shards::vacant(4, "web-0", 1);
    lead_shard(&seats, 0, 1);
    let (options, reconciled) = (ControllerOptions { shards: Some(shards.clone()), ..quick() }, Reconciled::default());
    let is_own = |name: &str| shards.of(name.trim_start_matches("passing-")) == 0;
    with_controller(client().await, options, reconciled.reconciler(), async |controller| {
        come_and_go(controller, 2_000).await;
        eventually("the queue is empty", || keys(&controller.queue()) == 0).await;
        let others: Vec<String> = reconciled.take().into_iter().filter(|name| !is_own(name)).collect();
        assert!(others.is_empty(), "{others:?}");
    })
    .await;
}

/// Objects come while terms begin and end, at moments that nobody arranges. In the end each was reconciled, in the last term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_is_missed_when_a_term_begins() {
    let client = client().await;
    for round in 0..20 {
        let (leadership, seat) = Leadership::vacant();
        // In some rounds this instance leads before it watches, so that nothing has to be woken again.
        if round % 4 == 0 {
            lead(&seat, 1);
        }
        let (options, reconciled) = (ControllerOptions { leadership, ..quick() }, Reconciled::default());
        with_controller(client.clone(), options, reconciled.reconciler(), async |_| {
            let names: BTreeSet<String> = (0..10).map(|number| format!("r{round}-{number}")).collect();
            let creating = tokio::spawn({
                let (client, names) = (client.clone(), names.clone());
                async move {
                    for name in &names {
                        create(&client, name).await;
                    }
                }
            });
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            lead(&seat, 1);
            if round % 3 == 0 {
                seat.follow(Some("web-1".into()));
                tokio::task::yield_now().await;
                reconciled.take();
                lead(&seat, 2);
            }
            creating.await.unwrap();
            eventually("all are reconciled", || names.is_subset(&reconciled.names())).await;
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            for name in &names {
                maps.delete(name, &DeleteParams::default()).await.unwrap();
            }
        })
        .await;
    }
}

/// Whoever leads from the start reconciles each object once: nothing was dropped, so nothing is woken again.
#[tokio::test]
async fn whoever_leads_from_the_start_reconciles_each_object_once() {
    let client = client().await;
    let names: Vec<String> = (0..20).map(|number| format!("lamp-{number:02}")).collect();
    for name in &names {
        create(&client, name).await;
    }
    let (leadership, seat) = Leadership::vacant();
    lead(&seat, 1);
    let (options, reconciled) = (ControllerOptions { leadership, ..quick() }, Reconciled::default());
    with_controller(client, options, reconciled.reconciler(), async |controller| {
        eventually("all are reconciled", || reconciled.names().len() == names.len()).await;
        eventually("the queue is empty", || keys(&controller.queue()) == 0).await;
    })
    .await;
    let mut reconciled = reconciled.take();
    reconciled.sort();
    assert_eq!(reconciled, names);
}

/// An object whose shard this instance does not hold is not reconciled; when the shard comes, it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_object_is_missed_when_a_shard_comes() {
    let client = client().await;
    for round in 0..10 {
        let (shards, seats) = Shards::vacant(3, "web-0", 1);
        let (options, reconciled) = (ControllerOptions { shards: Some(shards), ..quick() }, Reconciled::default());
        with_controller(client.clone(), options, reconciled.reconciler(), async |_| {
            let names: BTreeSet<String> = (0..20).map(|number| format!("s{round}-{number}")).collect();
            let creating = tokio::spawn({
                let (client, names) = (client.clone(), names.clone());
                async move {
                    for name in &names {
                        create(&client, name).await;
                    }
                }
            });
            for shard in 0..3 {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                lead_shard(&seats, shard, 1);
            }
            creating.await.unwrap();
            eventually("all are reconciled", || names.is_subset(&reconciled.names())).await;
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            for name in &names {
                maps.delete(name, &DeleteParams::default()).await.unwrap();
            }
        })
        .await;
    }
}
