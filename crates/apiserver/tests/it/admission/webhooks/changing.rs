//! Webhooks that change objects.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::cluster::{
    CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, MERGE, NAMESPACES, PODS, SECRETS, WIDGETS, config_map, deployment, pod,
    widget, widgets,
};

use super::{Hook, MUTATING, VALIDATING, allow, configuration, hook, patch};

#[tokio::test]
async fn patches_of_every_operation() {
    for (operations, expect) in [
        (json!([{"op": "add", "path": "/data", "value": {"a": "b"}}]), Ok(json!({"a": "b"}))),
        (
            json!([{"op": "add", "path": "/data", "value": {"a": "b"}}, {"op": "copy", "from": "/data/a", "path": "/data/c"},
                {"op": "move", "from": "/data/a", "path": "/data/d"}, {"op": "test", "path": "/data/d", "value": "b"},
                {"op": "replace", "path": "/data/c", "value": "x"}]),
            Ok(json!({"c": "x", "d": "b"})),
        ),
        (json!([{"op": "test", "path": "/data", "value": 1}]), Err("testing value /data failed: test failed")),
        (
            json!([{"op": "remove", "path": "/nothing"}]),
            Err("error in remove for path: '/nothing': Unable to remove nonexistent key: nothing: missing value"),
        ),
        (json!([{"op": "juggle", "path": "/data"}]), Err("Unexpected kind: juggle")),
    ] {
        let cluster = Cluster::new().await;
        let answer = patch(&operations);
        Hook::serve(&cluster, "h", move |_| answer.clone());
        cluster.post(MUTATING, &configuration("c", &[hook("h", &json!({}))])).await.expect(201);
        let mut map = config_map("a");
        map.as_object_mut().unwrap().remove("data");
        let answer = cluster.post(CONFIG_MAPS, &map).await;
        match expect {
            Ok(data) => assert_eq!(answer.expect(201)["data"], data, "{operations}"),
            Err(why) => assert_eq!(answer.fails(500, "InternalError"), format!("Internal error occurred: {why}")),
        }
    }
}

/// Webhooks are asked in the order of their configurations' names, each with what the one before it made.
#[tokio::test]
async fn webhooks_are_asked_one_after_the_other() {
    let cluster = Cluster::new().await;
    let add = |request: &Value, name: &str| {
        let before = request["object"]["metadata"]["annotations"]["order"].as_str().unwrap_or_default().to_owned();
        patch(&json!([{"op": "add", "path": "/metadata/annotations", "value": {"order": format!("{before}{name}")}}]))
    };
    let _first = Hook::serve(&cluster, "first", move |request| add(request, "1"));
    let _second = Hook::serve(&cluster, "second", move |request| add(request, "2"));
    let _third = Hook::serve(&cluster, "third", move |request| add(request, "3"));
    cluster.post(MUTATING, &configuration("z", &[hook("third", &json!({}))])).await.expect(201);
    let both = [hook("first", &json!({})), hook("second", &json!({}))];
    cluster.post(MUTATING, &configuration("a", &both)).await.expect(201);
    let made = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made["metadata"]["annotations"]["order"], "123");
}

/// A webhook with `IfNeeded` is asked again after a later one has changed the object.
#[tokio::test]
async fn webhooks_are_asked_again_if_needed() {
    for (policy, changes, expect) in [("IfNeeded", true, 2), ("Never", true, 1), ("IfNeeded", false, 1)] {
        let cluster = Cluster::new().await;
        let first = Hook::serve(&cluster, "first", allow);
        let second = Hook::serve(&cluster, "second", move |_| {
            if changes {
                patch(&json!([{"op": "add", "path": "/data", "value": {"a": "b"}}]))
            } else {
                json!({"allowed": true})
            }
        });
        let hooks = [hook("first", &json!({"reinvocationPolicy": policy})), hook("second", &json!({}))];
        cluster.post(MUTATING, &configuration("c", &hooks)).await.expect(201);
        cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
        assert_eq!((first.times(), second.times()), (expect, 1), "{policy} {changes}");
    }
}

