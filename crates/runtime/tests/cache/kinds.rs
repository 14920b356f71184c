//! The kinds the tests use, and ways to write them.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::ObjectKey;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// A config map with a label.
pub(crate) fn config_map(name: &str, app: &str, owner: Option<&str>) -> ConfigMap {
    let owners: Vec<Value> = owner
        .map(|uid| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true}))
        .into_iter()
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owners}, "data": {"n": "0"}
    }))
    .unwrap()
}

pub(crate) fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

pub(crate) async fn create(client: &Client, name: &str, app: &str) -> ConfigMap {
    config_maps(client).create(&PostParams::default(), &config_map(name, app, None)).await.unwrap()
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("default"), name)
}

/// A kind of our own that takes any spec.
pub(crate) fn widgets() -> ApiResource {
    ApiResource {
        group: "example.org".into(),
        version: "v1".into(),
        api_version: "example.org/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    }
}

pub(crate) async fn install_widgets(client: &Client) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]
        }
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &crd).await.unwrap();
}

pub(crate) async fn create_widget(client: &Client, name: &str, spec: Value) {
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &widgets());
    let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    widgets.create(&PostParams::default(), &serde_json::from_value(widget).unwrap()).await.unwrap();
}
