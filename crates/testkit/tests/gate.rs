//! A gate in front of all that an operator writes: what passes it, and what a refusal does to a reconcile.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use konverge::kube::Api;
use konverge::kube::api::PostParams;
use konverge::prelude::*;
use konverge::{RequestInfo, WriteRefused};
use konverge_testkit::{Cluster, Fake};

/// Something that writes in every way there is.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
pub struct ShopSpec {
    /// How many doors it has.
    pub doors: u32,
}

/// What is true of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShopStatus {
    /// In one word.
    pub phase: String,
}

async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    ctx.get::<Secret>("till").await?;
    ctx.apply(ConfigMap::new("child").data("doors", ctx.resource().spec.doors.to_string())).await?;
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client(), ctx.namespace());
    maps.create(&PostParams::default(), &ConfigMap::new("by-hand")).await?;
    ctx.set_status(ShopStatus { phase: "Open".into() }).await?;
    ctx.event("Opened", "come in").await?;
    Ok(Action::await_change())
}

#[tokio::test]
async fn all_that_an_operator_writes_passes_the_gate() -> Result<()> {
    let fake = Fake::new().with(Shop::new("s", ShopSpec { doors: 1 }));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let gate = {
        let seen = seen.clone();
        move |request: &RequestInfo| {
            seen.lock().unwrap().push(request.to_string());
            Ok(())
        }
    };
    let operator = Operator::<Shop>::new().with_finalizer().write_gate(gate).reconcile(reconcile);
    fake.reconcile(&operator, "s").await?;
    let expect = [
        "patch shops.example.com default/s",
        "apply configmaps default/child",
        "create configmaps default/",
        "patch shops.example.com/status default/s",
        "create events.events.k8s.io default/",
    ];
    assert_eq!(*seen.lock().unwrap(), expect);
    let sent = fake.calls().only(|call| call.writes());
    assert_eq!(sent.len(), expect.len(), "{sent}");
    Ok(())
}

/// The second reconcile waits for a change, and does not come by itself: not after a backoff, and not for the event and the
/// condition that report a failure.
#[tokio::test(start_paused = true)]
async fn a_refused_write_ends_the_reconcile_without_a_retry() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Shop>().await?;
    let (runs, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = {
        let asked = asked.clone();
        move |_: &RequestInfo| -> Result<(), WriteRefused> {
            asked.fetch_add(1, SeqCst);
            Err(WriteRefused::new("NotLeading", "another instance leads"))
        }
    };
    let counted = runs.clone();
    let operator = Operator::<Shop>::new().write_gate(gate).reconcile(move |ctx: Context<Shop>| {
        counted.fetch_add(1, SeqCst);
        reconcile(ctx)
    });
    let running = cluster.run_unrestricted(operator);
    for doors in 1..=2 {
        match doors {
            1 => drop(cluster.create(Shop::new("s", ShopSpec { doors })).await?),
            _ => drop(cluster.edit("s", |shop: &mut Shop| shop.spec.doors = doors).await?),
        }
        // The clock is stopped and moves only when nothing else does: after an hour all that would be retried has been.
        tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
        let doors = doors as usize;
        assert_eq!((runs.load(SeqCst), asked.load(SeqCst)), (doors, doors));
    }
    assert!(cluster.writes().is_empty(), "{}", cluster.writes());
    running.stop().await
}
