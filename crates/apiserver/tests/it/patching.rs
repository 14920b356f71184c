//! The kinds of patches, and invalid ones.

use serde_json::{Value, json};

use crate::cluster::{
    APPLY, CONFIG_MAPS, Cluster, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, STRATEGIC, WIDGETS, config_map, deployment, pod,
    widget,
};

#[tokio::test]
async fn json_patches() {
    let cluster = Cluster::new().await;
    for (patch, expect) in [
        (json!([{"op": "add", "path": "/data/x", "value": "1"}]), Some(json!({"k": "v", "x": "1"}))),
        (json!([{"op": "replace", "path": "/data/k", "value": "2"}]), Some(json!({"k": "2"}))),
        (json!([{"op": "remove", "path": "/data/k"}]), Some(Value::Null)),
        (json!([{"op": "copy", "from": "/data/k", "path": "/data/c"}]), Some(json!({"k": "v", "c": "v"}))),
        (json!([{"op": "move", "from": "/data/k", "path": "/data/m"}]), Some(json!({"m": "v"}))),
        (json!([{"op": "test", "path": "/data/k", "value": "v"}]), Some(json!({"k": "v"}))),
        (
            json!([{"op": "add", "path": "/metadata/annotations", "value": {}}, {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"}]),
            Some(json!({"k": "v"})),
        ),
        // Absence can be tested for.
        (
            json!([
                {"op": "test", "path": "/metadata/finalizers", "value": null},
                {"op": "add", "path": "/data/x", "value": "1"},
            ]),
            Some(json!({"k": "v", "x": "1"})),
        ),
        (json!([{"op": "test", "path": "/data", "value": null}]), None),
        (json!([{"op": "test", "path": "/data/k", "value": "w"}]), None),
        (json!([{"op": "remove", "path": "/data/nothing"}]), None),
        // The library of kube-apiserver takes more than RFC 6902.
        (json!([{"op": "replace", "path": "/data/x", "value": "1"}]), Some(json!({"k": "v", "x": "1"}))),
        (
            json!([{"op": "copy", "from": "/nothing", "path": "/data/k"}, {"op": "remove", "path": "/data/k"}]),
            Some(Value::Null),
        ),
        (json!([{"op": "add", "path": "/metadata/labels"}]), Some(json!({"k": "v"}))),
        (json!([{"op": "add", "path": "data/kind", "value": "ConfigMap"}]), Some(json!({"k": "v"}))),
        (json!([{"op": "test", "path": "/nothing"}]), Some(json!({"k": "v"}))),
        (Value::Null, Some(json!({"k": "v"}))),
        (json!([null]), None),
        (json!([{"op": "add"}]), None),
        (json!([{"op": 5, "path": "/data/x"}]), None),
        (json!([{"op": "add", "path": 5, "value": "1"}]), None),
        (json!([{"op": "copy", "path": "/data/x"}]), None),
        (json!([{"OP": "add", "PATH": "/data/x", "VALUE": "1"}]), None),
        (json!([{"op": "test", "path": "/no/such/place", "value": null}]), None),
        (json!([{"op": "add", "path": "/no/such/place", "value": "1"}]), None),
        (json!([{"op": "copy", "from": "/no/such/place", "path": "/data/c"}]), None),
    ] {
        cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
        let answer = cluster.patch(&format!("{CONFIG_MAPS}/a"), JSON_PATCH, &patch).await;
        match expect {
            Some(expect) => {
                let data = answer.expect(200).get("data").cloned().unwrap_or_default();
                let data = if data == json!({}) { Value::Null } else { data };
                assert_eq!(data, expect, "{patch}");
            }
            None => {
                answer.fails(422, "Invalid");
                assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/a")).await.json()["data"], json!({"k": "v"}), "{patch}");
            }
        }
        cluster.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    }
}

#[tokio::test]
async fn json_patches_of_lists() {
    let cluster = Cluster::new().await;
    let finalizers = json!(["x/a", "x/b"]);
    for (name, operation, expect) in [
        ("a", json!({"op": "add", "path": "/metadata/finalizers/-1", "value": "x/c"}), json!(["x/a", "x/b", "x/c"])),
        ("b", json!({"op": "add", "path": "/metadata/finalizers/01", "value": "x/c"}), json!(["x/a", "x/c", "x/b"])),
        ("c", json!({"op": "remove", "path": "/metadata/finalizers/-1"}), json!(["x/a"])),
        ("d", json!({"op": "replace", "path": "/metadata/finalizers/-2", "value": "x/c"}), json!(["x/c", "x/b"])),
        (
            "e",
            json!({"op": "move", "from": "/metadata/finalizers/-1", "path": "/metadata/finalizers/0"}),
            json!(["x/b", "x/a"]),
        ),
        ("f", json!({"op": "remove", "path": "/metadata/finalizers/-3"}), Value::Null),
        ("g", json!({"op": "remove", "path": "/metadata/finalizers/-"}), Value::Null),
        ("h", json!({"op": "add", "path": "/metadata/finalizers/4", "value": "x/c"}), Value::Null),
    ] {
        let mut object = config_map(name);
        object["metadata"]["finalizers"] = finalizers.clone();
        cluster.post(CONFIG_MAPS, &object).await.expect(201);
        let answer = cluster.patch(&format!("{CONFIG_MAPS}/{name}"), JSON_PATCH, &json!([operation])).await;
        match expect {
            Value::Null => drop(answer.fails(422, "Invalid")),
            expect => assert_eq!(answer.expect(200)["metadata"]["finalizers"], expect, "{operation}"),
        }
    }
}

#[tokio::test]
async fn strategic_patches_do_not_change_the_kind() {
    let cluster = Cluster::new().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    for patch in [json!({"kind": "Pod"}), json!({"apiVersion": "v1"}), json!({"kind": null, "apiVersion": "x/y/z"})] {
        let patched = cluster.patch(&format!("{DEPLOYMENTS}/a"), STRATEGIC, &patch).await.expect(200);
        assert_eq!((&patched["apiVersion"], &patched["kind"]), (&json!("apps/v1"), &json!("Deployment")), "{patch}");
    }
    cluster.patch(&format!("{DEPLOYMENTS}/a"), MERGE, &json!({"kind": "Pod"})).await.fails(422, "Invalid");
}

#[tokio::test]
async fn configurations_have_a_kind() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    for (path, config, expect) in [
        (DEPLOYMENTS, json!({"kind": "Deployment"}), "/, Kind=Deployment"),
        (DEPLOYMENTS, json!({"apiVersion": "apps/v1"}), "apps/v1, Kind="),
        (DEPLOYMENTS, json!({}), "/, Kind="),
        (DEPLOYMENTS, json!({"apiVersion": "apps/v9", "kind": "Deployment"}), "apps/v9, Kind=Deployment"),
        (WIDGETS, json!({"kind": "Widget"}), "/, Kind=Widget"),
        (WIDGETS, json!({"apiVersion": "example.com/v1", "kind": "Gadget"}), "example.com/v1, Kind=Gadget"),
    ] {
        let answer = cluster.patch(&format!("{path}/a?fieldManager=me"), APPLY, &config).await;
        assert_eq!(answer.fails(400, "BadRequest"), format!("invalid object type: {expect}"), "{config}");
    }
}

/// Kubernetes publishes the zero value of a required field as its default, so that an item without its key has an empty one.
#[tokio::test]
async fn applied_items_without_their_key_are_invalid() {
    let cluster = Cluster::new().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    for (spec, expect) in [
        (json!({"containers": [{"image": "i"}]}), "spec.template.spec.containers[1].name: Required value"),
        (json!({"volumes": [{"emptyDir": {}}]}), "spec.template.spec.volumes[0].name: Required value"),
    ] {
        let config = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": spec}},
        });
        let answer = cluster.patch(&format!("{DEPLOYMENTS}/a?fieldManager=me"), APPLY, &config).await;
        let message = answer.fails(422, "Invalid");
        assert!(message.contains(expect), "{message}");
    }
}

