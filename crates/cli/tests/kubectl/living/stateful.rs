//! StatefulSets, one pod after the other, and the claims they leave behind.

use crate::cluster::Cluster;

/// A StatefulSet whose pods have a disk each.
pub(super) const DB: &str = r#"---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  podManagementPolicy: OrderedReady
  updateStrategy: {type: RollingUpdate}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "postgres:17"}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

#[test]
fn one_after_the_other() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    let stuck = "metadata: {labels: {app: db}, annotations: {simulate.konverge.dev/fail: never-ready}}";
    cluster.create(&DB.replace("metadata: {labels: {app: db}}", stuck));
    cluster.kubectl("wait --for=jsonpath={.status.phase}=Running pod/db-0 --timeout=60s").succeeds();
    cluster.kubectl("wait --for=jsonpath={.status.currentReplicas}=1 sts/db --timeout=60s").succeeds();
    cluster.kubectl("get pods").prints("NAME READY STATUS RESTARTS AGE\ndb-0 0/1 Running 0 *s");
    // As on a cluster, a pod that never was ready is replaced only when somebody deletes it.
    let mend = r#"{"spec":{"template":{"metadata":{"annotations":null}}}}"#;
    cluster.kubectl(&format!("patch sts db --type=merge -p '{mend}'")).succeeds();
    // Nobody waits for its end: kubectl looks for it twice, and takes a successor that came in between for the same pod.
    cluster.kubectl("delete pod db-0 --wait=false").succeeds();
    cluster.rolled_out("sts/db");
    cluster.kubectl("get sts db").prints("NAME READY AGE\ndb 3/3 *s");
    cluster.kubectl("get pods -o name").prints("pod/db-0\npod/db-1\npod/db-2");
    cluster.kubectl("get pvc").prints(
        "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE
             data-db-0 Bound pvc-* 1Gi RWO simulated <unset> *s
             data-db-1 Bound pvc-* 1Gi RWO simulated <unset> *s
             data-db-2 Bound pvc-* 1Gi RWO simulated <unset> *s",
    );

    let images = "get pods -o jsonpath={.items[*].spec.containers[0].image}";
    cluster.kubectl("set image sts/db main=postgres:18").prints("statefulset.apps/db image updated");
    cluster.rolled_out("sts/db");
    cluster.kubectl(images).prints("postgres:18 postgres:18 postgres:18");
    cluster
        .kubectl("rollout history sts/db")
        .prints("statefulset.apps/db\nREVISION CHANGE-CAUSE\n1 <none>\n2 <none>\n3 <none>");
    cluster.kubectl("rollout undo sts/db").prints("statefulset.apps/db rolled back");
    cluster.rolled_out("sts/db");
    cluster.kubectl(images).prints("postgres:17 postgres:17 postgres:17");

    // From the end, and the disks stay.
    let disk = cluster.object("pvc data-db-0")["spec"]["volumeName"].clone();
    cluster.kubectl("scale sts db --replicas=1").prints("statefulset.apps/db scaled");
    cluster.kubectl("wait --for=delete pod/db-1 pod/db-2 --timeout=60s").succeeds();
    cluster.kubectl("get pods -o name").prints("pod/db-0");
    cluster.kubectl("delete sts db --cascade=foreground").succeeds();
    cluster.kubectl("get pods -o name").prints("");
    cluster
        .kubectl("get pvc -o name")
        .prints("persistentvolumeclaim/data-db-0\npersistentvolumeclaim/data-db-1\npersistentvolumeclaim/data-db-2");
    cluster.create(DB);
    cluster.rolled_out("sts/db");
    assert_eq!(cluster.object("pvc data-db-0")["spec"]["volumeName"], disk, "the same pod has the same disk");
}

#[test]
fn claims() {
    let Some(cluster) = Cluster::develop(&["--operator", "none"]) else { return };
    cluster.create(
        "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers: [{name: main, image: nginx}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
",
    );
    cluster.kubectl("wait --for=jsonpath={.status.phase}=Bound pvc/disk --timeout=60s").succeeds();
    cluster.kubectl("wait --for=condition=Ready pod/user --timeout=60s").succeeds();
    cluster.kubectl("describe pvc disk").mentions(&["Status: Bound", "Capacity: 2Gi", "Used By: user"]);
    // A disk in use stays until nobody uses it.
    cluster.kubectl("delete pvc disk --wait=false").succeeds();
    cluster.kubectl("get pvc").prints(
        "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE
         disk Terminating pvc-* 2Gi RWO simulated <unset> *s",
    );
    cluster.kubectl("delete pod user").succeeds();
    cluster.kubectl("wait --for=delete pvc/disk --timeout=60s").succeeds();
    cluster.until("get pv -o name", str::is_empty);
}