/// What a webhook adds to a built-in kind gets its defaults, and is validated like what a client sends.
#[tokio::test]
async fn what_a_webhook_makes_is_defaulted_and_validated() {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]});
    for (value, expect) in [
        (json!({"name": "side", "image": "b"}), Ok("Always")),
        (json!({"name": "-", "image": "b"}), Err("spec.template.spec.containers[1].name: Invalid value: \"-\"")),
    ] {
        let cluster = Cluster::new().await;
        let answer = patch(&json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": value}]));
        Hook::serve(&cluster, "h", move |_| answer.clone());
        let made = configuration("c", &[hook("h", &json!({"rules": [rule]}))]);
        cluster.post(MUTATING, &made).await.expect(201);
        let answer = cluster.post(DEPLOYMENTS, &deployment("a")).await;
        match expect {
            Ok(policy) => {
                let made = answer.expect(201);
                assert_eq!(made["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"], policy);
            }
            Err(why) => assert!(answer.fails(422, "Invalid").contains(why)),
        }
    }
}

/// Webhooks for custom resources: the object is changed, its status is not changed through the object itself.
#[tokio::test]
async fn custom_resources_are_changed_as_far_as_their_endpoint_reaches() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &widgets()).await.expect(201);
    let rule =
        json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"]});
    Hook::serve(&cluster, "h", |request| match request["operation"].as_str() {
        Some("DELETE") => patch(&json!([{"op": "add", "path": "/spec", "value": {}}])),
        _ => patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])),
    });
    cluster.post(MUTATING, &configuration("c", &[hook("h", &json!({"rules": [rule]}))])).await.expect(201);
    let made = cluster.post(WIDGETS, &widget("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    let path = format!("{WIDGETS}/a");
    let patched = cluster.patch(&path, MERGE, &json!({"metadata": {"labels": null}})).await.expect(200);
    assert_eq!(patched["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(
        cluster.delete(&path).await.fails(500, "InternalError"),
        "Internal error occurred: admission webhook \"h.example.com\" attempted to modify the object, which is not supported \
         for this operation"
    );
}

/// What a webhook made is read as its kind, so that nothing is stored that a client could not send.
#[tokio::test]
async fn what_a_webhook_makes_is_of_its_kind() {
    let cluster = Cluster::with_widgets().await;
    let operations: Arc<Mutex<Value>> = Arc::default();
    let given = operations.clone();
    Hook::serve(&cluster, "h", move |_| patch(&given.lock().unwrap()));
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps", "widgets", "widgets/status"],
        "operations": ["CREATE", "UPDATE"]});
    // Whatever a failure policy says: this is not a failure of the call.
    let hook = hook("h", &json!({"rules": [rule], "failurePolicy": "Ignore"}));
    cluster.post(CONFIG_MAPS, &config_map("old")).await.expect(201);
    cluster.post(WIDGETS, &widget("old")).await.expect(201);
    cluster.post(MUTATING, &configuration("c", &[hook])).await.expect(201);
    let invalid =
        |field: &str, what: &str| format!("json: cannot unmarshal {what} into Go struct field ObjectMeta.{field}");
    let internal = |why: &str| format!("Internal error occurred: {why}");
    let meta = "json: cannot unmarshal string into Go value of type v1.ObjectMeta".to_owned();
    let nameless = "metadata.name: Required value: name or generateName is required".to_owned();
    let fill = (200, String::new());
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let all = |value: Value| json!({"op": "replace", "path": "", "value": value});
    // For each kind: what a create and what an update is answered.
    for (path, operation, create, update) in [
        (CONFIG_MAPS, json!({"op": "remove", "path": "/kind"}), (201, String::new()), fill.clone()),
        (
            CONFIG_MAPS,
            add("/kind", json!("Secret")),
            (500, "converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned()),
            (500, "converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned()),
        ),
        (
            CONFIG_MAPS,
            add("/kind", json!("x")),
            (500, internal("no kind \"x\" is registered for version \"v1\"")),
            (500, internal("no kind \"x\" is registered for version \"v1\"")),
        ),
        (
            CONFIG_MAPS,
            add("/kind", json!(1)),
            (
                500,
                internal(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind",
                ),
            ),
            (
                500,
                internal(
                    "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind",
                ),
            ),
        ),
        (
            CONFIG_MAPS,
            add("/apiVersion", json!("a/b/c")),
            (500, internal("unexpected GroupVersion string: a/b/c")),
            (500, internal("unexpected GroupVersion string: a/b/c")),
        ),
        (CONFIG_MAPS, all(json!({})), (422, nameless.clone()), fill.clone()),
        (
            WIDGETS,
            all(json!({})),
            (500, internal("Object 'Kind' is missing in '{}'")),
            (500, internal("Object 'Kind' is missing in '{}'")),
        ),
        (
            WIDGETS,
            add("/kind", json!("Gadget")),
            (422, "kind: Invalid value: \"Gadget\": must be Widget".to_owned()),
            (422, "must be Widget".to_owned()),
        ),
        (
            WIDGETS,
            add("/apiVersion", json!("example.com/v9")),
            (500, "request to convert CR from an invalid group/version: example.com/v9".to_owned()),
            (500, "request to convert CR from an invalid group/version: example.com/v9".to_owned()),
        ),
        (WIDGETS, add("/metadata", json!("x")), (500, meta.clone()), (500, meta.clone())),
        (WIDGETS, add("/metadata", json!(null)), (422, nameless.clone()), fill.clone()),
        (WIDGETS, json!({"op": "remove", "path": "/metadata"}), (422, nameless.clone()), fill.clone()),
        (
            WIDGETS,
            add("/metadata/labels", json!([1])),
            (500, invalid("labels", "array")),
            (500, invalid("labels", "array")),
        ),
        (
            WIDGETS,
            add("/metadata/finalizers", json!("x")),
            (500, invalid("finalizers", "string")),
            (500, invalid("finalizers", "string")),
        ),
        (
            WIDGETS,
            add("/metadata/ownerReferences", json!("x")),
            (500, invalid("ownerReferences", "string")),
            (500, invalid("ownerReferences", "string")),
        ),
        (
            WIDGETS,
            add("/metadata/annotations", json!({"a": {}})),
            (500, invalid("annotations", "object")),
            (500, invalid("annotations", "object")),
        ),
        (
            WIDGETS,
            add("/metadata/deletionTimestamp", json!("junk")),
            (500, "parsing time \"junk\"".to_owned()),
            (500, "parsing time \"junk\"".to_owned()),
        ),
        // No object is deleted before it is created.
        (
            WIDGETS,
            add("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            (201, String::new()),
            (422, "field is immutable".to_owned()),
        ),
        (
            WIDGETS,
            add("/metadata/resourceVersion", json!("7")),
            (500, "resourceVersion should not be set on objects to be created".to_owned()),
            fill.clone(),
        ),
    ] {
        *operations.lock().unwrap() = json!([operation]);
        let object = if path == WIDGETS { widget("new") } else { config_map("new") };
        let mut asks = vec![(cluster.post(path, &object).await, &create)];
        let annotate = json!({"metadata": {"annotations": {"time": operation.to_string()}}});
        asks.push((cluster.patch(&format!("{path}/old"), MERGE, &annotate).await, &update));
        if path == WIDGETS {
            let status = json!({"status": {"phase": operation.to_string()}});
            // Metadata does not change through the status.
            let update = if update.1 == "field is immutable" { &fill } else { &update };
            asks.push((cluster.patch(&format!("{path}/old/status"), MERGE, &status).await, update));
        }
        for (answer, (code, words)) in asks {
            let answer = answer.expect(*code);
            let found = answer["message"].as_str().unwrap_or_default();
            assert!(found.contains(words), "{operation}: {found}");
            if *code < 300 {
                assert_eq!(answer["kind"], if path == WIDGETS { "Widget" } else { "ConfigMap" }, "{operation}");
                assert!(answer["metadata"]["deletionTimestamp"].is_null(), "{operation}");
            }
        }
        cluster.delete(&format!("{path}/new")).await;
    }
}

/// What the server itself adds to some kinds is there after webhooks, too.
#[tokio::test]
async fn what_a_kind_needs_is_filled_in_after_webhooks() {
    let definition = format!("{CRDS}/widgets.example.com");
    let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    let text = json!([{"op": "add", "path": "/stringData", "value": {"a": "b"}}]);
    let bare = json!([{"op": "remove", "path": "/spec"}, {"op": "remove", "path": "/metadata/labels"}]);
    for (resource, operations, path, object, pointer, expect) in [
        ("customresourcedefinitions", &label, CRDS, widgets(), "/status/storedVersions", json!(["v1"])),
        ("secrets", &text, SECRETS, json!({"metadata": {"name": "a"}}), "/data", json!({"a": "Yg=="})),
        ("secrets", &text, SECRETS, json!({"metadata": {"name": "a"}}), "/stringData", Value::Null),
        (
            "namespaces",
            &bare,
            NAMESPACES,
            json!({"metadata": {"name": "a"}}),
            "/spec/finalizers",
            json!(["kubernetes"]),
        ),
        (
            "namespaces",
            &bare,
            NAMESPACES,
            json!({"metadata": {"name": "a"}}),
            "/metadata/labels",
            json!({"kubernetes.io/metadata.name": "a"}),
        ),
    ] {
        let cluster = Cluster::new().await;
        let answer = patch(operations);
        Hook::serve(&cluster, "h", move |_| answer.clone());
        let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]});
        cluster.post(MUTATING, &configuration("c", &[hook("h", &json!({"rules": [rule]}))])).await.expect(201);
        let made = cluster.post(path, &object).await.expect(201);
        assert_eq!(made.pointer(pointer).cloned().unwrap_or_default(), expect, "{resource} {pointer}");
        if resource == "customresourcedefinitions" {
            let changed = json!({"metadata": {"annotations": {"a": "b"}}});
            let changed = cluster.patch(&definition, MERGE, &changed).await.expect(200);
            assert_eq!(changed["status"]["storedVersions"], expect);
            assert_eq!(changed["metadata"]["labels"], json!({"a": "b"}));
        }
    }
}

