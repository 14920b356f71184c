//! Tests of `skip`, as tables.

use konverge_core::ObjectKey;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::*;
use crate::object::Mode;
use crate::write::FieldManager;
use crate::write::types::Types;

fn api(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Checks where an object of this kind differs from a configuration.
fn check(api: &ApiResource, live: Value, want: Value, expect: &[&str]) {
    let found = differences(&Types::default().of(api), &live, &want);
    assert_eq!(found.paths, expect, "{}: {live} should be {want}", api.kind);
    assert_eq!(found.digest.is_some(), !expect.is_empty());
}

fn deployment(live: Value, want: Value, expect: &[&str]) {
    let wrap = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let expect: Vec<String> = expect.iter().map(|path| format!("spec.template.spec.{path}")).collect();
    let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
    check(&api("apps", "v1", "Deployment"), wrap(live), wrap(want), &expect);
}

#[test]
fn fields_of_others_do_not_matter() {
    let kind = api("apps", "v1", "Deployment");
    let spec = |spec: Value| json!({"spec": spec});
    // Defaults, status, another controller.
    check(
        &kind,
        json!({"spec": {"replicas": 3, "progressDeadlineSeconds": 600}, "status": {"replicas": 3}}),
        spec(json!({"replicas": 3})),
        &[],
    );
    check(&kind, spec(json!({"replicas": 3, "paused": true})), spec(json!({"replicas": 3})), &[]);
    check(&kind, spec(json!({"replicas": 4})), spec(json!({"replicas": 3})), &["spec.replicas"]);
    check(&kind, spec(json!({})), spec(json!({"replicas": 3})), &["spec.replicas"]);
    check(&kind, json!({}), spec(json!({"replicas": 3})), &["spec"]);
    // The type of an object is known from the request.
    check(&kind, json!({}), json!({"apiVersion": "apps/v1", "kind": "Deployment"}), &[]);
}

#[test]
fn items_are_found_by_their_keys() {
    let c = |name: &str, image: &str| json!({"name": name, "image": image});
    let list = |items: Vec<Value>| json!({"containers": items});
    let (app, side) = (c("app", "a"), c("side", "s"));
    deployment(list(vec![app.clone()]), list(vec![app.clone()]), &[]);
    // An injected sidecar, before or after.
    deployment(list(vec![app.clone(), side.clone()]), list(vec![app.clone()]), &[]);
    deployment(list(vec![side.clone(), app.clone()]), list(vec![app.clone()]), &[]);
    deployment(list(vec![c("app", "b"), side.clone()]), list(vec![app.clone()]), &["containers[0].image"]);
    deployment(list(vec![side.clone()]), list(vec![app.clone()]), &["containers[0]"]);
    // A different order is a difference.
    deployment(list(vec![side.clone(), app.clone()]), list(vec![app, side]), &["containers[1]"]);
    // The server sets a default for a field that is part of the key.
    let port = |port: Value| json!({"containers": [{"name": "app", "ports": [port]}]});
    deployment(port(json!({"containerPort": 80, "protocol": "TCP"})), port(json!({"containerPort": 80})), &[]);
    deployment(
        port(json!({"containerPort": 80, "protocol": "UDP"})),
        port(json!({"containerPort": 80})),
        &["containers[0].ports[0]"],
    );
}

#[test]
fn scalars_are_compared_by_their_meaning() {
    let limits = |limits: Value| json!({"containers": [{"name": "app", "resources": {"limits": limits}}]});
    deployment(limits(json!({"cpu": "500m", "memory": "1Gi"})), limits(json!({"cpu": "0.5", "memory": "1024Mi"})), &[]);
    deployment(limits(json!({"cpu": "1"})), limits(json!({"cpu": 1})), &[]);
    deployment(limits(json!({"cpu": "2"})), limits(json!({"cpu": 1})), &["containers[0].resources.limits.cpu"]);
    let probe = |port: Value| json!({"containers": [{"name": "app", "livenessProbe": {"httpGet": {"port": port}}}]});
    deployment(probe(json!(80)), probe(json!(80)), &[]);
    deployment(probe(json!(80)), probe(json!("80")), &["containers[0].livenessProbe.httpGet.port"]);
}

#[test]
fn atomic_values_may_have_no_surplus_fields_except_defaults() {
    let service = api("", "v1", "Service");
    let selector = |selector: Value| json!({"spec": {"selector": selector}});
    check(&service, selector(json!({"app": "a"})), selector(json!({"app": "a"})), &[]);
    check(&service, selector(json!({"app": "a", "b": "c"})), selector(json!({"app": "a"})), &["spec.selector.b"]);

    let policy = api("networking.k8s.io", "v1", "NetworkPolicy");
    let ports = |ports: Value| json!({"spec": {"ingress": [{"ports": ports}]}});
    check(&policy, ports(json!([{"port": 80, "protocol": "TCP"}])), ports(json!([{"port": 80}])), &[]);
    check(
        &policy,
        ports(json!([{"port": 80, "protocol": "UDP"}])),
        ports(json!([{"port": 80}])),
        &["spec.ingress[0].ports[0].protocol"],
    );
    check(
        &policy,
        ports(json!([{"port": 80}, {"port": 81}])),
        ports(json!([{"port": 80}])),
        &["spec.ingress[0].ports[]"],
    );
    check(&policy, ports(json!([])), ports(json!([{"port": 80}])), &["spec.ingress[0].ports[0]"]);

    let env = |field: Value| json!({"containers": [{"name": "app", "env": [{"name": "IP", "valueFrom": {"fieldRef": field}}]}]});
    deployment(
        env(json!({"fieldPath": "status.podIP", "apiVersion": "v1"})),
        env(json!({"fieldPath": "status.podIP"})),
        &[],
    );
    deployment(
        env(json!({"fieldPath": "metadata.name"})),
        env(json!({"fieldPath": "status.podIP"})),
        &["containers[0].env[0].valueFrom.fieldRef.fieldPath"],
    );

    let set = api("apps", "v1", "StatefulSet");
    let claims = |claim: Value| json!({"spec": {"volumeClaimTemplates": [claim]}});
    let wanted = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let filled = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "creationTimestamp": null},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}, "status": {"phase": "Pending"},
    });
    check(&set, claims(filled), claims(wanted), &[]);

    let binding = api("rbac.authorization.k8s.io", "v1", "RoleBinding");
    let role = |role: Value| json!({"roleRef": role});
    let group = "rbac.authorization.k8s.io";
    check(
        &binding,
        role(json!({"kind": "Role", "name": "r", "apiGroup": group})),
        role(json!({"kind": "Role", "name": "r"})),
        &[],
    );
}

