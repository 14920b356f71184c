//! `kubectl rollout`, as far as it needs no controller.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::WEB;

#[test]
fn rollout() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WEB);
    cluster.kubectl("rollout pause deploy/web").prints("deployment.apps/web paused");
    expect::has(&cluster.object("deploy web"), &json!({"spec": {"paused": true}}));
    cluster.kubectl("rollout pause deploy/web").fails("error: deployments.apps \"web\" is already paused");
    cluster
        .kubectl("rollout restart deploy/web")
        .fails("error: deployments.apps \"web\" can't restart paused deployment (run rollout resume first)");
    cluster.kubectl("rollout resume deploy/web").prints("deployment.apps/web resumed");
    expect::has(&cluster.object("deploy web"), &json!({"spec": {"paused": null}}));
    cluster.kubectl("rollout restart deploy/web").prints("deployment.apps/web restarted");
    let template = cluster.object("deploy web")["spec"]["template"]["metadata"].clone();
    assert!(template["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string(), "{template}");
    cluster.kubectl("rollout history deploy/web").prints("deployment.apps/web\nNo rollout history found.");
    cluster.kubectl("rollout undo deploy/web").fails("error: no rollout history found for deployment \"web\"");

    // The status that a controller would write is what it waits for.
    cluster
        .kubectl("rollout status deploy/web --watch=false")
        .prints("Waiting for deployment spec update to be observed...");
    let mut status = cluster.kubectl("rollout status deploy/web --timeout=60s").follow();
    status.next("Waiting for deployment spec update to be observed...");
    let generation = cluster.object("deploy web")["metadata"]["generation"].clone();
    let progress = |ready: i64| {
        let status = json!({"status": {
            "observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready,
        }});
        cluster.kubectl(&format!("patch deploy web --subresource=status --type=merge -p '{status}'")).succeeds();
    };
    progress(1);
    status.next("Waiting for deployment \"web\" rollout to finish: 1 of 2 updated replicas are available...");
    progress(2);
    status.next("deployment \"web\" successfully rolled out");
    status.ends();
    cluster.kubectl("get deploy web").prints("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 2/2 2 2 *s");
}
