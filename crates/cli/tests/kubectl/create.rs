//! `kubectl create -f`: one object, several, none; and dry runs.

use serde_json::json;

use crate::cluster::Cluster;
use crate::expect;
use crate::fixtures::{WEB, WIDGETS, config_map, widget};

#[test]
fn several_documents() {
    let Some(cluster) = Cluster::start() else { return };
    let both = config_map("a", "k", "1") + &config_map("b", "k", "2");
    cluster.kubectl("create -f -").input(&both).prints("configmap/a created\nconfigmap/b created");
    // Each document has an answer of its own.
    cluster.kubectl("create -f -").input(&(both + &config_map("c", "k", "3"))).ends(
        1,
        "configmap/c created",
        "Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"a\" already exists
         Error from server (AlreadyExists): error when creating \"STDIN\": configmaps \"b\" already exists",
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"user": "me"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}},
    ]});
    cluster.kubectl("create -f -").input(&list.to_string()).prints("secret/s created\nnamespace/other created");
    expect::has(&cluster.object("secret s"), &json!({"type": "Opaque", "data": {"user": "bWU="}, "stringData": null}));
    cluster.kubectl("create -n other -f -").input(WEB).prints("deployment.apps/web created");
    cluster
        .kubectl("create -n nowhere -f -")
        .input(WEB)
        .fails("Error from server (NotFound): error when creating \"STDIN\": namespaces \"nowhere\" not found");

    let folder = cluster.path().join("manifests");
    std::fs::create_dir(&folder).expect("a folder can be made");
    cluster.file("manifests/1.yaml", &config_map("first", "k", "1"));
    cluster.file("manifests/2.yaml", &config_map("second", "k", "1"));
    cluster.kubectl("create -f manifests").prints("configmap/first created\nconfigmap/second created");
}

#[test]
fn what_a_new_object_has() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    cluster.create(&(widget("w", "size: small") + WEB));

    // Names by prefix differ from each other.
    let generated = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: run-}\n".repeat(2);
    let said = cluster.kubectl("create -f - -o name").input(&generated).text();
    let names: Vec<&str> = said.lines().collect();
    assert!(names.len() == 2 && names[0] != names[1], "{said}");
    for name in names {
        let suffix = name.strip_prefix("configmap/run-").unwrap_or_default();
        assert!(suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
    }

    let object = cluster.object("widget w");
    expect::has(
        &object,
        &json!({
            "apiVersion": "example.com/v1",
            "metadata": {"namespace": "default", "generation": 1},
            "spec": {"size": "small", "replicas": 1, "color": "blue"},
            "status": null,
        }),
    );
    expect::has(
        &object["metadata"]["managedFields"][0],
        &json!({
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {".": {}, "f:size": {}, "f:color": {}, "f:replicas": {}}},
        }),
    );
    let object = cluster.object("deployment web");
    expect::has(&object, &json!({"metadata": {"generation": 1}, "spec": {"replicas": 2}}));
    let ports = &object["spec"]["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(ports, &json!([{"containerPort": 80, "name": "http", "protocol": "TCP"}]));
}

#[test]
fn dry_runs_keep_nothing() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.create(WIDGETS);
    let made = cluster.kubectl("create -f - --dry-run=server -o json").input(&widget("w", "size: small")).json();
    expect::has(&made, &json!({"spec": {"replicas": 1, "color": "blue"}}));
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    cluster
        .kubectl("create -f - --dry-run=server")
        .input(&config_map("a", "k", "1"))
        .prints("configmap/a created (server dry run)");
    cluster.kubectl("get cm,widgets").warns("", "No resources found in default namespace.");
    cluster.kubectl("create -f - --dry-run=server").input(&widget("w", "size: huge")).fails(
        "The Widget \"w\" is invalid: spec.size: Unsupported value: \"huge\": supported values: \"small\", \"medium\", \"large\"",
    );
    cluster.create(&config_map("a", "k", "1"));
    cluster
        .kubectl("apply -f - --dry-run=server --server-side")
        .input(&config_map("b", "k", "2"))
        .prints("configmap/b serverside-applied (server dry run)");
    cluster
        .kubectl("patch cm a --dry-run=server --type=merge -p '{\"data\":{\"k\":\"9\"}}'")
        .prints("configmap/a patched …");
    cluster.kubectl("label cm a x=y --dry-run=server").prints("configmap/a labeled (server dry run)");
    expect::has(&cluster.object("cm a"), &json!({"data": {"k": "1"}, "metadata": {"labels": null}}));
    cluster.kubectl("get cm -o name").prints("configmap/a");
}
