//! What goes with a workload, and with a namespace full of them.

use super::deployment;
use crate::cluster::Cluster;

#[test]
fn background_foreground_orphan() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    let web = deployment("web", 2, "");
    let start = || {
        cluster.create(&web);
        cluster.rolled_out("deploy/web");
    };
    start();
    cluster.kubectl("delete deploy web").prints("deployment.apps \"web\" deleted …");
    cluster.until("get rs,pods -o name", str::is_empty);

    // In the foreground the owner is the last to go.
    start();
    cluster.kubectl("delete deploy web --cascade=foreground").prints("deployment.apps \"web\" deleted …");
    cluster.kubectl("get rs,pods -o name").prints("");

    // What is left behind goes on, and is found again.
    start();
    let family = cluster.kubectl("get rs,pods -o name").text();
    cluster.kubectl("delete deploy web --cascade=orphan").prints("deployment.apps \"web\" deleted …");
    cluster.kubectl("get rs,pods -o name").prints(&family);
    let pod = family.lines().last().expect("a pod");
    cluster.kubectl(&format!("delete {pod}")).succeeds();
    let there = cluster.until("get pods -o name", |said| said.lines().count() == 2 && !said.contains(pod));
    start();
    cluster.kubectl("get pods -o name").prints(&there);
    cluster.kubectl("get rs -o jsonpath={.items[*].metadata.ownerReferences[0].kind}").prints("Deployment");
}

#[test]
fn a_namespace_takes_its_workloads_along() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}");
    // Every namespace has one.
    cluster.kubectl("wait --for=create sa/default -n team --timeout=60s").succeeds();
    let content = deployment("web", 3, "") + super::stateful::DB + super::batch::GOOD + super::batch::TICK;
    cluster.kubectl("create -n team -f -").input(&content).succeeds();
    cluster.rolled_out("deploy/web -n team");
    cluster.rolled_out("sts/db -n team");
    cluster.kubectl("delete ns team --timeout=60s").prints("namespace \"team\" deleted");
    cluster.kubectl("get ns team").fails("Error from server (NotFound): namespaces \"team\" not found");
    cluster.kubectl("get all,pvc,sa,cm,endpointslices -n team").warns("", "No resources found in team namespace.");
    cluster.until("get pv -o name", str::is_empty);
}
