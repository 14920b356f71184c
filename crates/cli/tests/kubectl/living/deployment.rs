//! Deployments: rolled out, undone, restarted, paused, scaled, broken and mended.

use super::deployment;
use crate::cluster::Cluster;

const IMAGE: &str = "get deploy web -o jsonpath={.spec.template.spec.containers[0].image}";

/// The names of the pods there are, sorted.
fn pods(cluster: &Cluster) -> Vec<String> {
    cluster.kubectl("get pods -l app=web -o name").text().lines().map(str::to_owned).collect()
}

#[test]
fn rolling_out_and_back() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(&deployment("web", 3, ""));
    let mut status = cluster.kubectl("rollout status deploy/web --timeout=60s").text();
    assert_eq!(status.lines().last(), Some("deployment \"web\" successfully rolled out"), "{status}");
    cluster.kubectl("get deploy web").prints("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 3/3 3 3 *s");
    cluster.kubectl("wait --for=condition=Available deploy/web").prints("deployment.apps/web condition met");
    cluster.kubectl("wait --for=condition=Ready pod -l app=web").mentions(&["condition met"]);
    let history = |revisions: &[u32]| {
        let rows: String = revisions.iter().map(|revision| format!("{revision} <none>\n")).collect();
        cluster
            .kubectl("rollout history deploy/web")
            .prints(&format!("deployment.apps/web\nREVISION CHANGE-CAUSE\n{rows}"));
    };
    history(&[1]);

    cluster.kubectl("set image deploy/web main=nginx:1.28").prints("deployment.apps/web image updated");
    status = cluster.kubectl("rollout status deploy/web --timeout=60s").text();
    assert_eq!(status.lines().last(), Some("deployment \"web\" successfully rolled out"), "{status}");
    history(&[1, 2]);
    cluster.kubectl("rollout history deploy/web --revision=2").mentions(&["Image: nginx:1.28"]);
    cluster
        .kubectl("get rs -l app=web -o custom-columns=I:.spec.template.spec.containers[0].image,N:.status.readyReplicas --sort-by=.spec.replicas")
        .prints("I N\nnginx:1.27 <none>\nnginx:1.28 3");

    cluster.kubectl("rollout undo deploy/web").prints("deployment.apps/web rolled back");
    cluster.rolled_out("deploy/web");
    cluster.kubectl(IMAGE).prints("nginx:1.27");
    history(&[2, 3]);
    cluster.kubectl("rollout undo deploy/web --to-revision=2").prints("deployment.apps/web rolled back");
    cluster.rolled_out("deploy/web");
    cluster.kubectl(IMAGE).prints("nginx:1.28");
    history(&[3, 4]);

    let before = pods(&cluster);
    cluster.kubectl("rollout restart deploy/web").prints("deployment.apps/web restarted");
    cluster.rolled_out("deploy/web");
    let after = pods(&cluster);
    assert!(after.len() == 3 && after.iter().all(|pod| !before.contains(pod)), "{before:?} {after:?}");
    history(&[3, 4, 5]);
}

#[test]
fn what_is_paused_waits() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(&deployment("web", 2, ""));
    cluster.rolled_out("deploy/web");
    cluster.kubectl("rollout pause deploy/web").prints("deployment.apps/web paused");
    cluster.kubectl("set image deploy/web main=nginx:1.28").succeeds();
    let generation = cluster.object("deploy web")["metadata"]["generation"].clone();
    cluster
        .kubectl(&format!("wait --for=jsonpath={{.status.observedGeneration}}={generation} deploy/web --timeout=60s"))
        .succeeds();
    cluster
        .kubectl("rollout status deploy/web --watch=false")
        .prints("Waiting for deployment \"web\" rollout to finish: 0 out of 2 new replicas have been updated...");
    // It is scaled nevertheless.
    cluster.kubectl("scale deploy web --replicas=4").prints("deployment.apps/web scaled");
    cluster.kubectl("wait --for=jsonpath={.status.readyReplicas}=4 deploy/web --timeout=60s").succeeds();
    cluster
        .kubectl("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}")
        .prints("nginx:1.27 nginx:1.27 nginx:1.27 nginx:1.27");
    cluster.kubectl("rollout resume deploy/web").prints("deployment.apps/web resumed");
    cluster.rolled_out("deploy/web");
    cluster.kubectl("get deploy web").prints("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 4/4 4 4 *s");
}

