//! `kubectl wait`: for conditions, for values, for the end.

use serde_json::json;

use crate::cluster::Cluster;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn what_is_already_so() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(WEB.to_owned() + &widget("w", "size: small")));
    cluster
        .kubectl("wait --for=condition=Established crd/widgets.example.com --timeout=30s")
        .prints("customresourcedefinition.apiextensions.k8s.io/widgets.example.com condition met");
    cluster
        .kubectl("wait --for=jsonpath={.spec.color}=blue wd/w --timeout=30s")
        .prints("widget.example.com/w condition met");
    cluster
        .kubectl("wait --for=jsonpath={.spec.replicas}=2 deploy --all --timeout=30s")
        .prints("deployment.apps/web condition met");
    cluster.kubectl("wait --for=delete wd/none --timeout=30s").prints("");
    // In time or not at all.
    for (wait, what) in [("--for=condition=Ready wd/w", "widgets/w"), ("--for=delete deploy/web", "deployments/web")] {
        // Ending a watch this soon makes kubectl log lines of its own.
        let (_, aside) = cluster.kubectl(&format!("wait {wait} --timeout=300ms")).says(1);
        let last = format!("error: timed out waiting for the condition on {what}");
        assert_eq!(aside.lines().last(), Some(last.as_str()), "{aside}");
    }
    cluster
        .kubectl("wait --for=condition=Ready wd/none --timeout=1s")
        .fails("Error from server (NotFound): widgets.example.com \"none\" not found");
}

#[test]
fn what_is_yet_to_come() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(WEB.to_owned() + &widget("w", "size: small") + &config_map("a", "k", "1")));
    let mut ready = cluster.kubectl("wait --for=condition=Ready wd/w --timeout=60s").follow();
    let mut phase = cluster.kubectl("wait --for=jsonpath={.status.phase}=Done wd/w --timeout=60s").follow();
    let mut available = cluster.kubectl("wait --for=condition=Available deploy/web --timeout=60s").follow();
    let gone = cluster.kubectl("wait --for=delete cm/a --timeout=60s").follow();
    let status = |what: &str, status: serde_json::Value| {
        let patch = json!({"status": status});
        cluster.kubectl(&format!("patch {what} --subresource=status --type=merge -p '{patch}'")).succeeds();
    };
    status("wd/w", json!({"conditions": [{"type": "Ready", "status": "False"}]}));
    status("wd/w", json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    status("wd/w", json!({"phase": "Done"}));
    status("deploy/web", json!({"conditions": [{"type": "Available", "status": "True"}]}));
    cluster.kubectl("delete cm a").succeeds();
    ready.next("widget.example.com/w condition met");
    phase.next("widget.example.com/w condition met");
    available.next("deployment.apps/web condition met");
    for wait in [ready, phase, available, gone] {
        wait.ends();
    }
}
