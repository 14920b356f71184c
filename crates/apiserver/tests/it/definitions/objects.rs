//! Objects of custom kinds: pruned, defaulted and validated by their schema.

use serde_json::json;

use super::of_spec;
use crate::cluster::{CRDS, Cluster, MERGE, WIDGETS, version, widget, widgets};

/// As Go writes them: whole numbers have no fraction.
#[tokio::test]
async fn numbers_are_stored_as_go_writes_them() {
    let cluster = Cluster::new().await;
    cluster
        .post(CRDS, &of_spec(json!({"n": {"type": "integer"}, "d": {"type": "array", "items": {"type": "number"}}})))
        .await
        .expect(201);
    let mut object = widget("w");
    object["spec"] = json!({"n": 3.0, "d": [1e3, 2.5, 8_846_916_604_822_359.0]});
    let made = cluster.post(WIDGETS, &object).await.expect(201);
    assert_eq!(made["spec"], json!({"n": 3, "d": [1000, 2.5, 8_846_916_604_822_359_i64]}));
}

#[tokio::test]
async fn objects_are_pruned_and_defaulted() {
    let cluster = Cluster::new().await;
    let definition = of_spec(json!({
        "known": {"type": "string"},
        "set": {"type": "integer", "default": 5},
        "nullable": {"type": "string", "nullable": true, "default": "x"},
        "deep": {
            "type": "object", "default": {}, "properties": {"inner": {"type": "string", "default": "y"}},
        },
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "integer", "default": 1}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer", "default": 2}}}},
        "either": {"x-kubernetes-int-or-string": true},
        "raw": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "list": {"type": "array", "items": {"type": "object", "properties": {"v": {"type": "integer", "default": 3}}}},
    }));
    cluster.post(CRDS, &definition).await.expect(201);
    for (at, (spec, expect)) in [
        (json!({}), json!({"set": 5, "nullable": "x", "deep": {"inner": "y"}})),
        (
            json!({"known": "a", "unknown": 1, "set": null, "nullable": null}),
            json!({"known": "a", "set": 5, "nullable": null, "deep": {"inner": "y"}}),
        ),
        (
            json!({"open": {"b": {"c": 1}}, "map": {"k": {"x": 1}}, "list": [{"y": 1}, {"v": 7}], "either": "50%"}),
            json!({
                "set": 5, "nullable": "x", "deep": {"inner": "y"}, "open": {"a": 1, "b": {"c": 1}}, "map": {"k": {"v": 2}},
                "list": [{"v": 3}, {"v": 7}], "either": "50%",
            }),
        ),
        (
            json!({"raw": {"apiVersion": "v1", "kind": "Any", "metadata": {"name": "x", "odd": 1}, "more": {"x": 1}}, "either": 3}),
            json!({
                "set": 5, "nullable": "x", "deep": {"inner": "y"}, "either": 3,
                "raw": {"apiVersion": "v1", "kind": "Any", "metadata": {"name": "x"}, "more": {"x": 1}},
            }),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut object = widget(&format!("w{at}"));
        object["spec"] = spec;
        let made = cluster.post(WIDGETS, &object).await.expect(201);
        assert_eq!(made["spec"], expect);
        assert_eq!(cluster.get(&format!("{WIDGETS}/w{at}")).await.expect(200), made);
    }
}

