//! Mutating policies: what they change, in which order, and what happens when they cannot.

use serde_json::{Value, json};

use super::{MAPS, map_of, rule, with};
use crate::cluster::{Cluster, MERGE, deployment, pod};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

async fn enforce(cluster: &Cluster, name: &str, spec: Value) {
    let constraints =
        json!({"resourceRules": [rule("", "configmaps", &["CREATE", "UPDATE"]), rule("", "pods", &["CREATE"])]});
    let spec = with(json!({"matchConstraints": constraints, "reinvocationPolicy": "Never"}), &spec);
    cluster.post(POLICIES, &json!({"metadata": {"name": name}, "spec": spec})).await.expect(201);
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    cluster.post(BINDINGS, &binding).await.expect(201);
}

async fn lift(cluster: &Cluster, name: &str) {
    cluster.delete(&format!("{BINDINGS}/{name}")).await.expect(200);
    cluster.delete(&format!("{POLICIES}/{name}")).await.expect(200);
}

#[tokio::test]
async fn objects_are_merged_and_patched() {
    let cluster = Cluster::new().await;
    for (mutations, expect) in [
        (json!([apply("Object{data: {'b': '2'}}")]), Ok(json!({"a": "1", "b": "2"}))),
        (json!([apply("Object{metadata: Object.metadata{labels: {'x': 'y'}}}")]), Ok(json!({"a": "1"}))),
        // Each mutation sees what the ones before it did.
        (
            json!([
                apply("Object{data: {'b': '2'}}"),
                patch("[JSONPatch{op: 'copy', from: '/data/b', path: '/data/c'}]")
            ]),
            Ok(json!({"a": "1", "b": "2", "c": "2"})),
        ),
        (
            json!([patch(
                "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'b/c': '2'}}, JSONPatch{op: 'copy', \
                 from: '/metadata/annotations/' + jsonpatch.escapeKey('b/c'), path: '/data/c'}]"
            )]),
            Ok(json!({"a": "1", "c": "2"})),
        ),
        (
            json!([patch("[JSONPatch{op: 'replace', path: '/data', value: {'n': string(object.data.size())}}]")]),
            Ok(json!({"n": "1"})),
        ),
        // A test that fails leaves the object as it is.
        (
            json!([patch(
                "[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, JSONPatch{op: 'remove', path: '/data/a'}]"
            )]),
            Ok(json!({"a": "1"})),
        ),
        (
            json!([patch("[JSONPatch{op: 'remove', path: '/data/b'}]")]),
            Err("JSON Patch: error in remove for path: '/data/b': Unable to remove nonexistent key: b: missing value"),
        ),
        (
            json!([patch("[JSONPatch{op: 'replace', path: '/x/b', value: 'a'}]")]),
            Err("JSON Patch: replace operation does not apply: doc is missing path: /x/b: missing value"),
        ),
        // A field that is not there is added.
        (json!([patch("[JSONPatch{op: 'replace', path: '/data/x', value: 'a'}]")]), Ok(json!({"a": "1", "x": "a"}))),
        (
            json!([patch("[JSONPatch{op: 'add', path: '/data', value: {1: 'a'}}]")]),
            Err("JSONPath valueExpression evaluated to a type that could not marshal to JSON: unsupported type \
                 conversion from 'int' to string"),
        ),
        (
            json!([apply("Object{data: {'b': 1}}")]),
            Err("error applying patch: failed to convert patch object to typed object: .data.b: expected string, got \
                 &value.valueUnstructured{Value:1}"),
        ),
        (
            json!([apply("Object{nothing: 'x'}")]),
            Err(
                "error applying patch: failed to convert patch object to typed object: .nothing: field not declared in \
                 schema",
            ),
        ),
        (
            json!([apply("Object{metadata: Object.meta{labels: {'x': 'y'}}}")]),
            Err(
                "type mismatch: unexpected type name \"Object.meta\", expected \"Object.metadata\", which matches field \
                 name path from root Object type",
            ),
        ),
        (
            json!([apply("Object{data: {'b': object.data.c}}")]),
            Err("expression 'Object{data: {'b': object.data.c}}' resulted in error: no such key: c"),
        ),
    ] {
        enforce(&cluster, "p", json!({"mutations": mutations})).await;
        let answer = cluster.post(&format!("{MAPS}?dryRun=All"), &map_of("m", json!({"a": "1"}))).await;
        match expect {
            Ok(data) => assert_eq!(answer.expect(201)["data"], data, "{mutations}"),
            Err(why) => {
                let refused = answer.expect(403);
                let message = format!("policy 'p' with binding 'p' denied request: {why}");
                assert_eq!((&refused["reason"], &refused["message"]), (&json!("Invalid"), &json!(message)));
                assert_eq!(
                    refused["details"],
                    json!({"name": "m", "kind": "configmaps", "causes": [{"message": message}]})
                );
            }
        }
        lift(&cluster, "p").await;
    }
}

