//! Pods that nobody runs: `kubectl logs`, `kubectl drain`.

use serde_json::json;

use crate::cluster::Cluster;

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: node-1}
";

fn pod(name: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec: {{nodeName: node-1, terminationGracePeriodSeconds: 0, containers: [{{name: main, image: nginx}}]}}
"
    )
}

fn report(cluster: &Cluster, what: &str, status: serde_json::Value) {
    let patch = json!({"status": status});
    cluster.kubectl(&format!("patch {what} --subresource=status --type=merge -p '{patch}'")).succeeds();
}

fn running() -> serde_json::Value {
    let state = json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}});
    json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "image": "nginx", "imageID": "", "ready": true, "restartCount": 0, "state": state}],
    })
}

#[test]
fn logs() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(&pod("a"));
    cluster.kubectl("logs a").fails("Error from server (BadRequest): container \"main\" in pod \"a\" is not available");
    report(&cluster, "pod/a", running());
    let state = "konverge: container main runs since 2026-01-02T03:04:05Z, ready, 0 restarts";
    cluster.kubectl("logs a").prints(&format!(
        "konverge: pod default/a is simulated: none of its containers runs, so there is no output of theirs to show
         konverge: pod is Running on node node-1
         konverge: container main has image nginx
         {state}"
    ));
    cluster.kubectl("logs a --tail=1").prints(state);
    cluster.kubectl("logs a -c other").fails("error: container other is not valid for pod a");
    cluster
        .kubectl("logs a --previous")
        .fails("Error from server (BadRequest): previous terminated container \"main\" in pod \"a\" not found");
    let mut followed = cluster.kubectl("logs a --follow --tail=1").follow();
    followed.next(state);
    cluster.kubectl("delete pod a").succeeds();
    followed.ends();
}

#[test]
fn drain() {
    let Some(cluster) = Cluster::start() else { return };
    let budget = "---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guard}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";
    cluster.create(&(NODE.to_owned() + &pod("a") + budget));
    report(&cluster, "pod/a", running());
    let shut = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1});
    report(&cluster, "pdb/guard", shut);
    let (_, aside) = cluster.kubectl("drain node-1 --force --timeout=1s").says(1);
    assert!(aside.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{aside}");
    let cordoned = cluster.object("node/node-1");
    assert_eq!(cordoned["spec"]["unschedulable"], true);

    report(&cluster, "pdb/guard", json!({"disruptionsAllowed": 1}));
    let (said, _) = cluster.kubectl("drain node-1 --force --timeout=30s").says(0);
    assert!(said.contains("pod/a evicted\nnode/node-1 drained"), "{said}");
    cluster.kubectl("get pods").warns("", "No resources found in default namespace.");
    let budget = cluster.object("pdb/guard");
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["a"].is_string(), "{budget}");
}