#[tokio::test]
async fn patches_that_are_none() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    for (kind, body, code) in [
        (JSON_PATCH, "{}", 400),
        (JSON_PATCH, "[", 400),
        (JSON_PATCH, "[{\"op\":\"jump\",\"path\":\"/data\"}]", 422),
        (JSON_PATCH, "[5]", 400),
        (MERGE, "[]", 400),
        (MERGE, "\"text\"", 400),
        (MERGE, "{", 400),
        (MERGE, "", 400),
        (STRATEGIC, "[]", 400),
        (STRATEGIC, "{\"data\":{\"$patch\":\"explode\"}}", 500),
        (APPLY, "", 400),
        (APPLY, "[]", 400),
        ("application/json", "{}", 415),
        ("", "{}", 415),
        ("text/yaml", "{}", 415),
    ] {
        let query = if kind == APPLY { "?fieldManager=me" } else { "" };
        let answer = cluster.ask("PATCH", &format!("{path}{query}"), &[("content-type", kind)], body).await;
        assert_eq!(answer.code, code, "{kind} {body}: {}", String::from_utf8_lossy(&answer.body));
        answer.check_failure();
    }
    for (kind, patch) in [
        (MERGE, json!({"data": "text"})),
        (MERGE, json!({"metadata": null})),
        (MERGE, json!({"metadata": {"labels": {"a": 1}}})),
        (MERGE, json!({"kind": "Secret"})),
        (JSON_PATCH, json!([{"op": "replace", "path": "", "value": 5}])),
        (JSON_PATCH, json!([{"op": "add", "path": "/data/k", "value": {}}])),
        (STRATEGIC, json!({"data": {"k": 1}})),
    ] {
        let answer = cluster.patch(&path, kind, &patch).await;
        assert!((400..=422).contains(&answer.code), "{kind} {patch}: {}", answer.code);
        answer.check_failure();
    }
    assert_eq!(cluster.get(&path).await.json()["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn json_patches_have_a_size() {
    let cluster = Cluster::new().await;
    cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let test = json!({"op": "test", "path": "/kind", "value": "ConfigMap"});
    let fits = Value::from(vec![test.clone(); 10_000]);
    cluster.patch(&path, JSON_PATCH, &fits).await.expect(200);
    let large = Value::from(vec![test; 10_001]);
    assert_eq!(
        cluster.patch(&path, JSON_PATCH, &large).await.fails(413, "RequestEntityTooLarge"),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    // A patch that copies its own copies would grow without end.
    let mut doubling = vec![json!({"op": "add", "path": "/data/x0", "value": "y".repeat(1000)})];
    doubling.extend((0..40).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/again{at}")})));
    let answer = cluster.patch(&path, JSON_PATCH, &Value::from(doubling)).await;
    answer.fails(413, "RequestEntityTooLarge");
}

/// A stored object must stay readable, however it grew.
#[tokio::test]
async fn objects_have_a_depth() {
    let cluster = Cluster::with_widgets().await;
    let nested = |depth: usize| (0..depth).fold(json!("end"), |inner, _| json!({"a": inner}));
    let path = format!("{WIDGETS}/a");
    for (depth, code) in [(100, 201), (118, 201), (119, 400), (126, 400)] {
        let mut object = widget("a");
        object["spec"]["free"] = nested(depth);
        let answer = cluster.post(WIDGETS, &object).await;
        assert_eq!(answer.code, code, "{depth}");
        if code == 201 {
            assert_eq!(cluster.get(&path).await.expect(200), answer.json());
            assert_eq!(
                cluster.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.expect(200)["items"][0],
                answer.json()
            );
            cluster.delete(&path).await.expect(200);
        }
    }
    let mut object = widget("a");
    object["spec"]["free"] = nested(1);
    let made = cluster.post(WIDGETS, &object).await.expect(201);
    let deeper = vec![json!({"op": "copy", "from": "/spec/free", "path": "/spec/free/a"}); 1000];
    cluster.patch(&path, JSON_PATCH, &Value::from(deeper)).await.fails(400, "BadRequest");
    assert_eq!(cluster.get(&path).await.expect(200), made);
}

#[tokio::test]
async fn merge_patches() {
    let cluster = Cluster::with_widgets().await;
    let mut object = widget("a");
    object["spec"]["ports"] = json!([{"port": 1}, {"port": 2}]);
    object["spec"]["free"] = json!({"a": {"b": 1}});
    cluster.post(WIDGETS, &object).await.expect(201);
    let patch =
        json!({"spec": {"size": null, "ports": [{"port": 3}], "free": {"a": {"c": 2}, "d": null}, "color": null}});
    let patched = cluster.patch(&format!("{WIDGETS}/a"), MERGE, &patch).await.expect(200);
    assert_eq!(
        patched["spec"],
        json!({"ports": [{"port": 3}], "free": {"a": {"b": 1, "c": 2}}, "color": "red"}),
        "lists are replaced, null removes, defaults come back"
    );
}

#[tokio::test]
async fn strategic_patches() {
    let cluster = Cluster::new().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/a");
    let containers = |object: &Value| -> Vec<String> {
        let list = object["spec"]["template"]["spec"]["containers"].as_array().unwrap().iter();
        list.map(|one| format!("{}={}", one["name"].as_str().unwrap(), one["image"].as_str().unwrap())).collect()
    };
    let patch = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let added = patch(json!([{"name": "side", "image": "proxy"}]));
    let patched = cluster.patch(&path, STRATEGIC, &added).await.expect(200);
    assert_eq!(containers(&patched), ["side=proxy", "main=busybox"]);
    let changed = patch(json!([{"name": "main", "image": "alpine"}]));
    let patched = cluster.patch(&path, STRATEGIC, &changed).await.expect(200);
    assert_eq!(containers(&patched), ["side=proxy", "main=alpine"]);
    let removed = patch(json!([{"name": "side", "$patch": "delete"}]));
    let patched = cluster.patch(&path, STRATEGIC, &removed).await.expect(200);
    assert_eq!(containers(&patched), ["main=alpine"]);
}

#[tokio::test]
async fn strategic_patches_of_wrong_types_are_shown() {
    let cluster = Cluster::new().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    for (patch, shown, why) in [
        (json!({"metadata": {"labels": "x"}}), "map[metadata:map[labels:x]]", "cannot restore map from string"),
        (json!({"spec": {"template": 1}}), "map[spec:map[template:1]]", "cannot restore struct from: int64"),
        (json!({"spec": {"paused": "yes"}}), "map[spec:map[paused:yes]]", "unrecognized type: bool"),
        (json!({"spec": {"replicas": 1.5}}), "map[spec:map[replicas:1.5]]", "cannot convert float64 to int32"),
    ] {
        let refused = cluster.patch(&format!("{DEPLOYMENTS}/a"), STRATEGIC, &patch).await;
        let expect = format!(" \"\" is invalid: patch: Invalid value: {shown:?}: {why}");
        assert_eq!(refused.fails(422, "Invalid"), expect);
    }
}

#[tokio::test]
async fn strict_patches_are_judged_by_what_they_make() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(PODS, &pod("a")).await.expect(201);
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    for (path, kind, patch, unknown) in [
        (PODS, MERGE, json!({"spec": {"nodename": "x"}}), "spec.nodename"),
        (PODS, STRATEGIC, json!({"spec": {"nodename": "x"}}), "spec.nodename"),
        (PODS, JSON_PATCH, json!([{"op": "add", "path": "/spec/nodename", "value": "x"}]), "spec.nodename"),
        (WIDGETS, MERGE, json!({"spec": {"weight": 1}}), "spec.weight"),
    ] {
        let strict = cluster.patch(&format!("{path}/a?fieldValidation=Strict"), kind, &patch).await;
        let message = strict.fails(422, "Invalid");
        assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: "), "{message}");
        assert!(message.ends_with(&format!(": strict decoding error: unknown field \"{unknown}\"")), "{message}");
        assert_eq!(strict.json()["details"]["causes"][0]["field"], "patch");
        let warned = cluster.patch(&format!("{path}/a"), kind, &patch).await;
        warned.expect(200);
        assert_eq!(warned.warnings(), [format!("\"unknown field \\\"{unknown}\\\"\"")], "{path} {kind}");
        let ignored = cluster.patch(&format!("{path}/a?fieldValidation=Ignore"), kind, &patch).await;
        ignored.expect(200);
        assert!(ignored.warnings().is_empty());
    }
}

#[tokio::test]
async fn applying() {
    let cluster = Cluster::with_widgets().await;
    let path = format!("{WIDGETS}/a?fieldManager=me");
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: 4\n";
    let made = cluster.ask("PATCH", &path, &[("content-type", APPLY)], yaml).await.expect(201);
    assert_eq!(made["spec"], json!({"size": 4, "color": "red"}));
    assert_eq!(
        made["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "example.com/v1", "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}}},
        }])
    );
    cluster.ask("PATCH", &path, &[("content-type", APPLY)], yaml).await.expect(200);
    let mut stale = widget("a");
    stale["metadata"]["resourceVersion"] = "1".into();
    cluster.patch(&path, APPLY, &stale).await.fails(409, "Conflict");
    let mut absent = widget("b");
    absent["metadata"]["uid"] = "5a1c7f0e-0000-4000-8000-000000000000".into();
    cluster.patch(&format!("{WIDGETS}/b?fieldManager=me"), APPLY, &absent).await.fails(409, "Conflict");
    let nameless = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {}});
    cluster.patch(&format!("{WIDGETS}/c?fieldManager=me"), APPLY, &nameless).await.fails(400, "BadRequest");
    cluster.patch(&path, APPLY, &widget("other")).await.fails(400, "BadRequest");
    let force = cluster.patch(&format!("{WIDGETS}/a?force=true"), MERGE, &json!({})).await;
    assert!(force.fails(422, "Invalid").contains("force: Forbidden: may not be specified for non-apply patch"));
}

