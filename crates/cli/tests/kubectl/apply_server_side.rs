//! `kubectl apply --server-side`: the server keeps who wants what, merges, prunes and finds conflicts.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

/// The managers of an object as `name operation subresource`.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let words = |entry: &Value| ["manager", "operation", "subresource"].map(|field| text(entry, field)).join(" ");
    let mut managers: Vec<String> = entries.map(|entry| words(entry).trim().to_owned()).collect();
    managers.sort();
    managers
}

/// What a manager is in charge of.
fn fields<'o>(object: &'o Value, manager: &str) -> &'o Value {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.find(|entry| entry["manager"] == manager).map_or(&Value::Null, |entry| &entry["fieldsV1"])
}

#[test]
fn two_managers() {
    let Some(cluster) = Cluster::start() else { return };
    let apply = |manager: &str, manifest: &str| {
        cluster.kubectl(&format!("apply --server-side --field-manager={manager} -f -")).input(manifest)
    };
    apply("one", &config_map("a", "k", "1")).prints("configmap/a serverside-applied");
    let version = cluster.object("cm a")["metadata"]["resourceVersion"].clone();
    apply("one", &config_map("a", "k", "1")).prints("configmap/a serverside-applied");
    assert_eq!(cluster.object("cm a")["metadata"]["resourceVersion"], version, "applying the same changes nothing");

    // Each has fields of its own.
    apply("two", &config_map("a", "l", "2")).prints("configmap/a serverside-applied");
    let object = cluster.object("cm a");
    assert_eq!(object["data"], json!({"k": "1", "l": "2"}));
    assert_eq!(managers(&object), ["one Apply", "two Apply"]);
    assert_eq!(fields(&object, "one"), &json!({"f:data": {"f:k": {}}}));
    assert_eq!(fields(&object, "two"), &json!({"f:data": {"f:l": {}}}));

    // Nobody takes another's field without saying so.
    apply("two", &config_map("a", "k", "9")).fails(
        "error: Apply failed with 1 conflict: conflict with \"one\": .data.k
         Please review the fields above--they currently have other managers. Here
         …",
    );
    let all = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"8\", l: \"8\"}\n";
    apply("three", all).fails(
        "error: Apply failed with 2 conflicts: conflicts with \"one\":
         - .data.k
         conflicts with \"two\":
         - .data.l
         Please review the fields above--they currently have other managers. Here
         …",
    );
    cluster
        .kubectl("apply --server-side --field-manager=two --force-conflicts -f -")
        .input(&config_map("a", "k", "9"))
        .prints("configmap/a serverside-applied");
    let object = cluster.object("cm a");
    assert_eq!(object["data"], json!({"k": "9"}), "what a manager no longer wants and nobody else does goes");
    assert_eq!(managers(&object), ["two Apply"]);

    // The same value is shared, and stays as long as one of them wants it.
    apply("one", &config_map("a", "k", "9")).prints("configmap/a serverside-applied");
    apply("two", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").prints("configmap/a serverside-applied");
    let object = cluster.object("cm a");
    assert_eq!(object["data"], json!({"k": "9"}));
    assert_eq!(fields(&object, "one"), &json!({"f:data": {"f:k": {}}}));

    // A writer that does not apply takes what it changes.
    cluster.kubectl("patch cm a --type=merge -p '{\"data\":{\"k\":\"7\"}}'").prints("configmap/a patched");
    apply("one", &config_map("a", "k", "9")).fails(
        "error: Apply failed with 1 conflict: conflict with \"kubectl-patch\" using v1: .data.k
         Please review the fields above--they currently have other managers. Here
         …",
    );
}

#[test]
fn lists_by_their_keys() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let apply = |manager: &str, manifest: &str| {
        cluster.kubectl(&format!("apply --server-side --field-manager={manager} -f -")).input(manifest)
    };
    apply("one", WEB).prints("deployment.apps/web serverside-applied");
    let sidecar = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: sidecar, image: "side:1"}, {name: server, ports: [{containerPort: 9090}]}]}}}