/// What a policy made is read as its kind, so that nothing is stored that a client could not send.
#[tokio::test]
async fn what_a_policy_makes_has_the_types_of_its_kind() {
    let cluster = Cluster::with_widgets().await;
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let time = "parsing time \"junk\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"junk\" as \"2006\"";
    let map = "unable to convert unstructured object to /v1, Kind=ConfigMap";
    let denied = |why: &str| format!("policy 'p' with binding 'p' denied request: {why}");
    let internal = |why: &str| format!("Internal error occurred: {why}");
    let labels = "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string";
    for (path, mutation, code, expect) in [
        (
            SECRETS,
            apply("Object{data: {'a': '!!!'}}"),
            403,
            denied(
                "unable to convert unstructured object to /v1, Kind=Secret: error decoding from json: illegal base64 data \
                    at input byte 0",
            ),
        ),
        (
            MAPS,
            apply("Object{metadata: Object.metadata{deletionTimestamp: 'junk'}}"),
            403,
            denied(&format!("{map}: {time}")),
        ),
        (
            MAPS,
            apply("Object{metadata: Object.metadata{generation: 1.5}}"),
            403,
            denied(&format!("{map}: cannot convert float64 to int64")),
        ),
        (WIDGETS, apply("Object{metadata: Object.metadata{deletionTimestamp: 'junk'}}"), 500, time.to_owned()),
        (MAPS, patch("[JSONPatch{op: 'remove', path: '/kind'}]"), 201, String::new()),
        (
            MAPS,
            patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"),
            500,
            internal("failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ),
        (
            WIDGETS,
            patch("[JSONPatch{op: 'replace', path: '/kind', value: 'Gadget'}]"),
            422,
            "Widget.example.com \"m\" is invalid: kind: Invalid value: \"Gadget\": must be Widget".to_owned(),
        ),
        (
            WIDGETS,
            patch("[JSONPatch{op: 'replace', path: '/apiVersion', value: 'y/v1'}]"),
            500,
            internal(
                "failed to convert object: y/v1, Kind=Widget is unstructured and is not suitable for converting to \
                      \"example.com/v1\"",
            ),
        ),
        (WIDGETS, patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: [1]}]"), 500, labels.to_owned()),
        (
            WIDGETS,
            patch("[JSONPatch{op: 'replace', path: '/metadata', value: 'x'}]"),
            500,
            "json: cannot unmarshal string into Go value of type v1.ObjectMeta".to_owned(),
        ),
        (
            WIDGETS,
            patch("[JSONPatch{op: 'remove', path: '/metadata'}]"),
            422,
            "Widget.example.com \"\" is invalid: metadata.name: Required value: name or generateName is required"
                .to_owned(),
        ),
    ] {
        let rules = [rule("", "*", &["CREATE"]), rule("example.com", "*", &["CREATE"])];
        let spec = json!({"matchConstraints": {"resourceRules": rules}, "mutations": [mutation]});
        enforce(&cluster, "p", spec).await;
        let mut object = json!({"metadata": {"name": "m"}});
        if path == WIDGETS {
            object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "m"}});
        }
        let answer = cluster.post(path, &object).await.expect(code);
        if code == 201 {
            assert_eq!(answer["kind"], "ConfigMap", "{mutation}");
        } else {
            assert_eq!(answer["message"], expect, "{mutation}");
            cluster.get(&format!("{path}/m")).await.expect(404);
        }
        lift(&cluster, "p").await;
        cluster.delete(&format!("{path}/m")).await;
    }
}

