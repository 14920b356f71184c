//! Services and the pods behind them, as clients of slices and of Endpoints see them.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

fn service(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]},
    });
    merge_patch(&mut object["spec"], &spec);
    object
}

fn served(replicas: i32) -> Value {
    let container = json!({"name": "main", "image": "web:1", "ports": [{"name": "web", "containerPort": 8080}]});
    deployment("web", replicas, "web:1", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
}

/// How many endpoints are ready, over all slices of a Service.
fn ready(slices: &[Value], service: &str) -> usize {
    let mine = slices.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
    let endpoints = mine.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_find_their_pods() {
    let stage = Stage::new().await;
    stage.create(SERVICES, service("web", json!({}))).await;
    stage.create(DEPLOYMENTS, served(3)).await;
    stage.until_all(ENDPOINT_SLICES, |slices| (ready(slices, "web") == 3).then_some(())).await;
    let slices = stage.list(ENDPOINT_SLICES).await;
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["kind"], "Service");
    assert!(slices[0]["endpoints"][0]["nodeName"].is_string());

    let ready_addresses = |web: &Value| web["subsets"][0]["addresses"].as_array().map_or(0, Vec::len);
    let endpoints = stage.until(ENDPOINTS, "web", |web| ready_addresses(web) == 3).await;
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["targetRef"]["kind"], "Pod");

    // Fewer pods, another selector, and gone.
    stage.patch(DEPLOYMENTS, "web", json!({"spec": {"replicas": 1}})).await;
    stage.until_all(ENDPOINT_SLICES, |slices| (ready(slices, "web") == 1).then_some(())).await;
    stage.until(ENDPOINTS, "web", |web| ready_addresses(web) == 1).await;
    stage.patch(SERVICES, "web", json!({"spec": {"selector": {"app": "other"}}})).await;
    stage.until_all(ENDPOINT_SLICES, |slices| (ready(slices, "web") == 0).then_some(())).await;
    stage.until(ENDPOINTS, "web", |web| ready_addresses(web) == 0).await;
    stage.some(SERVICES).delete("web", &DeleteParams::default()).await.unwrap();
    stage.until_none(ENDPOINTS).await;
    stage.until_none(ENDPOINT_SLICES).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_not_ready_are_told_apart() {
    let stage = Stage::new().await;
    let mut broken = served(2);
    let never =
        json!({"spec": {"template": {"metadata": {"annotations": {"simulate.konverge.dev/fail": "never-ready"}}}}});
    merge_patch(&mut broken, &never);
    stage.create(DEPLOYMENTS, broken).await;
    stage.create(SERVICES, service("strict", json!({}))).await;
    stage.create(SERVICES, service("eager", json!({"publishNotReadyAddresses": true, "clusterIP": "None"}))).await;
    stage.until_all(ENDPOINT_SLICES, |slices| (ready(slices, "eager") == 2).then_some(())).await;
    let count = |object: &Value, list: &str| object["subsets"][0][list].as_array().map_or(0, Vec::len);
    stage.until(ENDPOINTS, "strict", |strict| count(strict, "notReadyAddresses") == 2).await;
    let eager = stage.until(ENDPOINTS, "eager", |eager| count(eager, "addresses") == 2).await;
    assert_eq!(eager["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    let slices = stage.list(ENDPOINT_SLICES).await;
    assert_eq!((ready(&slices, "strict"), slices.len()), (0, 2));
    stage.stop().await;
}