/// What strict decoding finds in patches, and in scales: refused, warned of or ignored.
#[tokio::test]
async fn strict_decoding_of_patches_and_scales() {
    let cluster = Cluster::new().await;
    cluster.post(DEPLOYMENTS, &deployment("a")).await.expect(201);
    cluster.post(CONFIG_MAPS, &config_map("m")).await.expect(201);
    let (map, scale) = (format!("{CONFIG_MAPS}/m"), format!("{DEPLOYMENTS}/a/scale"));
    const JSON: &str = "application/json";
    const OPERATION: &str = r#"[{"op": "add", "path": "/data", "value": {"q": "1", "q": "2"}}]"#;
    for (method, path, kind, body, code, expect) in [
        ("PATCH", &map, MERGE, r#"{"data": {"q": "1", "q": "2"}}"#, 422, r#"duplicate field "data.q""#),
        ("PATCH", &map, STRATEGIC, r#"{"data": {"q": "1", "q": "2"}}"#, 422, r#"duplicate field "data.q""#),
        ("PATCH", &map, MERGE, r#"{"zzz": 1}"#, 422, r#"unknown field "zzz""#),
        (
            "PATCH",
            &map,
            MERGE,
            r#"{"zzz": 1, "data": {"q": "1", "q": "2"}}"#,
            422,
            r#"duplicate field "data.q", unknown field "zzz""#,
        ),
        ("PATCH", &map, JSON_PATCH, OPERATION, 422, r#"json patch duplicate field "[0].value.q""#),
        (
            "PATCH",
            &map,
            JSON_PATCH,
            r#"[{"op": "add", "path": "/data/q", "value": "2", "zzz": 1}]"#,
            422,
            r#"json patch unknown field "[0].zzz""#,
        ),
        ("PATCH", &scale, MERGE, r#"{"spec": {"replicas": 4}, "zzz": 1}"#, 422, r#"unknown field "zzz""#),
        (
            "PATCH",
            &scale,
            MERGE,
            r#"{"spec": {"replicas": 4, "replicas": 4}}"#,
            422,
            r#"duplicate field "spec.replicas""#,
        ),
        (
            "PUT",
            &scale,
            JSON,
            r#"{"metadata": {"name": "a"}, "spec": {"replicas": 4, "zzz": 1}}"#,
            400,
            r#"unknown field "spec.zzz""#,
        ),
        (
            "PUT",
            &scale,
            JSON,
            r#"{"metadata": {"name": "a"}, "spec": {"replicas": 4, "replicas": 4}}"#,
            400,
            r#"duplicate field "spec.replicas""#,
        ),
    ] {
        let before = cluster.get(path).await.expect(200);
        for (mode, warns) in [("Strict", true), ("Warn", true), ("", true), ("Ignore", false)] {
            let query = if mode.is_empty() { String::new() } else { format!("&fieldValidation={mode}") };
            let asked = format!("{path}?dryRun=All{query}");
            let answer = cluster.ask(method, &asked, &[("content-type", kind)], body).await;
            let what = format!("{method} {asked} {body}");
            if mode == "Strict" {
                let reason = if code == 422 { "Invalid" } else { "BadRequest" };
                let message = answer.fails(code, reason);
                let expect = format!("strict decoding error: {expect}");
                assert!(message.ends_with(&expect), "{what}: {message}");
                continue;
            }
            answer.expect(200);
            let texts = answer.warnings();
            let texts: Vec<String> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
            assert_eq!(texts.join(", "), if warns { expect } else { "" }, "{what}");
        }
        assert_eq!(cluster.get(path).await.expect(200), before, "{method} {path} {body}");
    }
}

#[tokio::test]
async fn nulls_of_an_applied_custom_resource_are_validated() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(WIDGETS, &widget("a")).await.expect(201);
    let path = format!("{WIDGETS}/a?fieldManager=me&force=true");
    let applied = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let message = cluster.patch(&path, APPLY, &applied(json!({"size": null}))).await.fails(422, "Invalid");
    assert!(message.contains("spec.size in body must be of type integer: \"null\""), "{message}");
    let defaulted = cluster.patch(&path, APPLY, &applied(json!({"size": 1, "color": null}))).await.expect(200);
    assert_eq!(defaulted["spec"]["color"], "red");
}

#[tokio::test]
async fn the_creator_of_a_daemon_set_manages_the_annotation_that_counts() {
    let cluster = Cluster::new().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set =
        json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let made = cluster.post("/apis/apps/v1/namespaces/default/daemonsets", &set).await.expect(201);
    let annotation = "deprecated.daemonset.template.generation";
    assert_eq!(made["metadata"]["annotations"], json!({annotation: "1"}));
    let fields = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"];
    assert_eq!(*fields, json!({"f:annotations": {".": {}, format!("f:{annotation}"): {}}}));
}
