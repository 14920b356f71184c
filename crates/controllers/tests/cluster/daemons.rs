//! DaemonSets: one pod on each node, as `kubectl` sees them.

use std::collections::BTreeSet;

use konverge_controllers::{Options, SimulationSettings};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::*;

async fn with_nodes(nodes: usize) -> Stage {
    let simulation = SimulationSettings { nodes, ..SimulationSettings::default() };
    let stage = Stage::with(Options { simulation, ..Options::default() }).await;
    stage.until_all(NODES, |all| (all.len() == nodes).then_some(())).await;
    stage
}

fn daemon_set(more: Value) -> Value {
    let mut object = deployment("log", 0, "log:1", json!({}));
    object["spec"].as_object_mut().unwrap().remove("replicas");
    merge_patch(&mut object, &more);
    object
}

/// Whether `kubectl rollout status` would say that a DaemonSet is rolled out, on this many nodes.
fn is_complete(set: &Value, nodes: i64) -> bool {
    let status = |field: &str| set["status"][field].as_i64().unwrap_or_default();
    let all = ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"];
    status("observedGeneration") >= set["metadata"]["generation"].as_i64().unwrap()
        && all.iter().all(|field| status(field) == nodes)
        && status("numberMisscheduled") == 0
}

/// The nodes that have a pod of an image.
fn nodes_with(pods: &[Value], image: &str) -> BTreeSet<String> {
    let has = pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == image);
    has.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_has_a_pod_and_new_nodes_get_one() {
    let stage = with_nodes(3).await;
    stage.create(DAEMON_SETS, daemon_set(json!({}))).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 3)).await;
    let pods = stage.list(PODS).await;
    assert_eq!((pods.len(), nodes_with(&pods, "log:1").len()), (3, 3));
    let tolerations = pods[0]["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().any(|each| each["key"] == "node.kubernetes.io/unschedulable"), "{tolerations:?}");

    // A closed node keeps its daemons, and a new one that is closed gets them.
    let name = pods[0]["spec"]["nodeName"].as_str().unwrap();
    stage.patch(NODES, name, json!({"spec": {"unschedulable": true}})).await;
    let more = json!({"metadata": {"name": "more", "labels": {"konverge.dev/simulated": "true"}}, "spec": {"unschedulable": true}});
    stage.create(NODES, more).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 4)).await;
    stage.all(NODES).delete("more", &DeleteParams::default()).await.unwrap();
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 3)).await;
    let told = stage.events("log", "SuccessfulCreate").await;
    assert!(told.iter().any(|(_, note)| note.starts_with("Created pod: log-")), "{told:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_selected_and_refuse() {
    let stage = with_nodes(3).await;
    let names: Vec<String> = stage
        .until_all(NODES, |nodes| {
            Some(nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect())
        })
        .await;
    stage.patch(NODES, &names[0], json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    let selects = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}});
    stage.create(DAEMON_SETS, daemon_set(selects)).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 1)).await;
    stage.patch(NODES, &names[1], json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 2)).await;
    stage.patch(NODES, &names[0], json!({"metadata": {"labels": {"disk": null}}})).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 1)).await;
    stage.until_all(PODS, |pods| (nodes_with(pods, "log:1") == BTreeSet::from([names[1].clone()])).then_some(())).await;
    // A taint that evicts.
    stage.patch(NODES, &names[1], json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})).await;
    stage.until_none(PODS).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 0)).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_undone_by_their_revisions() {
    let stage = with_nodes(3).await;
    stage.create(DAEMON_SETS, daemon_set(json!({}))).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 3)).await;
    let first = stage.list(CONTROLLER_REVISIONS).await.remove(0);
    let complete = |log: &Value| is_complete(log, 3);
    stage.patch(DAEMON_SETS, "log", image("log:2")).await;
    stage.until(DAEMON_SETS, "log", complete).await;
    assert_eq!(nodes_with(&stage.list(PODS).await, "log:2").len(), 3);

    // What `kubectl rollout undo` does: the data of the revision is a patch.
    let undo = Patch::Strategic(first["data"].clone());
    stage.some(DAEMON_SETS).patch("log", &PatchParams::default(), &undo).await.unwrap();
    stage.until(DAEMON_SETS, "log", complete).await;
    // One that has ended may still be on its way out when the next one is there.
    let hash = &first["metadata"]["labels"]["controller-revision-hash"];
    let is_back = |pod: &Value| &pod["metadata"]["labels"]["controller-revision-hash"] == hash;
    let pods = stage.until_all(PODS, |pods| pods.iter().all(is_back).then(|| pods.to_vec())).await;
    assert_eq!((pods.len(), nodes_with(&pods, "log:1").len()), (3, 3));
    let revisions = stage.list(CONTROLLER_REVISIONS).await;
    let mut numbers: Vec<i64> = revisions.iter().map(|each| each["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_surge_leaves_no_gap() {
    let stage = with_nodes(2).await;
    let surge = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}});
    stage.create(DAEMON_SETS, daemon_set(surge)).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 2)).await;
    // A pod that never becomes ready takes nobody's place.
    let mut broken = image("log:2");
    broken["spec"]["template"]["metadata"]["annotations"] = json!({"simulate.konverge.dev/fail": "image-pull"});
    stage.patch(DAEMON_SETS, "log", broken).await;
    stage.until_all(PODS, |pods| (nodes_with(pods, "log:2").len() == 1 && pods.len() == 3).then_some(())).await;
    stage.until(DAEMON_SETS, "log", |log| log["status"]["numberAvailable"] == 2).await;
    let mut mended = image("log:3");
    mended["spec"]["template"]["metadata"]["annotations"] = json!({"simulate.konverge.dev/fail": null});
    stage.patch(DAEMON_SETS, "log", mended).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 2)).await;
    stage.until_all(PODS, |pods| (pods.len() == 2 && nodes_with(pods, "log:3").len() == 2).then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_updated_when_they_are_deleted() {
    let stage = with_nodes(2).await;
    stage.create(DAEMON_SETS, daemon_set(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}))).await;
    stage.until(DAEMON_SETS, "log", |log| is_complete(log, 2)).await;
    stage.patch(DAEMON_SETS, "log", image("log:2")).await;
    let seen = |log: &Value| log["status"]["observedGeneration"] == log["metadata"]["generation"];
    stage.until(DAEMON_SETS, "log", seen).await;
    assert_eq!(nodes_with(&stage.list(PODS).await, "log:1").len(), 2);
    let gone = stage.list(PODS).await.remove(0);
    stage.some(PODS).delete(gone["metadata"]["name"].as_str().unwrap(), &DeleteParams::default()).await.unwrap();
    let node = gone["spec"]["nodeName"].as_str().unwrap().to_owned();
    stage.until_all(PODS, |pods| (nodes_with(pods, "log:2") == BTreeSet::from([node.clone()])).then_some(())).await;
    stage
        .until(DAEMON_SETS, "log", |log| {
            log["status"]["updatedNumberScheduled"] == 1 && log["status"]["numberAvailable"] == 2
        })
        .await;
    stage.stop().await;
}