#[test]
fn built_in_kinds_omit_empty_values() {
    let kind = api("apps", "v1", "Deployment");
    check(&kind, json!({"spec": {}}), json!({"spec": {"paused": null}}), &[]);
    // No schema says which of these the server omits.
    for (name, zero) in [("paused", json!(false)), ("minReadySeconds", json!(0))] {
        check(&kind, json!({"spec": {}}), json!({"spec": {name: zero}}), &[&format!("spec.{name}")]);
        check(&kind, json!({"spec": {name: zero}}), json!({"spec": {name: zero}}), &[]);
    }
    check(&api("", "v1", "ConfigMap"), json!({}), json!({"data": {}}), &[]);
    check(&api("", "v1", "ConfigMap"), json!({}), json!({"metadata": {"labels": {}, "finalizers": []}}), &["metadata"]);
    check(
        &api("", "v1", "ConfigMap"),
        json!({"metadata": {}}),
        json!({"metadata": {"labels": {}, "finalizers": []}}),
        &[],
    );
    // An empty struct has a meaning.
    let volume = |volume: Value| json!({"volumes": [volume]});
    deployment(
        volume(json!({"name": "v", "hostPath": {"path": "/"}})),
        volume(json!({"name": "v", "emptyDir": {}})),
        &["volumes[0].emptyDir"],
    );
    // The server stores custom resources as they were sent.
    check(&api("example.com", "v1", "WebApp"), json!({"spec": {}}), json!({"spec": {"on": false}}), &["spec.on"]);
}

