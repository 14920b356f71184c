//! Claims and volumes: bound, kept while they are used, and gone as their policy says.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::*;

fn claim(name: &str, more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge_patch(&mut object, &more);
    object
}

fn volume(name: &str, more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
            "hostPath": {"path": "/data"},
            "storageClassName": "manual",
        },
    });
    merge_patch(&mut object, &more);
    object
}

/// Creates an object that is in no namespace.
async fn create(stage: &Stage, kind: &str, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    stage.all(kind).create(&PostParams::default(), &object).await.unwrap();
}

fn pod(claim: &str) -> Value {
    json!({
        "metadata": {"name": "user"},
        "spec": {
            "containers": [{"name": "main", "image": "web:1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

fn is_in(object: &Value, phase: &str) -> bool {
    object["status"]["phase"] == phase
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_a_volume_that_says_it_is_simulated() {
    let stage = Stage::new().await;
    stage.create(CLAIMS, claim("data", json!({}))).await;
    let data = stage.until(CLAIMS, "data", |data| is_in(data, "Bound")).await;
    assert_eq!(data["spec"]["storageClassName"], "simulated");
    assert_eq!(data["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(data["status"]["accessModes"], json!(["ReadWriteOnce"]));
    let name = data["spec"]["volumeName"].as_str().unwrap();
    let volume = stage.until(VOLUMES, name, |volume| is_in(volume, "Bound")).await;
    assert_eq!(volume["metadata"]["labels"]["konverge.dev/simulated"], "true");
    assert_eq!(volume["spec"]["claimRef"]["uid"], data["metadata"]["uid"]);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let class = stage.until(CLASSES, "simulated", |_| true).await;
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    stage.events("data", "ProvisioningSucceeded").await;

    // It goes with its claim.
    stage.some(CLAIMS).delete("data", &DeleteParams::default()).await.unwrap();
    stage.until_none(CLAIMS).await;
    stage.until_all(VOLUMES, |volumes| volumes.is_empty().then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_pod_uses_stays() {
    let stage = Stage::new().await;
    stage.create(CLAIMS, claim("data", json!({}))).await;
    stage.until(CLAIMS, "data", |data| is_in(data, "Bound")).await;
    let guarded = |data: &Value| data["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"]);
    let data = stage.until(CLAIMS, "data", guarded).await;
    stage.create(PODS, pod("data")).await;
    stage.until(PODS, "user", |user| is_in(user, "Running")).await;
    stage.some(CLAIMS).delete("data", &DeleteParams::default()).await.unwrap();
    stage.until(CLAIMS, "data", |data| data["metadata"]["deletionTimestamp"].is_string()).await;
    // A volume that is bound stays as well.
    let name = data["spec"]["volumeName"].as_str().unwrap();
    stage.all(VOLUMES).delete(name, &DeleteParams::default()).await.unwrap();
    stage.until(VOLUMES, name, |volume| volume["metadata"]["deletionTimestamp"].is_string()).await;
    // A change to the pod makes the controller look again.
    stage.patch(PODS, "user", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    stage.until(PODS, "user", |user| user["metadata"]["labels"]["looked"] == "at").await;
    assert!(stage.get(CLAIMS, "data").await.is_some());
    stage.some(PODS).delete("user", &DeleteParams::default()).await.unwrap();
    stage.until_none(CLAIMS).await;
    stage.until_all(VOLUMES, |volumes| volumes.is_empty().then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_that_are_there_are_bound_and_retained() {
    let stage = Stage::new().await;
    let manual = json!({"spec": {"storageClassName": "manual"}});
    stage.create(CLAIMS, claim("data", manual.clone())).await;
    stage.until(CLAIMS, "data", |data| is_in(data, "Pending")).await;
    stage.events("data", "ProvisioningFailed").await;
    let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let mut big = retain.clone();
    big["spec"]["capacity"] = json!({"storage": "9Gi"});
    create(&stage, VOLUMES, volume("small", retain)).await;
    let data = stage.until(CLAIMS, "data", |data| is_in(data, "Bound")).await;
    assert_eq!((&data["spec"]["volumeName"], &data["status"]["capacity"]["storage"]), (&json!("small"), &json!("2Gi")));
    stage.until(VOLUMES, "small", |volume| is_in(volume, "Bound")).await;

    // Another one waits for another volume, and may ask for it by name.
    let by_name = json!({"spec": {"storageClassName": "manual", "volumeName": "big"}});
    stage.create(CLAIMS, claim("more", by_name)).await;
    stage.until(CLAIMS, "more", |more| is_in(more, "Pending")).await;
    create(&stage, VOLUMES, volume("big", big)).await;
    stage.until(CLAIMS, "more", |more| is_in(more, "Bound")).await;

    // Without its claim a volume is released, and nobody gets it as long as it names the one it had.
    stage.some(CLAIMS).delete("data", &DeleteParams::default()).await.unwrap();
    stage.until(VOLUMES, "small", |volume| is_in(volume, "Released")).await;
    stage.create(CLAIMS, claim("next", manual)).await;
    stage.until(CLAIMS, "next", |next| is_in(next, "Pending")).await;
    let free = Patch::Merge(json!({"spec": {"claimRef": null}}));
    stage.all(VOLUMES).patch("small", &PatchParams::default(), &free).await.unwrap();
    let next = stage.until(CLAIMS, "next", |next| is_in(next, "Bound")).await;
    assert_eq!(next["spec"]["volumeName"], "small");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_classes_wait_for_a_pod() {
    let stage = Stage::new().await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later"},
        "provisioner": "konverge.dev/simulated",
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(&stage, CLASSES, class).await;
    stage.create(CLAIMS, claim("data", json!({"spec": {"storageClassName": "later"}}))).await;
    stage.events("data", "WaitForFirstConsumer").await;
    stage.until(CLAIMS, "data", |data| is_in(data, "Pending")).await;
    stage.create(PODS, pod("data")).await;
    let data = stage.until(CLAIMS, "data", |data| is_in(data, "Bound")).await;
    let node = stage.get(PODS, "user").await.unwrap()["spec"]["nodeName"].clone();
    assert_eq!(data["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], node);
    stage.some(PODS).delete("user", &DeleteParams::default()).await.unwrap();
    stage.some(CLAIMS).delete("data", &DeleteParams::default()).await.unwrap();
    let name = data["spec"]["volumeName"].as_str().unwrap();
    stage.until(VOLUMES, name, |volume| is_in(volume, "Released")).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_loses_its_volume_says_so() {
    let stage = Stage::new().await;
    stage.create(CLAIMS, claim("data", json!({}))).await;
    let data = stage.until(CLAIMS, "data", |data| is_in(data, "Bound")).await;
    let name = data["spec"]["volumeName"].as_str().unwrap();
    stage.all(VOLUMES).delete(name, &DeleteParams::default()).await.unwrap();
    let take = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage.all(VOLUMES).patch(name, &PatchParams::default(), &take).await.unwrap();
    stage.until(CLAIMS, "data", |data| is_in(data, "Lost")).await;
    stage.events("data", "ClaimLost").await;
    stage.stop().await;
}
