//! The shards of an operator: which instance reconciles which objects. In: settings. Out: the shards that controllers and writes ask, the
//! task that takes part in their division, and what people see of it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE};
use konverge_runtime::{HeldShard, Leadership, ShardElection, ShardSeats, Shards};
use kube::Client;
use serde_json::Value;

use crate::metrics::Metrics;
use crate::probes::Health;
use crate::rules::Rules;
use crate::settings::Settings;

/// The name of the check in readiness.
const CHECK: &str = "shards";

/// The shard whose holder does what only one instance may do.
const FIRST: usize = 0;

/// The shards, and how this instance takes part in their division.
pub(super) struct Sharding {
    pub shards: Shards,
    seats: ShardSeats,
    election: ShardElection,
}

impl Sharding {
    /// As settings say. `namespace` is where the Leases are if they do not say it.
    pub(super) fn new(settings: &Settings, namespace: &str, identity: &Arc<str>, controllers: usize) -> Self {
        let leases = &settings.leader_election;
        let (shards, seats) = Shards::vacant(settings.shards, identity, controllers);
        let election = ShardElection {
            group: settings.shards_name(),
            namespace: leases.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            timing: leases.timing(),
        };
        Self { shards, seats, election }
    }

    /// Whether this instance does what only one may do: background tasks, and everything else that is no reconcile.
    pub(super) fn leadership(&self) -> Leadership {
        self.shards.leadership(FIRST).clone()
    }

    /// The work of taking part. The client must be one that works without a term.
    pub(super) fn start(
        self,
        client: Client,
        metrics: &Metrics,
        health: &Health,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let Self { shards, seats, election } = self;
        metrics.shards(shards.clone());
        // An instance that was ready stays ready: it serves webhooks, also while it is cut off and holds nothing.
        let was_ready = AtomicBool::new(false);
        health.readiness_from(CHECK, move || {
            let status = shards.status();
            if was_ready.fetch_or(status.replicas > 0, Ordering::Relaxed) || status.replicas > 0 {
                return Ok(());
            }
            Err(status.waiting.unwrap_or_else(|| "waiting for caches to be filled".to_owned()))
        });
        election.campaign(client, seats, stop)
    }
}

/// Calls `tell` with the shards that are held, whenever they change; never ends.
pub(super) async fn follow(shards: &Shards, tell: impl Fn(&[HeldShard])) {
    let mut changes = shards.changes();
    let mut known = Vec::new();
    loop {
        changes.borrow_and_update();
        let held = shards.held();
        if held != known {
            tell(&held);
            known = held;
        }
        // The sender is in `shards`, so it is never gone.
        let _ = changes.changed().await;
    }
}

/// What shards need, in the namespace of their Leases.
pub(super) fn rules() -> Rules {
    let verbs = ["get", "list", "watch", "create", "update", "delete"];
    Rules::new().allow_resource("coordination.k8s.io", "leases", verbs)
}

/// These rules as a Role in the namespace of the Leases. It is marked, because an instance that never saw another one go has not used all of
/// them.
pub(super) fn manifests(settings: &Settings) -> Vec<Value> {
    let home = settings.home();
    let namespace = settings.leader_election.namespace.as_deref().unwrap_or(home);
    let mut manifests = rules().role(&format!("{}-shards", settings.name), namespace, (&settings.name, home));
    for role in manifests.iter_mut().filter(|manifest| manifest["kind"] == "Role") {
        role["metadata"]["annotations"][KEEP_RIGHTS] = KEEP_RIGHTS_VALUE.into();
    }
    manifests
}
