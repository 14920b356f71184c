//! StatefulSets: names, order, claims and revisions, as `kubectl` sees them.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::*;

fn stateful_set(replicas: i32, more: Value) -> Value {
    let mut object = deployment("db", replicas, "db:1", json!({"spec": {"serviceName": "db"}}));
    merge_patch(&mut object, &more);
    object
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// Whether `kubectl rollout status` would say that a StatefulSet is rolled out, with this many replicas.
fn is_complete(set: &Value, replicas: i64) -> bool {
    let status = |field: &str| set["status"][field].as_i64().unwrap_or_default();
    status("observedGeneration") >= set["metadata"]["generation"].as_i64().unwrap()
        && ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"].iter().all(|of| status(of) == replicas)
        && set["status"]["currentRevision"] == set["status"]["updateRevision"]
}

fn names(objects: &[Value]) -> Vec<String> {
    let mut names: Vec<String> =
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// The numbers of the revisions there are, and the image of each.
async fn revisions(stage: &Stage) -> Vec<(i64, String)> {
    let image = |revision: &Value| revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let revisions = stage.list(CONTROLLER_REVISIONS).await;
    let row = |revision: &Value| (revision["revision"].as_i64().unwrap(), image(revision).as_str().unwrap().to_owned());
    let mut rows: Vec<(i64, String)> = revisions.iter().map(row).collect();
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_come_in_order_with_names_of_their_own() {
    let stage = Stage::new().await;
    stage.create(STATEFUL_SETS, stateful_set(3, json!({}))).await;
    let db = stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    let revision = db["status"]["updateRevision"].as_str().unwrap();
    let pods = stage.list(PODS).await;
    assert_eq!(names(&pods), ["db-0", "db-1", "db-2"]);
    for pod in &pods {
        let (name, labels) = (&pod["metadata"]["name"], &pod["metadata"]["labels"]);
        assert_eq!(&labels["statefulset.kubernetes.io/pod-name"], name);
        assert_eq!(labels["controller-revision-hash"], revision);
        assert_eq!(&pod["spec"]["hostname"], name);
        assert_eq!(pod["spec"]["subdomain"], "db");
        let index = name.as_str().unwrap().rsplit('-').next().unwrap();
        assert_eq!(labels["apps.kubernetes.io/pod-index"], index);
    }
    let told = stage.events("db", "SuccessfulCreate").await;
    assert!(told.iter().any(|(_, note)| note == "Create Pod db-0 in StatefulSet db successful"), "{told:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_not_ready_holds_back_those_after_it() {
    let stage = Stage::new().await;
    let stuck =
        json!({"spec": {"template": {"metadata": {"annotations": {"simulate.konverge.dev/fail": "image-pull"}}}}});
    stage.create(STATEFUL_SETS, stateful_set(3, stuck.clone())).await;
    stage.until(PODS, "db-0", |pod| !pod["status"]["containerStatuses"].is_null()).await;
    stage.until(STATEFUL_SETS, "db", |db| db["status"]["replicas"] == 1).await;
    assert_eq!(names(&stage.list(PODS).await), ["db-0"]);

    // Unless they do not wait for each other.
    let mut parallel = stateful_set(3, stuck);
    merge_patch(&mut parallel, &json!({"metadata": {"name": "all"}, "spec": {"podManagementPolicy": "Parallel"}}));
    stage.create(STATEFUL_SETS, parallel).await;
    stage.until(STATEFUL_SETS, "all", |all| all["status"]["replicas"] == 3).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_undone_by_their_revisions() {
    let stage = Stage::new().await;
    stage.create(STATEFUL_SETS, stateful_set(3, json!({"spec": {"revisionHistoryLimit": 1}}))).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    let first = stage.list(CONTROLLER_REVISIONS).await.remove(0);
    stage.patch(STATEFUL_SETS, "db", image("db:2")).await;
    stage
        .until(STATEFUL_SETS, "db", |db| {
            is_complete(db, 3) && db["status"]["updateRevision"] != first["metadata"]["name"]
        })
        .await;
    let images = |pods: &[Value]| {
        pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(images(&stage.list(PODS).await), ["db:2", "db:2", "db:2"]);
    assert_eq!(revisions(&stage).await, [(1, "db:1".to_owned()), (2, "db:2".to_owned())]);

    // What `kubectl rollout undo` does: the data of the revision is a patch.
    let undo = Patch::Strategic(first["data"].clone());
    stage.some(STATEFUL_SETS).patch("db", &PatchParams::default(), &undo).await.unwrap();
    let back = |db: &Value| is_complete(db, 3) && db["status"]["updateRevision"] == first["metadata"]["name"];
    stage.until(STATEFUL_SETS, "db", back).await;
    assert_eq!(images(&stage.list(PODS).await), ["db:1", "db:1", "db:1"]);
    assert_eq!(revisions(&stage).await, [(2, "db:2".to_owned()), (3, "db:1".to_owned())]);

    // One old revision is kept.
    stage.patch(STATEFUL_SETS, "db", image("db:3")).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    let kept =
        |all: &[Value]| (all.len() == 2).then(|| all.iter().map(|each| each["revision"].clone()).collect::<Vec<_>>());
    let mut kept = stage.until_all(CONTROLLER_REVISIONS, kept).await;
    kept.sort_by_key(|revision| revision.as_i64());
    assert_eq!(kept, [json!(3), json!(4)]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_keeps_the_first_pods_as_they_are() {
    let stage = Stage::new().await;
    let partition = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}});
    stage.create(STATEFUL_SETS, stateful_set(3, partition)).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    stage.patch(STATEFUL_SETS, "db", image("db:2")).await;
    let status = |db: &Value, updated: i32| {
        let status = &db["status"];
        status["updatedReplicas"] == updated && status["readyReplicas"] == 3 && status["currentReplicas"] == 3 - updated
    };
    stage.until(STATEFUL_SETS, "db", |db| status(db, 1)).await;
    assert_eq!(stage.get(PODS, "db-2").await.unwrap()["spec"]["containers"][0]["image"], "db:2");
    // One below the partition comes back as it was.
    let before = stage.get(PODS, "db-0").await.unwrap();
    stage.some(PODS).delete("db-0", &DeleteParams::default()).await.unwrap();
    let after = stage.until(PODS, "db-0", |pod| pod["metadata"]["uid"] != before["metadata"]["uid"]).await;
    assert_eq!(after["spec"]["containers"][0]["image"], "db:1");
    stage.patch(STATEFUL_SETS, "db", json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_updated_when_they_are_deleted() {
    let stage = Stage::new().await;
    stage.create(STATEFUL_SETS, stateful_set(2, json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}))).await;
    stage.until(STATEFUL_SETS, "db", |db| db["status"]["readyReplicas"] == 2).await;
    stage.patch(STATEFUL_SETS, "db", image("db:2")).await;
    stage.until(STATEFUL_SETS, "db", |db| db["status"]["observedGeneration"] == db["metadata"]["generation"]).await;
    let before = stage.get(PODS, "db-1").await.unwrap();
    assert_eq!(before["spec"]["containers"][0]["image"], "db:1");
    stage.some(PODS).delete("db-1", &DeleteParams::default()).await.unwrap();
    let after = stage.until(PODS, "db-1", |pod| pod["metadata"]["uid"] != before["metadata"]["uid"]).await;
    assert_eq!(after["spec"]["containers"][0]["image"], "db:2");
    stage
        .until(STATEFUL_SETS, "db", |db| db["status"]["updatedReplicas"] == 1 && db["status"]["readyReplicas"] == 2)
        .await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_stay_or_go_as_the_policy_says() {
    let stage = Stage::new().await;
    let claims = |policy: Value| {
        json!({"spec": {
            "persistentVolumeClaimRetentionPolicy": policy,
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        }})
    };
    let policy = claims(json!({"whenScaled": "Delete", "whenDeleted": "Retain"}));
    stage.create(STATEFUL_SETS, stateful_set(3, policy)).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 3)).await;
    assert_eq!(names(&stage.list(CLAIMS).await), ["data-db-0", "data-db-1", "data-db-2"]);
    let pod = stage.get(PODS, "db-1").await.unwrap();
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-1");
    let told = stage.events("db", "SuccessfulCreate").await;
    let note = "Create Claim data-db-0 Pod db-0 in StatefulSet db success";
    assert!(told.iter().any(|(_, told)| told == note), "{told:?}");

    stage.patch(STATEFUL_SETS, "db", json!({"spec": {"replicas": 1}})).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 1)).await;
    stage.until_all(CLAIMS, |claims| (names(claims) == ["data-db-0"]).then_some(())).await;

    // Scaled up again, there is a new claim.
    stage.patch(STATEFUL_SETS, "db", json!({"spec": {"replicas": 2}})).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 2)).await;
    assert_eq!(names(&stage.list(CLAIMS).await), ["data-db-0", "data-db-1"]);

    stage.some(STATEFUL_SETS).delete("db", &DeleteParams::background()).await.unwrap();
    stage.until_none(PODS).await;
    stage.until_none(CONTROLLER_REVISIONS).await;
    assert_eq!(names(&stage.list(CLAIMS).await), ["data-db-0", "data-db-1"]);

    // The same claims serve the next StatefulSet of that name, and go with it.
    let policy = claims(json!({"whenScaled": "Retain", "whenDeleted": "Delete"}));
    stage.create(STATEFUL_SETS, stateful_set(2, policy)).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 2)).await;
    stage
        .until_all(CLAIMS, |all| {
            all.iter().all(|claim| claim["metadata"]["ownerReferences"][0]["name"] == "db").then_some(())
        })
        .await;
    stage.some(STATEFUL_SETS).delete("db", &DeleteParams::background()).await.unwrap();
    stage.until_none(CLAIMS).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counting_begins_where_it_is_told_to() {
    let stage = Stage::new().await;
    stage.create(STATEFUL_SETS, stateful_set(2, json!({"spec": {"ordinals": {"start": 5}}}))).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 2)).await;
    assert_eq!(names(&stage.list(PODS).await), ["db-5", "db-6"]);
    stage.patch(STATEFUL_SETS, "db", json!({"spec": {"ordinals": {"start": 6}}})).await;
    stage.until(STATEFUL_SETS, "db", |db| is_complete(db, 2)).await;
    stage.until_all(PODS, |pods| (names(pods) == ["db-6", "db-7"]).then_some(())).await;
    stage.stop().await;
}
