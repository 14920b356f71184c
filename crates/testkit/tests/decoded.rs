//! Objects that are reconciled again and again without a change are decoded twice, and not each time.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use konverge::prelude::*;
use konverge::serde::Deserializer;
use konverge_testkit::Cluster;

static DECODED: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// A clock that is looked at every second.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Clock", namespaced)]
pub struct ClockSpec {
    /// Where it hangs. Whoever decodes it is counted.
    #[serde(deserialize_with = "counted")]
    pub place: String,
}

fn counted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    DECODED.fetch_add(1, SeqCst);
    String::deserialize(deserializer)
}

async fn reconcile(ctx: Context<Clock>) -> Result<Action> {
    assert!(["hall", "kitchen"].contains(&ctx.resource().spec.place.as_str()));
    RUNS.fetch_add(1, SeqCst);
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// Waits for a number of reconciles more, and tells how many times an object was decoded meanwhile.
async fn decoded_during(runs: usize) -> usize {
    let (before, until) = (DECODED.load(SeqCst), RUNS.load(SeqCst) + runs);
    while RUNS.load(SeqCst) < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    DECODED.load(SeqCst) - before
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_change_is_not_decoded_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Clock>().await?;
    cluster.create(Clock::new("c", ClockSpec { place: "hall".into() })).await?;
    let running = cluster.run_unrestricted(Operator::<Clock>::new().reconcile(reconcile));
    decoded_during(3).await;
    assert_eq!(decoded_during(50).await, 0);
    // What changed is decoded, and seen.
    cluster.edit("c", |clock: &mut Clock| clock.spec.place = "kitchen".into()).await?;
    assert!((1..=3).contains(&decoded_during(5).await));
    assert_eq!(decoded_during(50).await, 0);
    running.stop().await
}
