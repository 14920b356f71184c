//! Namespaces: what every one has, and what goes with one.

use konverge_controllers::{ControlPlane, Options};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::*;

fn names(all: &[Value], namespace: &str) -> Vec<String> {
    let there = all.iter().filter(|object| object["metadata"]["namespace"] == namespace);
    there.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_has_an_account_and_the_authority() {
    let stage = Stage::with(Options { root_ca: Some("PEM".into()), ..Options::default() }).await;
    stage.create(NAMESPACES, json!({"metadata": {"name": "shop"}})).await;
    for namespace in ["shop", "default", "kube-system"] {
        stage.until_all(SERVICE_ACCOUNTS, |all| (names(all, namespace) == ["default"]).then_some(())).await;
        stage.until_all(CONFIG_MAPS, |all| (names(all, namespace) == ["kube-root-ca.crt"]).then_some(())).await;
    }
    // Both are put back, and so is what is in them.
    let first = stage.get(SERVICE_ACCOUNTS, "default").await.unwrap()["metadata"]["uid"].clone();
    stage.some(SERVICE_ACCOUNTS).delete("default", &DeleteParams::default()).await.unwrap();
    stage
        .until(SERVICE_ACCOUNTS, "default", |account| {
            account["metadata"]["namespace"] != "default" || account["metadata"]["uid"] != first
        })
        .await;
    stage.patch(CONFIG_MAPS, "kube-root-ca.crt", json!({"data": {"ca.crt": "FORGED"}})).await;
    stage.until_all(CONFIG_MAPS, |all| all.iter().all(|map| map["data"]["ca.crt"] == "PEM").then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_goes_with_its_namespace() {
    let stage = Stage::new().await;
    stage.create(NAMESPACES, json!({"metadata": {"name": "shop"}})).await;
    let place = |mut object: Value| {
        object["metadata"]["namespace"] = "shop".into();
        object
    };
    stage.create(DEPLOYMENTS, place(deployment("web", 3, "web:1", json!({})))).await;
    stage.until(DEPLOYMENTS, "web", |web| is_rolled_out(web, 3)).await;
    for at in 0..20 {
        stage.create(CONFIG_MAPS, place(json!({"metadata": {"name": format!("c{at}")}}))).await;
    }
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    stage.create(CONFIG_MAPS, place(held)).await;
    stage.all(NAMESPACES).delete("shop", &DeleteParams::default()).await.unwrap();

    let is_held = |shop: &Value| condition(shop, "NamespaceFinalizersRemaining").1 == "SomeFinalizersRemain";
    let shop = stage.until(NAMESPACES, "shop", is_held).await;
    assert_eq!(shop["status"]["phase"], "Terminating");
    assert_eq!(condition(&shop, "NamespaceContentRemaining"), ("True".into(), "SomeResourcesRemain".into()));
    for kind in [PODS, REPLICA_SETS, DEPLOYMENTS, SERVICE_ACCOUNTS] {
        stage.until_all(kind, |all| names(all, "shop").is_empty().then_some(())).await;
    }
    stage.until_all(CONFIG_MAPS, |all| (names(all, "shop") == ["held"]).then_some(())).await;
    let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(stage.client.clone(), "shop");
    let release = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &Default::default(), &release).await.unwrap();
    stage.until_all(NAMESPACES, |all| (!all.iter().any(|one| one["metadata"]["name"] == "shop")).then_some(())).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_can_be_switched_off() {
    let off =
        |names: &[&str]| Options { off: names.iter().map(|name| name.to_string()).collect(), ..Options::default() };
    let stage = Stage::with(off(&["replicaset-controller", "serviceaccount-controller"])).await;
    stage.create(DEPLOYMENTS, deployment("web", 3, "web:1", json!({}))).await;
    stage.until_all(REPLICA_SETS, |all| (all.len() == 1).then_some(())).await;
    let error = ControlPlane::new(stage.client.clone(), off(&["replicaset"])).err().expect("there is no such name");
    let text = error.to_string();
    assert!(
        text.starts_with("there is no controller \"replicaset\"; the controllers are ")
            && text.contains("namespace-controller"),
        "{text}"
    );
    stage.stop().await;
}