/// A token is what webhooks made of the request for it, and validating ones see it complete.
#[tokio::test]
async fn token_requests_are_changed() {
    let cluster = Cluster::new().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    cluster.post(accounts, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["serviceaccounts/token"], "operations": ["*"]});
    let answer = patch(&json!([{"op": "add", "path": "/spec/audiences", "value": ["x"]},
        {"op": "replace", "path": "/spec/expirationSeconds", "value": 700}]));
    Hook::serve(&cluster, "first", move |_| answer.clone());
    let seen = Hook::serve(&cluster, "second", allow);
    cluster.post(MUTATING, &configuration("c", &[hook("first", &json!({"rules": [rule]}))])).await.expect(201);
    cluster.post(VALIDATING, &configuration("c", &[hook("second", &json!({"rules": [rule]}))])).await.expect(201);
    let made = cluster.post(&format!("{accounts}/a/token"), &json!({})).await.expect(201);
    assert_eq!(made["spec"], json!({"audiences": ["x"], "expirationSeconds": 700, "boundObjectRef": null}));
    let object = seen.asked()[0]["object"].clone();
    assert_eq!(object["spec"], json!({"audiences": ["x"], "expirationSeconds": 700}));
    assert_eq!((&object["metadata"]["name"], &object["metadata"]["uid"]), (&json!("a"), &made["metadata"]["uid"]));
    // What is wrong is said before validating webhooks are asked.
    cluster.delete(&format!("{MUTATING}/c")).await.expect(200);
    let short = json!({"spec": {"expirationSeconds": 1}});
    cluster.post(&format!("{accounts}/a/token"), &short).await.fails(422, "Invalid");
    assert_eq!(seen.times(), 1);
}

