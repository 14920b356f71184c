//! Nodes: cordoned, drained against a budget, and with one pod of a DaemonSet each.

use super::deployment;
use crate::cluster::Cluster;

const AGENT: &str = r#"---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: "agent:1"}]}
"#;

const BUDGET: &str = r#"---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"#;

#[test]
fn drained_as_far_as_the_budget_allows() {
    let Some(cluster) = Cluster::develop(&["--operator", "none", "--nodes", "2"]) else { return };
    cluster.kubectl("cordon konverge-node-2").prints("node/konverge-node-2 cordoned");
    cluster.create(&(deployment("web", 2, "") + BUDGET + AGENT));
    cluster.rolled_out("deploy/web");
    cluster.rolled_out("ds/agent");
    cluster.kubectl("wait --for=jsonpath={.status.currentHealthy}=2 pdb/web --timeout=60s").succeeds();
    let places = "get pods -l app=web -o jsonpath={.items[*].spec.nodeName}";
    cluster.kubectl(places).prints("konverge-node-1 konverge-node-1");
    cluster.kubectl("uncordon konverge-node-2").prints("node/konverge-node-2 uncordoned");

    let drain = "drain konverge-node-1 --ignore-daemonsets";
    let (_, aside) = cluster.kubectl(&format!("{drain} --timeout=1s")).says(1);
    assert!(aside.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{aside}");
    cluster.kubectl("get nodes").prints(
        "NAME STATUS ROLES AGE VERSION
         konverge-node-1 Ready,SchedulingDisabled <none> *s v*-konverge-simulator
         konverge-node-2 Ready <none> *s v*-konverge-simulator",
    );
    cluster.kubectl(places).prints("konverge-node-1 konverge-node-1");

    // Two more on the other node, and the first two may go at once.
    cluster.kubectl("scale deploy web --replicas=4").succeeds();
    cluster.kubectl("wait --for=jsonpath={.status.disruptionsAllowed}=2 pdb/web --timeout=60s").succeeds();
    let (said, _) = cluster.kubectl(&format!("{drain} --timeout=60s")).says(0);
    assert!(said.contains(" evicted\n") && said.ends_with("node/konverge-node-1 drained\n"), "{said}");
    cluster.until(places, |said| said == ["konverge-node-2"; 4].join(" "));
    cluster.rolled_out("deploy/web");
    // Whoever is on every node stays.
    cluster.kubectl("get ds agent").prints(
        "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE
         agent 2 2 2 2 2 <none> *s",
    );
}

#[test]
fn nowhere_to_go() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.kubectl("wait --for=condition=Ready node/konverge-node-1 --timeout=60s").succeeds();
    cluster.kubectl("cordon konverge-node-1").succeeds();
    cluster.create(&deployment("web", 1, ""));
    cluster.kubectl("wait --for=create pod -l app=web --timeout=60s").succeeds();
    cluster.kubectl("wait --for=condition=PodScheduled=false pod -l app=web --timeout=60s").succeeds();
    cluster.kubectl("describe pod -l app=web").mentions(&["FailedScheduling", "unschedulable"]);
    cluster.kubectl("get pods").prints("NAME READY STATUS RESTARTS AGE\nweb-* 0/1 Pending 0 *s");
    cluster.kubectl("uncordon konverge-node-1").succeeds();
    cluster.rolled_out("deploy/web");
}

#[test]
fn one_on_each() {
    let Some(cluster) = Cluster::develop(&["--operator", "none", "--nodes", "3"]) else { return };
    cluster.create(AGENT);
    cluster.rolled_out("ds/agent");
    let each = "get pods --sort-by=.spec.nodeName -o custom-columns=N:.spec.nodeName,I:.spec.containers[0].image";
    let rows = |image: &str| (1..=3).map(|node| format!("konverge-node-{node} {image}\n")).collect::<String>();
    cluster.kubectl(each).prints(&format!("N I\n{}", rows("agent:1")));
    cluster.kubectl("set image ds/agent main=agent:2").prints("daemonset.apps/agent image updated");
    cluster.rolled_out("ds/agent");
    cluster.kubectl(each).prints(&format!("N I\n{}", rows("agent:2")));
    cluster
        .kubectl("rollout history ds/agent")
        .prints("daemonset.apps/agent\nREVISION CHANGE-CAUSE\n1 <none>\n2 <none>");
    cluster.kubectl("rollout undo ds/agent").prints("daemonset.apps/agent rolled back");
    cluster.rolled_out("ds/agent");
    cluster.kubectl(each).prints(&format!("N I\n{}", rows("agent:1")));
    // A node that comes gets one too.
    cluster.create("apiVersion: v1\nkind: Node\nmetadata: {name: other, labels: {konverge.dev/simulated: 'true'}}");
    cluster.kubectl("wait --for=jsonpath={.status.numberReady}=4 ds/agent --timeout=60s").succeeds();
    cluster.kubectl("delete node other").succeeds();
    cluster.kubectl("wait --for=jsonpath={.status.desiredNumberScheduled}=3 ds/agent --timeout=60s").succeeds();
    cluster.until("get pods -o name", |said| said.lines().count() == 3);
}