#[tokio::test]
async fn objects_are_validated() {
    let cluster = Cluster::new().await;
    let definition = of_spec(json!({
        "n": {"type": "integer", "minimum": 1, "maximum": 10, "multipleOf": 2},
        "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^a"},
        "e": {"type": "string", "enum": ["x", "y"]},
        "f": {"type": "string", "format": "date-time"},
        "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "m": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
        },
        "o": {"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}}, "maxProperties": 1},
        "any": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    }));
    cluster.post(CRDS, &definition).await.expect(201);
    for (spec, expect) in [
        (json!({"n": 0}), vec![("spec.n", "Invalid value: 0: spec.n in body should be greater than or equal to 1")]),
        (json!({"n": 12}), vec![("spec.n", "Invalid value: 12: spec.n in body should be less than or equal to 10")]),
        (json!({"n": 3}), vec![("spec.n", "Invalid value: 3: spec.n in body should be a multiple of 2")]),
        (json!({"s": "a"}), vec![("spec.s", "Invalid value: \"a\": spec.s in body should be at least 2 chars long")]),
        (json!({"s": "abcde"}), vec![("spec.s", "Too long: may not be more than 4 bytes")]),
        (json!({"s": "bb"}), vec![("spec.s", "Invalid value: \"bb\": spec.s in body should match '^a'")]),
        (json!({"e": "z"}), vec![("spec.e", "Unsupported value: \"z\": supported values: \"x\", \"y\"")]),
        (
            json!({"f": "noon"}),
            vec![("spec.f", "Invalid value: \"noon\": spec.f in body must be of type date-time: \"noon\"")],
        ),
        (json!({"l": []}), vec![("spec.l", "Invalid value: 0: spec.l in body should have at least 1 items")]),
        (json!({"l": ["a", "b", "c"]}), vec![("spec.l", "Too many: 3: must have at most 2 items")]),
        (json!({"l": ["a", "a"]}), vec![("spec.l[1]", "Duplicate value: \"a\"")]),
        (json!({"m": [{"k": "a"}, {"k": "a"}]}), vec![("spec.m[1]", "Duplicate value: {\"k\":\"a\"}")]),
        (json!({"m": [{"v": 1}]}), vec![("spec.m[0].k", "Required value")]),
        (json!({"o": {}}), vec![("spec.o.a", "Required value")]),
        (
            json!({"o": {"a": "yes"}}),
            vec![("spec.o.a", "Invalid value: \"string\": spec.o.a in body must be of type boolean: \"string\"")],
        ),
        (
            json!({"n": "x", "e": 5}),
            vec![
                ("spec.e", "Invalid value: \"integer\": spec.e in body must be of type string: \"integer\""),
                ("spec.e", "Unsupported value: 5: supported values: \"x\", \"y\""),
                ("spec.n", "Invalid value: \"string\": spec.n in body must be of type integer: \"string\""),
            ],
        ),
    ] {
        let mut object = widget("w");
        object["spec"] = spec.clone();
        let answer = cluster.post(WIDGETS, &object).await;
        answer.fails(422, "Invalid");
        let status = answer.json();
        let causes: Vec<(&str, &str)> = status["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| (cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()))
            .filter(|(field, _)| *field != "<nil>")
            .collect();
        assert_eq!(causes, expect, "{spec}");
    }
    let mut object = widget("w");
    object["spec"] = json!({"any": {}});
    cluster.post(WIDGETS, &object).await.fails(422, "Invalid");
    object["spec"] = json!({"n": 4, "s": "abc", "e": "x", "f": "2026-01-01T00:00:00Z", "l": ["a"], "m": [{"k": "a"}], "o": {"a": true}, "any": {"b": 1}});
    cluster.post(WIDGETS, &object).await.expect(201);
    // Every write is checked, also one that only touches something else.
    let path = format!("{WIDGETS}/w");
    cluster.patch(&path, MERGE, &json!({"spec": {"n": 5}})).await.fails(422, "Invalid");
}

#[tokio::test]
async fn what_was_kept_under_an_older_schema() {
    let cluster = Cluster::new().await;
    cluster.post(CRDS, &of_spec(json!({"old": {"type": "string"}, "both": {"type": "string"}}))).await.expect(201);
    let mut object = widget("w");
    object["spec"] = json!({"old": "a", "both": "b"});
    let made = cluster.post(WIDGETS, &object).await.expect(201);
    let properties = json!({"both": {"type": "string"}, "new": {"type": "string", "default": "n"}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let definition = format!("{CRDS}/widgets.example.com");
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]);
    cluster.patch(&definition, crate::cluster::JSON_PATCH, &patch).await.expect(200);
    let read = cluster.get(&format!("{WIDGETS}/w")).await.expect(200);
    assert_eq!(read["spec"], json!({"both": "b", "new": "n"}), "defaults come, unknown fields go");
    assert_eq!(version(&read), version(&made), "reading is no change");
    let list = cluster.get(WIDGETS).await.expect(200);
    assert_eq!(list["items"][0]["spec"], read["spec"]);
    let mut lines = cluster.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(lines.next().await["object"]["spec"], read["spec"]);
}