#[test]
fn pods_are_as_many_as_asked_for() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(&deployment("web", 2, ""));
    cluster.rolled_out("deploy/web");
    for replicas in [5, 1, 0, 3] {
        cluster.kubectl(&format!("scale deploy web --replicas={replicas}")).prints("deployment.apps/web scaled");
        cluster.rolled_out("deploy/web");
        cluster.until("get pods -o name", |said| said.lines().count() == replicas);
    }
    // One that is deleted comes back under another name.
    let before = pods(&cluster);
    let gone = &before[0];
    cluster.kubectl(&format!("delete {gone}")).prints(&format!("{} …", gone.replace("pod/", "pod \"") + "\" deleted"));
    cluster.until("get pods -l app=web -o name", |said| said.lines().count() == 3 && !said.contains(gone.as_str()));
    cluster.kubectl("wait --for=condition=Ready pod -l app=web --timeout=60s").succeeds();

    // And as many as the work takes, if somebody says how much there is.
    cluster.create(
        "---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, annotations: {simulate.konverge.dev/total-cpu: \"3\"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
",
    );
    cluster.kubectl("wait --for=jsonpath={.status.readyReplicas}=6 deploy/web --timeout=60s").succeeds();
    cluster.kubectl("wait --for=condition=ScalingActive hpa/web --timeout=60s").succeeds();
}

#[test]
fn what_is_broken_does_not_roll_out_and_undo_mends() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(&deployment("web", 4, ""));
    cluster.rolled_out("deploy/web");
    for (fail, sign) in [("image-pull", "ImagePullBackOff"), ("crash-loop", "CrashLoopBackOff")] {
        let template = format!(
            r#"{{"metadata":{{"annotations":{{"simulate.konverge.dev/fail":"{fail}"}}}},"spec":{{"containers":[{{"name":"main","image":"nginx:{fail}"}}]}}}}"#
        );
        let patch = format!(r#"{{"spec":{{"progressDeadlineSeconds":1,"template":{template}}}}}"#);
        cluster.kubectl(&format!("patch deploy web -p '{patch}'")).prints("deployment.apps/web patched");
        let (_, aside) = cluster.kubectl("rollout status deploy/web --timeout=60s").says(1);
        assert_eq!(aside, "error: deployment \"web\" exceeded its progress deadline\n", "{fail}");
        // As many as may be missing are, and no more.
        let reasons = "get pods -l app=web -o jsonpath={.items[*].status.containerStatuses[0].state.waiting.reason}";
        cluster.until(reasons, |said| said == format!("{sign} {sign}"));
        cluster.kubectl("wait --for=condition=Available deploy/web").prints("deployment.apps/web condition met");
        cluster.kubectl("get deploy web").prints("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 3/4 2 3 *s");

        // An undo keeps the deadline, and on a busy machine a good rollout may take longer than a second, too.
        let patience = r#"patch deploy web -p '{"spec":{"progressDeadlineSeconds":600}}'"#;
        cluster.kubectl(patience).prints("deployment.apps/web patched");
        cluster.kubectl("rollout undo deploy/web").prints("deployment.apps/web rolled back");
        cluster.rolled_out("deploy/web");
        cluster.kubectl("get deploy web").prints("NAME READY UP-TO-DATE AVAILABLE AGE\nweb 4/4 4 4 *s");
        cluster.kubectl(IMAGE).prints("nginx:1.27");
    }
}