"#;
    apply("two", sidecar).prints("deployment.apps/web serverside-applied");
    let object = cluster.object("deploy web");
    expect::has(
        fields(&object, "two"),
        &json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
            "k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}, "f:image": {}},
            "k:{\"name\":\"server\"}": {".": {}, "f:name": {},
                "f:ports": {"k:{\"containerPort\":9090,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}},
        }}}}}),
    );
    let names =
        "get deploy web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.ports[*].containerPort} {end}'";
    cluster.kubectl(names).prints("sidecar= server=80 9090 proxy=");
    apply("two", &WEB.replace("replicas: 2", "replicas: 5").replace("envoy:1.30", "envoy:1.31")).fails(
        "error: Apply failed with 2 conflicts: conflicts with \"one\":
         - .spec.replicas
         - .spec.template.spec.containers[name=\"proxy\"].image
         Please review the fields above--they currently have other managers. Here
         …",
    );
    // Without its containers the second manager takes back only what was its own.
    apply("two", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")
        .prints("deployment.apps/web serverside-applied");
    cluster.kubectl(names).prints("server=80 proxy=");

    apply("one", &widget("w", "size: small, parts: [{name: a, count: 2}, {name: b}]")).succeeds();
    apply("two", &widget("w", "size: small, parts: [{name: c}]")).succeeds();
    apply("one", &widget("w", "size: small, parts: [{name: a, count: 3}]"))
        .prints("widget.example.com/w serverside-applied");
    let object = cluster.object("wd w");
    assert_eq!(object["spec"]["parts"], json!([{"name": "a", "count": 3}, {"name": "c", "count": 1}]));
    apply("two", &widget("w", "size: small, parts: [{name: a, count: 4}]")).fails(
        "error: Apply failed with 1 conflict: conflict with \"one\": .spec.parts[name=\"a\"].count
         Please review the fields above--they currently have other managers. Here
         …",
    );
    apply("one", &widget("w", "size: small, colour: red")).fails(
        "Error from server: failed to create typed patch object (default/w; example.com/v1, Kind=Widget): .spec.colour: \
         field not declared in schema",
    );
}

#[test]
fn over_what_was_applied_by_the_client() {
    let Some(cluster) = Cluster::start() else { return };
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"1\", l: \"2\"}\n";
    cluster.kubectl("apply -f -").input(two).prints("configmap/a created");
    cluster.kubectl("apply --server-side -f -").input(two).prints("configmap/a serverside-applied");
    // kubectl moves what it was in charge of to the new way, so a field that goes from the manifest goes.
    // The annotation has a manager of its own.
    assert_eq!(managers(&cluster.object("cm a")), ["kubectl Apply", "kubectl-last-applied Apply"]);
    cluster
        .kubectl("apply --server-side -f -")
        .input(&config_map("a", "k", "1"))
        .prints("configmap/a serverside-applied");
    assert_eq!(cluster.object("cm a")["data"], json!({"k": "1"}));

    // And back again: the annotation tells what the server was asked last.
    cluster.kubectl("apply -f -").input(&config_map("a", "k", "3")).succeeds();
    assert_eq!(cluster.object("cm a")["data"], json!({"k": "3"}));
}

#[test]
fn status_has_managers_of_its_own() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.kubectl("apply --server-side -f -").input(&widget("w", "size: small")).succeeds();
    let status = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nstatus: {phase: Ready}\n";
    cluster
        .kubectl("apply --server-side --subresource=status --field-manager=controller -f -")
        .input(status)
        .prints("widget.example.com/w serverside-applied");
    let object = cluster.object("wd w");
    assert_eq!(managers(&object), ["controller Apply status", "kubectl Apply"]);
    assert_eq!(fields(&object, "controller"), &json!({"f:status": {"f:phase": {}}}));
    expect::has(&object, &json!({"spec": {"size": "small"}, "status": {"phase": "Ready"}}));
}