/// The numbers and the selector that `/scale` shows are checked wherever they are written.
#[tokio::test]
async fn values_that_a_scale_shows_are_checked() {
    let cluster = Cluster::new().await;
    let mut definition = widgets();
    let version = &mut definition["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    version["subresources"]["scale"]["labelSelectorPath"] = ".status.selector".into();
    for field in ["additionalPrinterColumns", "selectableFields"] {
        version.as_object_mut().unwrap().remove(field);
    }
    cluster.post(CRDS, &definition).await.expect(201);
    let most = i64::from(i32::MAX);
    for (at, (spec, expect)) in [
        (json!({"size": 0}), ""),
        (json!({"size": most}), ""),
        (json!({}), ""),
        (json!({"size": -1}), ".spec.size: Invalid value: -1: should be a non-negative integer"),
        (
            json!({"size": 1_i64 << 40}),
            ".spec.size: Invalid value: 1099511627776: should be less than or equal to 2147483647",
        ),
        (
            json!({"size": "x"}),
            ".spec.size: Invalid value: 0: .spec.size accessor error: x is of the type string, expected int64",
        ),
        (
            json!({"size": 1.5}),
            ".spec.size: Invalid value: 0: .spec.size accessor error: 1.5 is of the type float64, expected int64",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("w{at}");
        let mut object = widget(&name);
        object["spec"] = spec.clone();
        let made = cluster.post(WIDGETS, &object).await;
        if expect.is_empty() {
            made.expect(201);
        } else {
            let expect = format!("Widget.example.com {name:?} is invalid: {expect}");
            assert_eq!(made.fails(422, "Invalid"), expect, "{spec}");
        }
    }
    let one = format!("{WIDGETS}/w0");
    for (path, patch, expect) in [
        ("", json!({"spec": {"size": -1}}), ".spec.size: Invalid value: -1: should be a non-negative integer"),
        (
            "/status",
            json!({"status": {"replicas": -3}}),
            ".status.replicas: Invalid value: -3: should be a non-negative",
        ),
        (
            "/status",
            json!({"status": {"replicas": 1_i64 << 40}}),
            ".status.replicas: Invalid value: 1099511627776: should be less than or equal to 2147483647",
        ),
        (
            "/status",
            json!({"status": {"selector": {"a": "b"}}}),
            ".status.selector: Invalid value: \"\": .status.selector accessor error: map[a:b] is of the type \
             map[string]interface {}, expected string",
        ),
    ] {
        let message = cluster.patch(&format!("{one}{path}"), MERGE, &patch).await.fails(422, "Invalid");
        assert!(message.contains(expect), "{message}");
    }
    let status = json!({"status": {"replicas": 3, "selector": "a=b"}});
    cluster.patch(&format!("{one}/status"), MERGE, &status).await.expect(200);
    assert_eq!(cluster.get(&format!("{one}/scale")).await.expect(200)["status"], status["status"]);
    // One without a number has no scale, until one is set.
    let unset = format!("{WIDGETS}/w2/scale");
    let message = cluster.get(&unset).await.fails(500, "InternalError");
    assert_eq!(message, "Internal error occurred: the spec replicas field \".spec.size\" does not exist");
    let message = cluster.patch(&unset, MERGE, &json!({"metadata": {"labels": {}}})).await.fails(400, "BadRequest");
    assert_eq!(message, "the spec replicas field \".spec.size\" cannot be empty");
    let set = cluster.patch(&unset, MERGE, &json!({"spec": {"replicas": 2}})).await.expect(200);
    assert_eq!(set["spec"], json!({"replicas": 2}));
}

/// The metadata of an embedded resource is decoded and checked like that of any object.
#[tokio::test]
async fn metadata_of_embedded_resources_is_checked() {
    let cluster = Cluster::new().await;
    let whole = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    let definition = of_spec(json!({"one": whole, "many": {"type": "array", "items": whole}}));
    cluster.post(CRDS, &definition).await.expect(201);
    let key = "name part must consist of alphanumeric characters";
    for (at, (metadata, code, expect)) in [
        (json!({}), 201, ""),
        (json!({"name": "x", "labels": {"a": "b"}, "annotations": {"c/d": "e"}, "finalizers": ["f/g"]}), 201, ""),
        (json!({"labels": null, "name": null}), 201, ""),
        (
            json!(5),
            400,
            ".metadata: Invalid value: 5: json: cannot unmarshal number into Go value of type v1.ObjectMeta",
        ),
        (
            json!({"labels": {"a": 5}}),
            400,
            ".metadata: Invalid value: {\"labels\":{\"a\":5}}: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string",
        ),
        (json!({"finalizers": "x"}), 400, "json: cannot unmarshal string into Go struct field ObjectMeta.finalizers"),
        (json!({"labels": {"a b": "c"}}), 422, &*format!(".metadata.labels: Invalid value: \"a b\": {key}")),
        (json!({"annotations": {"a b": "c"}}), 422, &*format!(".metadata.annotations: Invalid value: \"a b\": {key}")),
        (json!({"finalizers": ["a b"]}), 422, &*format!(".metadata.finalizers: Invalid value: \"a b\": {key}")),
        (json!({"name": "a/b"}), 422, ".metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        (json!({"namespace": "A"}), 422, ".metadata.namespace: Invalid value: \"A\": a lowercase RFC 1123 label"),
        (json!({"generation": -1}), 422, ".metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]}),
            422,
            ".metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let embedded = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        for (place, spec) in [("one", json!({"one": embedded})), ("many[0]", json!({"many": [embedded]}))] {
            let name = format!("w{at}-{}", &place[..3]);
            let mut object = widget(&name);
            object["spec"] = spec;
            let made = cluster.post(WIDGETS, &object).await;
            assert_eq!(made.code, code, "{place} {metadata}: {:?}", made.body);
            if code != 201 {
                let message = made.json()["message"].as_str().unwrap().to_owned();
                assert!(message.contains(expect) && message.contains(&format!("spec.{place}.metadata")), "{message}");
            }
        }
    }
}