#[tokio::test]
async fn lists_are_merged_by_their_keys_and_atomic_ones_are_refused() {
    let cluster = Cluster::new().await;
    let sidecar = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', \
                   restartPolicy: 'Always'}], containers: [Object.spec.containers{name: 'main', imagePullPolicy: 'Never'}]}}";
    enforce(&cluster, "p", json!({"mutations": [apply(sidecar)]})).await;
    let created = cluster.post(PODS, &pod("web")).await.expect(201);
    assert_eq!(created["spec"]["initContainers"][0]["name"], "mesh");
    // The new container has its defaults.
    assert_eq!(created["spec"]["initContainers"][0]["terminationMessagePath"], "/dev/termination-log");
    let containers = created["spec"]["containers"].as_array().unwrap();
    assert_eq!((containers.len(), &containers[0]["imagePullPolicy"]), (1, &json!("Never")));
    lift(&cluster, "p").await;
    enforce(
        &cluster,
        "p",
        json!({"mutations": [apply(
            "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'main', args: ['a']}]}}"
        )]}),
    )
    .await;
    let refused = cluster.post(PODS, &pod("other")).await.expect(403);
    assert_eq!(
        refused["message"],
        "policy 'p' with binding 'p' denied request: error applying patch: invalid ApplyConfiguration: may not mutate \
         atomic arrays, maps or structs: .spec.containers[0].args"
    );
    lift(&cluster, "p").await;
    // What no field is for is an error of the server.
    enforce(&cluster, "p", json!({"mutations": [patch("[JSONPatch{op: 'add', path: '/foo', value: 1}]")]})).await;
    assert_eq!(
        cluster.post(PODS, &pod("other")).await.fails(500, "InternalError"),
        "Internal error occurred: strict decoding error: unknown field \"foo\""
    );
}

#[tokio::test]
async fn policies_run_in_order_and_again_if_needed() {
    let cluster = Cluster::new().await;
    // What each policy sees is recorded in the data.
    let count = |key: &str| {
        format!("Object{{data: {{'{key}': string(object.data.size()) + (has(object.data.{key}) ? '+' : '')}}}}")
    };
    enforce(&cluster, "a", json!({"reinvocationPolicy": "IfNeeded", "mutations": [apply(&count("first"))]})).await;
    enforce(&cluster, "b", json!({"mutations": [apply(&count("second"))]})).await;
    let created = cluster.post(MAPS, &map_of("m", json!({"a": "1"}))).await.expect(201);
    assert_eq!(created["data"], json!({"a": "1", "first": "3+", "second": "2"}));
    // Nobody manages what policies set.
    let managed = created["metadata"]["managedFields"][0]["fieldsV1"].to_string();
    assert!(managed.contains("f:a") && !managed.contains("f:first"), "{managed}");
}

#[tokio::test]
async fn policies_change_only_what_the_endpoint_changes() {
    let cluster = Cluster::new().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    cluster.post(deployments, &deployment("web")).await.expect(201);
    let constraints = |resources: &str| json!({"resourceRules": [rule("apps", resources, &["UPDATE"])]});
    let spec = "Object{spec: Object.spec{paused: true}, status: Object.status{observedGeneration: 7}}";
    enforce(&cluster, "s", json!({"matchConstraints": constraints("deployments/status"), "mutations": [apply(spec)]}))
        .await;
    let status = json!({"status": {"replicas": 1}});
    let updated = cluster.patch(&format!("{deployments}/web/status"), MERGE, &status).await.expect(200);
    assert_eq!((&updated["spec"]["paused"], &updated["status"]["observedGeneration"]), (&json!(null), &json!(7)));
    // A scale is changed as a scale.
    let most = "Object{spec: Object.spec{replicas: object.spec.replicas > 3 ? 3 : object.spec.replicas}}";
    enforce(&cluster, "m", json!({"matchConstraints": constraints("deployments/scale"), "mutations": [apply(most)]}))
        .await;
    let scaled = cluster.patch(&format!("{deployments}/web/scale"), MERGE, &json!({"spec": {"replicas": 9}})).await;
    assert_eq!(scaled.expect(200)["spec"]["replicas"], 3);
    // A generated name is not known yet.
    let named =
        "Object{data: {'name': has(object.metadata.name) ? object.metadata.name : object.metadata.generateName}}";
    enforce(&cluster, "n", json!({"mutations": [apply(named)]})).await;
    let mut generated = map_of("x", json!({}));
    generated["metadata"] = json!({"generateName": "gen-"});
    assert_eq!(cluster.post(MAPS, &generated).await.expect(201)["data"]["name"], "gen-");
}
