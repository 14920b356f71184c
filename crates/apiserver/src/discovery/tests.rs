//! Tables of cases for `discovery.rs`: order, both forms, hashes.

use serde_json::{Value, json};

use super::*;
use crate::verb::Verb;
use konverge_core::GroupVersionKind;

/// A document as clients parse it.
fn value(document: impl Serialize) -> Value {
    serde_json::to_value(document).unwrap()
}

fn resource(group: &str, version: &str, kind: &str, custom: bool) -> Resource {
    Resource { custom, ..Resource::plain(group, version, kind) }
}

fn sub(name: &str, group: &str, version: &str, kind: &str) -> SubresourceInfo {
    let gvk = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
    SubresourceInfo { name: name.into(), gvk, verbs: [Verb::Get, Verb::Patch, Verb::Update].into_iter().collect() }
}

fn table() -> Vec<Arc<Resource>> {
    let mut deployment = resource("apps", "v1", "Deployment", false);
    deployment.short_names = vec!["deploy".into()];
    deployment.categories = vec!["all".into()];
    deployment.subresources =
        vec![sub("status", "apps", "v1", "Deployment"), sub("scale", "autoscaling", "v1", "Scale")];
    let mut widget = resource("example.com", "v1beta1", "Widget", true);
    widget.namespaced = false;
    widget.subresources = vec![sub("status", "example.com", "v1beta1", "Widget")];
    let resources = [
        resource("", "v1", "Pod", false),
        resource("", "v1", "Node", false),
        deployment,
        resource("zeta.k8s.io", "v1", "Zed", false),
        resource("zulu.io", "v1", "Zulu", true),
        widget,
        resource("example.com", "v2", "Widget", true),
        resource("apps", "v1alpha1", "Extra", true),
    ];
    resources.into_iter().map(Arc::new).collect()
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

#[test]
fn versions_go_from_stable_to_odd() {
    let mut versions = vec![
        "v1",
        "v11alpha2",
        "foo1",
        "v3beta1",
        "v10",
        "v2",
        "v12alpha1",
        "v11beta2",
        "v10beta3",
        "foo10",
        "v1alpha",
        "v01",
    ];
    versions.sort_by(|a, b| compare_versions(a, b));
    let expect = [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v10beta3",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
        "v01",
        "v1alpha",
    ];
    assert_eq!(versions, expect);
}

#[test]
fn legacy_roots() {
    let table = table();
    let catalog = Catalog::of(&table);
    assert_eq!(
        value(catalog.api_versions("127.0.0.1:1")),
        json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:1"}]})
    );
    let list = value(catalog.api_group_list());
    let names: Vec<&Value> = list["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["apps", "zeta.k8s.io", "example.com", "zulu.io"]);
    assert_eq!(
        value(catalog.api_group("example.com")),
        json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "example.com",
            "versions": [
                {"groupVersion": "example.com/v2", "version": "v2"},
                {"groupVersion": "example.com/v1beta1", "version": "v1beta1"},
            ],
            "preferredVersion": {"groupVersion": "example.com/v2", "version": "v2"},
        })
    );
    assert!(catalog.api_group("none").is_none() && catalog.api_group("").is_none());
}

#[test]
fn legacy_resources() {
    let table = table();
    let catalog = Catalog::of(&table);
    let all = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let some = json!(["get", "patch", "update"]);
    assert_eq!(
        value(catalog.api_resource_list("apps", "v1")),
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
            {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
                "verbs": all, "shortNames": ["deploy"], "categories": ["all"], "storageVersionHash": "8aSe+NMegvE="},
            {"name": "deployments/scale", "singularName": "", "namespaced": true, "kind": "Scale", "verbs": some,
                "group": "autoscaling", "version": "v1"},
            {"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment", "verbs": some},
        ]})
    );
    let core = value(catalog.api_resource_list("", "v1"));
    assert_eq!((&core["groupVersion"], core.get("apiVersion")), (&json!("v1"), None));
    assert_eq!(core["resources"][0]["name"], "nodes");
    assert!(catalog.api_resource_list("apps", "v2").is_none());
    let text = serde_json::to_string(&catalog.api_resource_list("apps", "v1")).unwrap();
    let head = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["#;
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn aggregated_form() {
    let table = table();
    let catalog = Catalog::of(&table);
    let all = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let some = json!(["get", "patch", "update"]);
    let document = parsed(&catalog.aggregated(Root::Apis, DiscoveryVersion::V2));
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
    assert_eq!(
        document["items"][0],
        json!({"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "freshness": "Current", "resources": [{
                "resource": "deployments", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                "scope": "Namespaced", "singularResource": "deployment", "verbs": all,
                "shortNames": ["deploy"], "categories": ["all"],
                "subresources": [
                    {"subresource": "scale", "verbs": some,
                        "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
                    {"subresource": "status", "verbs": some,
                        "responseKind": {"group": "", "version": "", "kind": "Deployment"}},
                ],
            }]},
            {"version": "v1alpha1", "freshness": "Current", "resources": [{
                "resource": "extras", "responseKind": {"group": "apps", "version": "v1alpha1", "kind": "Extra"},
                "scope": "Namespaced", "singularResource": "extra", "verbs": all,
            }]},
        ]})
    );
    let widget = &document["items"][2]["versions"][1]["resources"][0];
    assert_eq!(widget["scope"], "Cluster");
    assert_eq!(widget["subresources"][0]["responseKind"]["group"], "example.com");

    let beta = parsed(&catalog.aggregated(Root::Api, DiscoveryVersion::V2Beta1));
    assert_eq!(beta["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(beta["items"].as_array().unwrap().len(), 1);
    assert_eq!(beta["items"][0]["metadata"], json!({}));
}

#[test]
fn equal_content_has_an_equal_hash() {
    let of = |table: &[Arc<Resource>]| Catalog::of(table).aggregated(Root::Apis, DiscoveryVersion::V2).hash;
    let before = table();
    let mut after = table();
    assert_eq!(of(&before), of(&after));
    after.push(Arc::new(resource("more.io", "v1", "More", true)));
    assert_ne!(of(&before), of(&after));
    // A new group says nothing about the core group.
    let core = |table: &[Arc<Resource>]| Catalog::of(table).aggregated(Root::Api, DiscoveryVersion::V2).hash;
    assert_eq!(core(&before), core(&after));
}
