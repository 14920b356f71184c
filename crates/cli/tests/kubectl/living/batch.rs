//! Jobs and CronJobs.

use crate::cluster::Cluster;
use crate::expect;

/// A Job of three pods, two at a time.
pub(super) const GOOD: &str = r#"---
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec:
  completions: 3
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}
"#;

/// A Job that fails.
const BAD: &str = r#"---
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  completions: 1
  parallelism: 1
  backoffLimit: 0
  template:
    metadata: {annotations: {simulate.konverge.dev/exit-code: "3"}}
    spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}
"#;

/// A CronJob whose time does not come.
pub(super) const TICK: &str = r#"---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "0 0 30 2 *"
  concurrencyPolicy: Allow
  suspend: false
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}}}
"#;

#[test]
fn jobs_end_well_or_not() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(&(GOOD.to_owned() + BAD));
    cluster.kubectl("wait --for=condition=Complete job/good --timeout=60s").prints("job.batch/good condition met");
    cluster.kubectl("wait --for=condition=Failed job/bad --timeout=60s").prints("job.batch/bad condition met");
    cluster
        .kubectl("get jobs")
        .prints("NAME STATUS COMPLETIONS DURATION AGE\nbad Failed 0/1 *s *s\ngood Complete 3/3 *s *s");
    let phases = "-o jsonpath={.items[*].status.phase}";
    cluster.kubectl(&format!("get pods -l job-name=good {phases}")).prints("Succeeded Succeeded Succeeded");
    cluster.kubectl(&format!("get pods -l job-name=bad {phases}")).prints("Failed");
    let code = "get pods -l job-name=bad -o jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}";
    cluster.kubectl(code).prints("3");
    cluster.kubectl("describe job bad").mentions(&[
        "Pods Statuses: 0 Active (0 Ready) / 0 Succeeded / 1 Failed",
        "Job has reached the specified backoff limit",
    ]);
    cluster.kubectl("delete jobs --all --cascade=foreground").succeeds();
    cluster.kubectl("get pods").warns("", "No resources found in default namespace.");
}

#[test]
fn a_cron_job_can_be_run_by_hand() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(TICK);
    cluster
        .kubectl("get cronjob tick")
        .prints("NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE\ntick 0 0 30 2 * <none> False 0 <none> *s");
    // The object as it is sent; what sends it is about formats, not about controllers.
    let manifest = cluster.kubectl("create job now --from=cronjob/tick --dry-run=client -o yaml").text();
    cluster.create(&manifest);
    cluster.kubectl("wait --for=condition=Complete job/now --timeout=60s").prints("job.batch/now condition met");
    let owner = cluster.object("job now")["metadata"]["ownerReferences"][0].clone();
    expect::has(&owner, &serde_json::json!({"kind": "CronJob", "name": "tick", "controller": true}));
    cluster.kubectl("delete cronjob tick").succeeds();
    cluster.until("get jobs,pods -o name", str::is_empty);
}