#[test]
fn custom_resources_are_compared_by_their_values() {
    let kind = api("example.com", "v1", "WebApp");
    let spec = |spec: Value| json!({"spec": spec});
    check(&kind, spec(json!({"a": {"b": 1, "x": 2}})), spec(json!({"a": {"b": 1}})), &[]);
    check(&kind, spec(json!({"a": [1, 2]})), spec(json!({"a": [1, 2]})), &[]);
    check(&kind, spec(json!({"a": [1, 2, 3]})), spec(json!({"a": [1, 2]})), &["spec.a[]"]);
    check(&kind, spec(json!({"a": [{"n": 1, "d": true}]})), spec(json!({"a": [{"n": 1}]})), &["spec.a[0].d"]);
    check(&kind, spec(json!({"a": 1.0})), spec(json!({"a": 1})), &[]);
    check(&kind, spec(json!({"a": "1"})), spec(json!({"a": 1})), &["spec.a"]);
    check(&kind, spec(json!({"a": null})), spec(json!({"a": 1})), &["spec.a"]);
    // Their metadata has the same type as that of built-in kinds.
    let owners = |uids: &[&str]| {
        let list: Vec<Value> = uids.iter().map(|uid| json!({"uid": uid, "controller": *uid == "1"})).collect();
        json!({"metadata": {"ownerReferences": list, "finalizers": uids}})
    };
    check(&kind, owners(&["0", "1", "2"]), owners(&["1"]), &[]);
    check(&kind, owners(&["0", "2"]), owners(&["1"]), &["metadata.finalizers[0]", "metadata.ownerReferences[0]"]);
}

#[test]
fn a_learned_schema_tells_items_apart_and_knows_defaults() {
    let kind = api("example.com", "v1", "WebApp");
    let types = Types::default();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
        "hosts": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "tls": {"type": "boolean", "default": true}}}},
    }}}});
    types.learn(&kind, &schema).unwrap();
    let check = |live: Value, want: Value, expect: &[&str]| {
        let found = differences(&types.of(&kind), &json!({"spec": live}), &json!({"spec": want}));
        assert_eq!(found.paths, expect, "{live} should be {want}");
    };
    let (a, b) = (json!({"name": "a", "port": 1}), json!({"name": "b", "port": 2}));
    check(json!({"ports": [a, b]}), json!({"ports": [b]}), &[]);
    check(json!({"ports": [a]}), json!({"ports": [b]}), &["spec.ports[0]"]);
    check(json!({"hosts": [{"name": "a", "tls": true}]}), json!({"hosts": [{"name": "a"}]}), &[]);
    check(json!({"hosts": [{"name": "a", "tls": false}]}), json!({"hosts": [{"name": "a"}]}), &["spec.hosts[0].tls"]);
}

#[test]
fn decisions() {
    let kind = api("", "v1", "ConfigMap");
    let ty = Types::default().of(&kind);
    let config = |data: Value| {
        let object = json!({"metadata": {"name": "c"}, "data": data});
        Config::new(&kind, ObjectKey::new(None, "c"), object, &FieldManager::new("m")).unwrap()
    };
    let wanted = config(json!({"a": "1"}));
    let live = |data: Value, mark: &str| json!({"metadata": {"name": "c", "annotations": {&*wanted.digest_annotation: mark}}, "data": data});
    let drifted = live(json!({"a": "2"}), &wanted.digest);
    let remaining = differences(&ty, &drifted, &wanted.object).digest;
    let drift = Decision::Drift(vec!["data.a".into()]);
    let cases = [
        (None, None, Decision::Create),
        (Some(live(json!({"a": "1"}), &wanted.digest)), None, Decision::Skip),
        (Some(live(json!({"a": "1", "b": "2"}), &wanted.digest)), None, Decision::Skip),
        // A field of an earlier configuration may have to be removed, although all wanted values are there.
        (Some(live(json!({"a": "1"}), &config(json!({"a": "1", "b": "2"})).digest)), None, Decision::Changed),
        (Some(json!({"metadata": {"name": "c"}, "data": {"a": "1"}})), None, Decision::Changed),
        (Some(drifted.clone()), None, drift.clone()),
        // The server always sets this value.
        (Some(drifted.clone()), remaining, Decision::Skip),
        (Some(live(json!({"a": "3"}), &wanted.digest)), remaining, drift),
    ];
    for (live, remaining, expect) in cases {
        let live = live.map(|live| Object::parse(&kind, &live.to_string(), Mode::Full).unwrap());
        assert_eq!(decide(&ty, live.as_ref(), &wanted, remaining), expect, "{live:?}");
    }
}
