//! `konverge apiserver --controllers`: a whole control plane, without what `konverge dev` adds for developers.

use crate::cluster::Cluster;

use super::deployment;

#[test]
fn an_apiserver_with_controllers_runs_workloads() {
    let Some(cluster) = Cluster::start_with(&["--controllers", "--nodes", "2"]) else { return };
    cluster.create(&deployment("web", 3, ""));
    cluster.rolled_out("deployment/web");
    assert_eq!(cluster.kubectl("get nodes -o name").text().lines().count(), 2);

    let metrics = cluster.kubectl("get --raw /metrics").text();
    let counted = |line: &&str| {
        line.starts_with("controller_runtime_reconcile_total") && line.contains("\"deployment-controller\"")
    };
    assert!(metrics.lines().any(|line| counted(&line) && !line.ends_with(" 0")), "{metrics}");
    assert_eq!(cluster.kubectl("get --raw /readyz").text(), "ok");

    cluster.kubectl("delete deployment web --cascade=foreground").succeeds();
    cluster.until("get pods,replicasets -o name", str::is_empty);
}

#[test]
fn controllers_are_chosen_by_name() {
    let Some(cluster) = Cluster::start_with(&["--controllers=*,-deployment-controller"]) else { return };
    cluster.create(&deployment("web", 1, ""));
    // The account of a namespace shows that other controllers run.
    cluster.until("get serviceaccount default -o name --ignore-not-found", |found| !found.is_empty());
    assert_eq!(cluster.kubectl("get replicasets -o name").text(), "");
}