/// A connection is what webhooks made of its options.
#[tokio::test]
async fn connections_are_changed() {
    let cluster = Cluster::new().await;
    let mut placed = pod("a");
    placed["spec"]["nodeName"] = "n".into();
    cluster.post(PODS, &placed).await.expect(201);
    let path = format!("{PODS}/a/exec?container=main&command=sh&stdout=true");
    assert_eq!(cluster.get(&path).await.fails(400, "BadRequest"), "Upgrade request required");
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"], "operations": ["CONNECT"]});
    let answer = patch(&json!([{"op": "replace", "path": "/container", "value": "other"}]));
    Hook::serve(&cluster, "h", move |_| answer.clone());
    cluster.post(MUTATING, &configuration("c", &[hook("h", &json!({"rules": [rule]}))])).await.expect(201);
    assert_eq!(cluster.get(&path).await.fails(400, "BadRequest"), "container other is not valid for pod a");
    let dry = cluster.get(&format!("{path}&dryRun=All")).await;
    assert_eq!(dry.fails(400, "BadRequest"), "dryRun is not supported");
}

/// A webhook that leaves field managers in a state that makes no sense does not spoil the object.
#[tokio::test]
async fn managers_that_make_no_sense_stay_as_they_were() {
    let cluster = Cluster::new().await;
    let odd = json!([{"manager": "odd", "operation": "Juggle", "apiVersion": "v1"}]);
    let answer = patch(&json!([{"op": "add", "path": "/metadata/managedFields", "value": odd}]));
    Hook::serve(&cluster, "h", move |_| answer.clone());
    cluster.post(MUTATING, &configuration("c", &[hook("h", &json!({}))])).await.expect(201);
    let made = cluster.post(&format!("{CONFIG_MAPS}?fieldManager=me"), &config_map("a")).await;
    let managers = &made.expect(201)["metadata"]["managedFields"];
    assert_eq!((managers.as_array().unwrap().len(), &managers[0]["manager"]), (1, &json!("me")));
    let warned = made.warnings().join("");
    assert!(warned.contains(".metadata.managedFields was in an invalid state after admission"), "{warned}");
}
