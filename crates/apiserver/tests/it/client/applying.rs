//! Server-side apply as the client does it: ownership, conflict, force, removal, and who owns what afterwards.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Setup, flows, refused, typed};
use crate::cluster::{config_map, deployment};

flows![
    apply_creates_and_keeps,
    conflict_and_force,
    what_is_left_out_goes,
    lists_merge_by_key,
    custom_resources_apply,
    status_is_applied_apart,
];

fn map(data: Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
}

async fn apply_creates_and_keeps(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    let me = PatchParams::apply("me");
    let made = maps.patch("a", &me, &map(json!({"k": "1"}))).await.unwrap();
    let managed = &made.managed_fields()[0];
    assert_eq!((managed.manager.as_deref(), managed.operation.as_deref()), (Some("me"), Some("Apply")));
    let again = maps.patch("a", &me, &map(json!({"k": "1"}))).await.unwrap();
    assert_eq!(again, made, "what is there already is not written");
}

async fn conflict_and_force(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    maps.patch("a", &PatchParams::apply("me"), &map(json!({"k": "1", "l": "1"}))).await.unwrap();
    let status = refused(maps.patch("a", &PatchParams::apply("you"), &map(json!({"k": "2"}))).await, 409);
    assert_eq!(status.reason, "Conflict");
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"me\": .data.k");
    let cause = &status.details.unwrap().causes[0];
    assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("FieldManagerConflict", ".data.k"));
    let status = refused(maps.patch("a", &PatchParams::apply("you"), &map(json!({"k": "2", "l": "2"}))).await, 409);
    assert_eq!(status.message, "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.k\n- .data.l");

    let forced = maps.patch("a", &PatchParams::apply("you").force(), &map(json!({"k": "2"}))).await.unwrap();
    assert_eq!(forced.data.as_ref().unwrap()["k"], "2");
    // A manager that lost a field does not get it back by applying the same as before.
    refused(maps.patch("a", &PatchParams::apply("me"), &map(json!({"k": "1", "l": "1"}))).await, 409);
    // Two managers that apply the same value share the field.
    maps.patch("a", &PatchParams::apply("me"), &map(json!({"k": "2", "l": "1"}))).await.unwrap();
}

async fn what_is_left_out_goes(setup: Setup) {
    let maps: Api<ConfigMap> = setup.api();
    maps.create(&PostParams::default(), &typed(&config_map("a"))).await.unwrap();
    maps.patch("a", &PatchParams::apply("me"), &map(json!({"x": "1", "y": "1"}))).await.unwrap();
    let left = maps.patch("a", &PatchParams::apply("me"), &map(json!({"y": "1"}))).await.unwrap();
    let keys: Vec<String> = left.data.unwrap().into_keys().collect();
    assert_eq!(keys, ["k", "y"], "its own field goes, another's stays");
}

async fn lists_merge_by_key(setup: Setup) {
    let deployments: Api<Deployment> = setup.api();
    deployments.create(&PostParams::default(), &typed(&deployment("web"))).await.unwrap();
    let sidecar = Patch::Apply(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "proxy"}]}}},
    }));
    let merged = deployments.patch("web", &PatchParams::apply("injector"), &sidecar).await.unwrap();
    let containers = merged.spec.template.spec.unwrap().containers;
    let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["main", "sidecar"]);
}

async fn custom_resources_apply(setup: Setup) {
    let (widgets, _) = setup.widgets().await;
    let widget = |spec: Value| {
        Patch::Apply(json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec,
        }))
    };
    let me = PatchParams::apply("me");
    let made = widgets.patch("w", &me, &widget(json!({"ports": [{"port": 80, "name": "web"}]}))).await.unwrap();
    assert_eq!(made.data["spec"]["color"], "red");
    let you = PatchParams::apply("you");
    let both = widgets.patch("w", &you, &widget(json!({"ports": [{"port": 90, "name": "api"}]}))).await.unwrap();
    assert_eq!(both.data["spec"]["ports"].as_array().unwrap().len(), 2);
    let status = refused(widgets.patch("w", &you, &widget(json!({"ports": [{"port": 80, "name": "x"}]}))).await, 409);
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"me\": .spec.ports[port=80].name");
    let left = widgets.patch("w", &me, &widget(json!({"size": 3}))).await.unwrap();
    assert_eq!(left.data["spec"], json!({"size": 3, "color": "red", "ports": [{"port": 90, "name": "api"}]}));
}

async fn status_is_applied_apart(setup: Setup) {
    let (widgets, _) = setup.widgets().await;
    let widget = |body: Value| {
        let mut object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
        object.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        Patch::Apply(object)
    };
    let missing = widgets.patch_status("w", &PatchParams::apply("me"), &widget(json!({"status": {}}))).await;
    refused(missing, 404);
    widgets.patch("w", &PatchParams::apply("me"), &widget(json!({"spec": {"size": 1}}))).await.unwrap();
    let ready = widget(json!({"spec": {"size": 5}, "status": {"phase": "Ready"}}));
    let applied = widgets.patch_status("w", &PatchParams::apply("me"), &ready).await.unwrap();
    assert_eq!((&applied.data["spec"]["size"], &applied.data["status"]["phase"]), (&json!(1), &json!("Ready")));
    let subresources: Vec<_> = applied.managed_fields().iter().map(|entry| entry.subresource.as_deref()).collect();
    assert_eq!(subresources, [None, Some("status")]);
    // The main endpoint neither sets nor removes a status.
    let kept = widgets.patch("w", &PatchParams::apply("me"), &widget(json!({"spec": {"size": 2}}))).await.unwrap();
    assert_eq!(kept.data["status"]["phase"], "Ready");
}
