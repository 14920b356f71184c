//! Reconciles that block their threads, in a program that has one thread: the operator works on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use konverge::prelude::*;
use konverge_testkit::Cluster;

/// One that blocks, or one that does not.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Guest", namespaced)]
pub struct GuestSpec {
    /// Whether it blocks its thread until the door opens.
    pub blocks: bool,
}

/// Who blocks waits here, and takes a thread with it.
#[derive(Default)]
struct Door {
    inside: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Door {
    fn wait(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.0 += 1;
        self.changed.notify_all();
        // Far beyond what it takes: a test that fails has to end, too.
        let (_inside, late) =
            self.changed.wait_timeout_while(inside, Duration::from_secs(60), |(_, open)| !*open).unwrap();
        assert!(!late.timed_out(), "nobody opened the door");
    }

    fn full(&self, count: usize) {
        let inside = self.inside.lock().unwrap();
        let waited =
            self.changed.wait_timeout_while(inside, Duration::from_secs(60), |(came, _)| *came < count).unwrap();
        assert!(!waited.1.timed_out(), "only {} came", waited.0.0);
    }

    fn open(&self) {
        self.inside.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn three_blocked_threads_hold_up_nobody() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Guest>().await?;
    let door = Arc::new(Door::default());
    let at = door.clone();
    let operator = Operator::<Guest>::new().reconcile(move |ctx: Context<Guest>| {
        let door = at.clone();
        async move {
            if ctx.resource().spec.blocks {
                door.wait();
            }
            ctx.apply(ConfigMap::new(ctx.name())).await?;
            Ok(Action::await_change())
        }
    });
    let running = cluster.run_unrestricted(operator);
    for name in ["a", "b", "c"] {
        cluster.create(Guest::new(name, GuestSpec { blocks: true })).await?;
    }
    let inside = door.clone();
    tokio::task::spawn_blocking(move || inside.full(3)).await.expect("all three came");

    cluster.create(Guest::new("good", GuestSpec { blocks: false })).await?;
    cluster.wait_until::<ConfigMap>("good", |_| true).await?;
    door.open();
    for name in ["a", "b", "c"] {
        cluster.wait_until::<ConfigMap>(name, |_| true).await?;
    }
    running.stop().await
}
