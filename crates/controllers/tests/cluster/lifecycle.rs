//! Pods on simulated nodes, as `kubectl` sees them.

use std::time::Duration;

use konverge_controllers::{Options, SimulationSettings};
use konverge_schema::merge_patch;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

fn pod(name: &str, spec: Value, annotations: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    merge_patch(&mut object["spec"], &spec);
    object
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").0 == "True"
}

fn waiting(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default()
}

fn fast() -> Options {
    let simulation = SimulationSettings {
        restart_backoff: Duration::from_millis(10),
        eviction_delay: Duration::ZERO,
        ..SimulationSettings::default()
    };
    Options { simulation, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_becomes_ready_in_two_writes_and_says_that_nothing_runs() {
    let stage = Stage::new().await;
    let node = stage.until(NODES, "konverge-node-1", |node| condition(node, "Ready").0 == "True").await;
    assert_eq!(node["metadata"]["labels"]["konverge.dev/simulated"], "true");
    // Where another pod runs, whoever places them knows the node: that it is there does not say so.
    stage.create(PODS, pod("first", json!({}), json!({}))).await;
    stage.until(PODS, "first", is_ready).await;
    // A watch of just this pod sees every write to it.
    let api = stage.some(PODS);
    let created =
        stage.create(PODS, pod("p", json!({"initContainers": [{"name": "init", "image": "init:1"}]}), json!({}))).await;
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let only = kube::api::WatchParams::default().fields("metadata.name=p");
    let mut changes = Box::pin(api.watch(&only, version).await.unwrap());
    let mut writes = 0;
    let ready = loop {
        use futures_util::TryStreamExt;
        let change = changes.try_next().await.unwrap().unwrap();
        let kube::api::WatchEvent::Modified(object) = change else { panic!("{change:?}") };
        writes += 1;
        let object = serde_json::to_value(object).unwrap();
        if is_ready(&object) {
            break object;
        }
    };
    assert_eq!(writes, 2, "one for the node, one for the status");
    assert_eq!((phase(&ready), ready["spec"]["nodeName"].as_str()), ("Running", Some("konverge-node-1")));
    let status = &ready["status"];
    assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    let main = &status["containerStatuses"][0];
    assert_eq!((&main["ready"], &main["started"], &main["restartCount"]), (&json!(true), &json!(true), &json!(0)));
    assert!(main["containerID"].as_str().unwrap().starts_with("konverge-sim://"), "{main}");
    assert!(status["podIP"].is_string() && status["hostIP"].is_string() && status["startTime"].is_string(), "{status}");
    let told = stage.events("p", "Started").await;
    assert!(told.iter().any(|(reason, note)| reason == "Scheduled" && note == "Successfully assigned default/p to konverge-node-1"), "{told:?}");

    for name in ["first", "p"] {
        stage.some(PODS).delete(name, &DeleteParams::default()).await.unwrap();
    }
    stage.until_none(PODS).await;
    stage.events("p", "Killing").await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_on_demand() {
    let stage = Stage::with(fast()).await;
    let fail = |how: &str| json!({"simulate.konverge.dev/fail": how});
    stage.create(PODS, pod("crash", json!({}), fail("crash-loop"))).await;
    stage.create(PODS, pod("pull", json!({}), fail("image-pull"))).await;
    stage.create(PODS, pod("unready", json!({}), fail("never-ready"))).await;
    stage.create(PODS, pod("done", json!({"restartPolicy": "Never"}), json!({}))).await;
    stage
        .create(PODS, pod("failed", json!({"restartPolicy": "Never"}), json!({"simulate.konverge.dev/exit-code": "3"})))
        .await;

    let crash = stage
        .until(PODS, "crash", |pod| pod["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(3))
        .await;
    let main = &crash["status"]["containerStatuses"][0];
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 1, "{main}");
    stage.until(PODS, "crash", |pod| waiting(pod) == "CrashLoopBackOff").await;
    stage.events("crash", "BackOff").await;
    let pull = stage.until(PODS, "pull", |pod| waiting(pod) == "ImagePullBackOff").await;
    assert_eq!(phase(&pull), "Pending");
    stage.events("pull", "Failed").await;
    let unready = stage.until(PODS, "unready", |pod| phase(pod) == "Running").await;
    assert_eq!(condition(&unready, "Ready"), ("False".into(), "ContainersNotReady".into()));
    stage.until(PODS, "done", |pod| phase(pod) == "Succeeded").await;
    let failed = stage.until(PODS, "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);

    // What is mended goes on.
    stage.patch(PODS, "pull", json!({"metadata": {"annotations": {"simulate.konverge.dev/fail": null}}})).await;
    stage.until(PODS, "pull", is_ready).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_for_a_node_that_fits() {
    let stage = Stage::new().await;
    stage.until(NODES, "konverge-node-1", |node| condition(node, "Ready").0 == "True").await;
    stage.patch(NODES, "konverge-node-1", json!({"spec": {"unschedulable": true}})).await;
    // The scheduler reads the node from its cache, which hears of the patch when it hears: until then pods still fit.
    let mut pods = 0;
    let p = loop {
        let name = format!("p-{pods}");
        stage.create(PODS, pod(&name, json!({}), json!({}))).await;
        let p = stage.until(PODS, &name, |pod| !condition(pod, "PodScheduled").0.is_empty()).await;
        if condition(&p, "PodScheduled").1 == "Unschedulable" {
            break p;
        }
        pods += 1;
        assert!(pods < 100, "100 pods were put on a node that takes none");
    };
    let name = text(&p["metadata"], "name");
    assert_eq!(phase(&p), "Pending");
    // Before that, the cache may still have the taint of a node that is not ready.
    let why = "0/1 nodes are available: 1 node(s) were unschedulable.";
    stage
        .until_all(EVENTS, |events| {
            let about = |event: &&Value| event["regarding"]["name"] == *name && event["reason"] == "FailedScheduling";
            events.iter().filter(about).any(|event| event["note"] == why).then_some(())
        })
        .await;
    stage.patch(NODES, "konverge-node-1", json!({"spec": {"unschedulable": null}})).await;
    let p = stage.until(PODS, &name, is_ready).await;
    assert_eq!(condition(&p, "PodScheduled").0, "True");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_lost_node_are_replaced_elsewhere() {
    let mut options = fast();
    options.simulation.nodes = 2;
    let stage = Stage::with(options).await;
    // Who says nothing is given five minutes by the API server.
    let leaves =
        |taint: &str| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    let leave = [leaves("node.kubernetes.io/unreachable"), leaves("node.kubernetes.io/not-ready")];
    let more = json!({"spec": {"template": {"spec": {"tolerations": leave}}}});
    stage.create(DEPLOYMENTS, deployment("web", 4, "web:1", more)).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 4)).await;
    stage
        .patch(NODES, "konverge-node-1", json!({"metadata": {"annotations": {"simulate.konverge.dev/lost": "true"}}}))
        .await;
    let lost = stage.until(NODES, "konverge-node-1", |node| condition(node, "Ready").0 == "Unknown").await;
    assert_eq!(condition(&lost, "Ready").1, "NodeStatusUnknown");
    let on = |pods: &[Value], node: &str| {
        let there = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node && is_ready(pod));
        there.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).count()
    };
    stage.until_all(PODS, |pods| (on(pods, "konverge-node-2") == 4).then_some(())).await;
    // Those that were there cannot end; they are gone when the node is back.
    stage
        .patch(NODES, "konverge-node-1", json!({"metadata": {"annotations": {"simulate.konverge.dev/lost": null}}}))
        .await;
    stage.until(NODES, "konverge-node-1", |node| condition(node, "Ready").0 == "True").await;
    stage.until_all(PODS, |pods| (pods.len() == 4 && on(pods, "konverge-node-2") == 4).then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steady_state_survives_a_restart_without_a_write() {
    let server = server().await;
    let stage = Stage::on(server.clone(), Options::default());
    stage.create(DEPLOYMENTS, deployment("web", 3, "web:1", json!({}))).await;
    stage
        .until(DEPLOYMENTS, "web", |web| {
            is_rolled_out(web, 3) && condition(web, "Progressing").1 == "NewReplicaSetAvailable"
        })
        .await;
    stage.until_all(SERVICE_ACCOUNTS, |all| (all.len() == 4).then_some(())).await;
    stage.stop().await;
    let versions = |all: &[Value]| {
        let mut all: Vec<String> = all.iter().map(|object| object["metadata"]["resourceVersion"].to_string()).collect();
        all.sort();
        all
    };
    let stage = Stage::on(server, Options::default());
    let kinds = [DEPLOYMENTS, REPLICA_SETS, PODS];
    let mut before = Vec::new();
    for kind in kinds {
        before.push(versions(&stage.list(kind).await));
    }
    // Something new is worked on after all that is old has been looked at.
    stage.create(DEPLOYMENTS, deployment("other", 1, "web:1", json!({}))).await;
    stage.until(DEPLOYMENTS, "other", |other| is_rolled_out(other, 1)).await;
    for (kind, before) in kinds.into_iter().zip(before) {
        let mut now = stage.list(kind).await;
        now.retain(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web")));
        assert_eq!(versions(&now), before, "{kind}");
    }
    stage.stop().await;
}
