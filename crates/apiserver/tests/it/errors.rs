//! Failures, word for word: code, reason, message, details and causes of every kind of refusal.

use serde_json::{Value, json};

use crate::cluster::{
    APPLY, CONFIG_MAPS, CRDS, Cluster, DEPLOYMENTS, LEASES, MERGE, NAMESPACES, PODS, PROTOBUF, SECRETS, WIDGETS,
    config_map, deployment, widget,
};

/// One request and the failure it ends in.
struct Row<'a> {
    ask: (&'a str, String, &'a str, Value),
    code: u16,
    reason: &'a str,
    message: &'a str,
    details: Value,
}

async fn check(cluster: &Cluster, row: Row<'_>) {
    let (method, path, content_type, body) = &row.ask;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = cluster.ask(method, path, &[("content-type", content_type)], body).await;
    let what = format!("{method} {path}");
    assert_eq!(answer.fails(row.code, row.reason), row.message, "{what}");
    let mut status = answer.json();
    assert_eq!(status["details"].take(), row.details, "{what}");
}

#[tokio::test]
async fn every_kind_of_failure() {
    const JSON: &str = "application/json";
    let cluster = Cluster::with_widgets().await;
    let map = cluster.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let (uid, version) =
        (map["metadata"]["uid"].as_str().unwrap(), map["metadata"]["resourceVersion"].as_str().unwrap());
    cluster.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    cluster.post(WIDGETS, &widget("w")).await.expect(201);
    cluster.post(LEASES, &json!({"metadata": {"name": "l"}})).await.expect(201);
    let path = |base: &str, name: &str| format!("{base}/{name}");
    let at_version = |version: &str| {
        let mut object = deployment("web");
        object["metadata"]["resourceVersion"] = version.into();
        object
    };
    let uid_differs = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID \
         in record ({uid}). The object might have been deleted and then recreated"
    );
    let version_differs = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record ({version}). The object might have been modified"
    );
    let rows = [
        Row {
            ask: ("GET", path(DEPLOYMENTS, "x"), "", Value::Null),
            code: 404,
            reason: "NotFound",
            message: "deployments.apps \"x\" not found",
            details: json!({"name": "x", "group": "apps", "kind": "deployments"}),
        },
        Row {
            ask: ("DELETE", path(PODS, "x"), "", Value::Null),
            code: 404,
            reason: "NotFound",
            message: "pods \"x\" not found",
            details: json!({"name": "x", "kind": "pods"}),
        },
        Row {
            ask: ("PATCH", path(CONFIG_MAPS, "x"), MERGE, json!({})),
            code: 404,
            reason: "NotFound",
            message: "configmaps \"x\" not found",
            details: json!({"name": "x", "kind": "configmaps"}),
        },
        Row {
            ask: ("POST", CONFIG_MAPS.into(), JSON, config_map("a")),
            code: 409,
            reason: "AlreadyExists",
            message: "configmaps \"a\" already exists",
            details: json!({"name": "a", "kind": "configmaps"}),
        },
        Row {
            ask: ("PUT", path(DEPLOYMENTS, "web"), JSON, at_version("1")),
            code: 409,
            reason: "Conflict",
            message: "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please \
                      apply your changes to the latest version and try again",
            details: json!({"name": "web", "group": "apps", "kind": "deployments"}),
        },
        Row {
            ask: ("PATCH", path(DEPLOYMENTS, "web"), MERGE, json!({"metadata": {"resourceVersion": "1"}})),
            code: 409,
            reason: "Conflict",
            message: "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please \
                      apply your changes to the latest version and try again",
            details: json!({"name": "web", "group": "apps", "kind": "deployments"}),
        },
        Row {
            ask: ("DELETE", path(CONFIG_MAPS, "a"), JSON, json!({"preconditions": {"uid": "other"}})),
            code: 409,
            reason: "Conflict",
            message: &uid_differs,
            details: json!({"name": "a", "kind": "ConfigMap"}),
        },
        Row {
            ask: ("DELETE", path(CONFIG_MAPS, "a"), JSON, json!({"preconditions": {"resourceVersion": "1"}})),
            code: 409,
            reason: "Conflict",
            message: &version_differs,
            details: json!({"name": "a", "kind": "ConfigMap"}),
        },
        Row {
            ask: ("PUT", path(LEASES, "l"), JSON, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}})),
            code: 422,
            reason: "Invalid",
            message: "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                      specified for an update",
            details: json!({"name": "l", "group": "coordination.k8s.io", "kind": "leases", "causes": [{
                "reason": "FieldValueInvalid", "message": "Invalid value: 0: must be specified for an update",
                "field": "metadata.resourceVersion",
            }]}),
        },
        Row {
            ask: ("PUT", path(CONFIG_MAPS, "a"), JSON, config_map("b")),
            code: 400,
            reason: "BadRequest",
            message: "the name of the object (b) does not match the name on the URL (a)",
            details: Value::Null,
        },
        Row {
            ask: ("PUT", path(CONFIG_MAPS, "a"), JSON, json!({"data": {}})),
            code: 400,
            reason: "BadRequest",
            message: "the name of the object (a based on URL) was undeterminable: name must be provided",
            details: Value::Null,
        },
        Row {
            ask: ("PATCH", path(CONFIG_MAPS, "a"), MERGE, json!({"metadata": {"name": "b"}})),
            code: 400,
            reason: "BadRequest",
            message: "the name of the object (b) does not match the name on the URL (a)",
            details: Value::Null,
        },
        Row {
            ask: ("POST", CONFIG_MAPS.into(), JSON, json!({"metadata": {"name": "x", "namespace": "other"}})),
            code: 400,
            reason: "BadRequest",
            message: "the namespace of the provided object does not match the namespace sent on the request",
            details: Value::Null,
        },
        Row {
            ask: ("POST", CONFIG_MAPS.into(), JSON, json!({"metadata": {}})),
            code: 422,
            reason: "Invalid",
            message: "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
            details: json!({"kind": "ConfigMap", "causes": [{
                "reason": "FieldValueRequired", "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }]}),
        },
        Row {
            ask: (
                "POST",
                WIDGETS.into(),
                JSON,
                json!({
                    "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"},
                    "spec": {"size": 300, "color": "pink", "name": "longer"},
                }),
            ),
            code: 422,
            reason: "Invalid",
            message: "Widget.example.com \"x\" is invalid: [spec.color: Unsupported value: \"pink\": supported values: \
                      \"red\", \"green\", \"blue\", spec.name: Too long: may not be more than 5 bytes, spec.size: Invalid \
                      value: 300: spec.size in body should be less than or equal to 100]",
            details: json!({"name": "x", "group": "example.com", "kind": "Widget", "causes": [
                {
                    "reason": "FieldValueNotSupported", "field": "spec.color",
                    "message": "Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
                },
                {
                    "reason": "FieldValueTooLong", "field": "spec.name",
                    "message": "Too long: may not be more than 5 bytes",
                },
                {
                    "reason": "FieldValueInvalid", "field": "spec.size",
                    "message": "Invalid value: 300: spec.size in body should be less than or equal to 100",
                },
            ]}),
        },
        Row {
            ask: (
                "POST",
                format!("{CONFIG_MAPS}?fieldValidation=Strict"),
                JSON,
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "date": {},
                }),
            ),
            code: 400,
            reason: "BadRequest",
            message: "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
                      \"date\"",
            details: Value::Null,
        },
        Row {
            ask: (
                "POST",
                format!("{WIDGETS}?fieldValidation=Strict"),
                JSON,
                json!({
                    "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"weight": 1},
                }),
            ),
            code: 400,
            reason: "BadRequest",
            message: "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
                      \"spec.weight\"",
            details: Value::Null,
        },
        Row {
            ask: ("POST", CONFIG_MAPS.into(), JSON, widget("x")),
            code: 400,
            reason: "BadRequest",
            message: "Widget in version \"v1\" cannot be handled as a ConfigMap: no kind \"Widget\" is registered for version \
                      \"example.com/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
            details: Value::Null,
        },
        Row {
            ask: ("POST", "/api/v1/namespaces/nowhere/configmaps".into(), JSON, config_map("x")),
            code: 404,
            reason: "NotFound",
            message: "namespaces \"nowhere\" not found",
            details: json!({"name": "nowhere", "kind": "namespaces"}),
        },
        Row {
            ask: ("DELETE", path(NAMESPACES, "default"), "", Value::Null),
            code: 403,
            reason: "Forbidden",
            message: "namespaces \"default\" is forbidden: this namespace may not be deleted",
            details: json!({"name": "default", "kind": "namespaces"}),
        },
        Row {
            ask: ("GET", format!("{CONFIG_MAPS}?resourceVersion=9000000000000000"), "", Value::Null),
            code: 504,
            reason: "Timeout",
            message: &format!("Timeout: Too large resource version: 9000000000000000, current: {}", cluster.revision()),
            details: json!({"retryAfterSeconds": 1, "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"},
            ]}),
        },
        Row {
            ask: ("PUT", CONFIG_MAPS.into(), JSON, config_map("a")),
            code: 405,
            reason: "MethodNotAllowed",
            message: "the server does not allow this method on the requested resource",
            details: json!({}),
        },
        Row {
            ask: ("GET", "/api/v1/unicorns".into(), "", Value::Null),
            code: 404,
            reason: "NotFound",
            message: "the server could not find the requested resource",
            details: json!({}),
        },
        Row {
            ask: ("GET", format!("{CONFIG_MAPS}/a/soul"), "", Value::Null),
            code: 404,
            reason: "NotFound",
            message: "the server could not find the requested resource",
            details: json!({}),
        },
        Row {
            ask: ("POST", CONFIG_MAPS.into(), "text/plain", config_map("x")),
            code: 415,
            reason: "UnsupportedMediaType",
            message: "the body of the request was in an unknown format - accepted media types include: \
                      application/json, application/yaml, application/vnd.kubernetes.protobuf",
            details: Value::Null,
        },
        Row {
            ask: ("PATCH", path(WIDGETS, "w"), "application/strategic-merge-patch+json", json!({})),
            code: 415,
            reason: "UnsupportedMediaType",
            message: "the body of the request was in an unknown format - accepted media types include: \
                      application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            details: Value::Null,
        },
        Row {
            ask: ("GET", format!("{PODS}?fieldSelector=spec.color%3Dred"), "", Value::Null),
            code: 400,
            reason: "BadRequest",
            message: "field label not supported: spec.color",
            details: Value::Null,
        },
        Row {
            ask: ("PATCH", format!("{CONFIG_MAPS}/a"), APPLY, config_map("a")),
            code: 422,
            reason: "Invalid",
            message: "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            details: json!({"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [{
                "reason": "FieldValueRequired", "message": "Required value: is required for apply patch",
                "field": "fieldManager",
            }]}),
        },
        Row {
            ask: ("POST", format!("{CONFIG_MAPS}?dryRun=some"), JSON, config_map("x")),
            code: 422,
            reason: "Invalid",
            message: "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"some\"]: supported values: \
                      \"All\"",
            details: json!({"group": "meta.k8s.io", "kind": "CreateOptions", "causes": [{
                "reason": "FieldValueNotSupported", "field": "dryRun",
                "message": "Unsupported value: [\"some\"]: supported values: \"All\"",
            }]}),
        },
        Row {
            ask: ("DELETE", format!("{CONFIG_MAPS}/a"), JSON, json!({"propagationPolicy": "Sideways"})),
            code: 422,
            reason: "Invalid",
            message: "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
                      supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            details: json!({"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": [{
                "reason": "FieldValueNotSupported", "field": "propagationPolicy",
                "message": "Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \
                            \"Orphan\", \"nil\"",
            }]}),
        },
    ];
    for row in rows {
        check(&cluster, row).await;
    }
}

#[tokio::test]
async fn conflicts_of_appliers_name_whom_and_what() {
    let cluster = Cluster::new().await;
    let apply = async |manager: &str, data: Value| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        cluster.patch(&format!("{CONFIG_MAPS}/a?fieldManager={manager}"), APPLY, &object).await
    };
    apply("first", json!({"a": "1", "b": "1"})).await.expect(201);
    let one = apply("second", json!({"a": "2"})).await;
    assert_eq!(one.fails(409, "Conflict"), "Apply failed with 1 conflict: conflict with \"first\": .data.a");
    assert_eq!(
        one.json()["details"],
        json!({"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"first\"", "field": ".data.a"},
        ]})
    );
    let two = apply("second", json!({"a": "2", "b": "2"})).await;
    assert_eq!(
        two.fails(409, "Conflict"),
        "Apply failed with 2 conflicts: conflicts with \"first\":\n- .data.a\n- .data.b"
    );
    let patched =
        cluster.patch(&format!("{CONFIG_MAPS}/a?fieldManager=hand"), MERGE, &json!({"data": {"c": "1"}})).await;
    patched.expect(200);
    let hand = apply("second", json!({"c": "2"})).await;
    assert_eq!(hand.fails(409, "Conflict"), "Apply failed with 1 conflict: conflict with \"hand\" using v1: .data.c");
    let both = apply("third", json!({"a": "3", "c": "3"})).await;
    assert_eq!(
        both.fails(409, "Conflict"),
        "Apply failed with 2 conflicts: conflicts with \"first\":\n- .data.a\nconflicts with \"hand\" using v1:\n- .data.c"
    );
}

#[tokio::test]
async fn applying_what_the_type_does_not_have() {
    let cluster = Cluster::with_widgets().await;
    for (path, object, expect) in [
        (
            format!("{CONFIG_MAPS}/a?fieldManager=me"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {}}),
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .date: field not declared in schema",
        ),
        (
            format!("{WIDGETS}/w?fieldManager=me"),
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"weight": 1}}),
            "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .spec.weight: field not \
             declared in schema",
        ),
    ] {
        let answer = cluster.patch(&path, APPLY, &object).await;
        assert_eq!(answer.expect(500)["message"], expect);
        answer.check_failure();
    }
    let mut object = config_map("a");
    object["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1"}]);
    let answer = cluster.patch(&format!("{CONFIG_MAPS}/a?fieldManager=me"), APPLY, &object).await;
    assert_eq!(answer.fails(400, "BadRequest"), "metadata.managedFields must be nil");
}

/// The merge of server-side apply knows texts and numbers only; what does not fit the type of its field is not stored.
#[tokio::test]
async fn applying_values_that_do_not_fit_their_types() {
    let cluster = Cluster::new().await;
    let events = "/api/v1/namespaces/default/events";
    let limits = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "abc"}}}]});
    let time = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
    for (path, kind, more, expect) in [
        (
            SECRETS,
            "Secret",
            json!({"data": {"password": "not base64!"}}),
            "error decoding from json: illegal base64 data at input byte 3".to_owned(),
        ),
        (
            CONFIG_MAPS,
            "ConfigMap",
            json!({"binaryData": {"b": "!!!"}}),
            "error decoding from json: illegal base64 data at input byte 0".to_owned(),
        ),
        (
            LEASES,
            "Lease",
            json!({"spec": {"renewTime": "yesterday"}}),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\"".to_owned(),
        ),
        (
            LEASES,
            "Lease",
            json!({"spec": {"leaseDurationSeconds": 1_u64 << 40}}),
            "cannot convert int64 to int32".to_owned(),
        ),
        (LEASES, "Lease", json!({"spec": {"leaseDurationSeconds": 1.5}}), "cannot convert float64 to int32".to_owned()),
        (
            events,
            "Event",
            json!({"firstTimestamp": "junk"}),
            format!("parsing time \"junk\" {time} \"junk\" as \"2006\""),
        ),
        (
            CONFIG_MAPS,
            "ConfigMap",
            json!({"metadata": {"name": "it", "deletionTimestamp": "junk"}}),
            format!("parsing time \"junk\" {time} \"junk\" as \"2006\""),
        ),
        (
            PODS,
            "Pod",
            json!({"spec": limits}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned(),
        ),
    ] {
        let (group, version) =
            if kind == "Lease" { ("coordination.k8s.io", "coordination.k8s.io/v1") } else { ("", "v1") };
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "it"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let one = format!("{path}/it?fieldManager=me&force=true");
        let message = format!(
            "failed to convert new object (/it; {group}/v1, Kind={kind}) to proper version: unable to convert unstructured \
             object to {group}/v1, Kind={kind}: {expect}"
        );
        let create = cluster.patch(&one, APPLY, &object).await;
        assert_eq!(create.expect(500)["message"], message);
        create.check_failure();
        cluster.get(&format!("{path}/it")).await.expect(404);
        if matches!(kind, "Secret" | "ConfigMap" | "Lease") {
            let plain = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "it"}});
            cluster.post(path, &plain).await.expect(201);
            assert_eq!(cluster.patch(&one, APPLY, &object).await.expect(500)["message"], message);
            cluster.delete(&format!("{path}/it")).await.expect(200);
        }
        cluster.accept(path, PROTOBUF).await.expect(200);
    }
    // YAML does not tell 3.0 from 3.
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "it"},
        "spec": {"leaseDurationSeconds": 3.0}});
    let made = cluster.patch(&format!("{LEASES}/it?fieldManager=me"), APPLY, &lease).await.expect(201);
    assert_eq!(made["spec"]["leaseDurationSeconds"].to_string(), "3");
}

#[tokio::test]
async fn paths_where_nothing_is() {
    let cluster = Cluster::with_widgets().await;
    for path in [
        "/nowhere",
        "/apis/no.such.group/v1/things",
        "/apis/example.com/v1/unicorns",
        "/apis/example.com/v2",
        "/api/v7",
    ] {
        let answer = cluster.get(path).await;
        assert_eq!((answer.code, answer.header("content-type")), (404, "text/plain; charset=utf-8"), "{path}");
        assert_eq!(answer.body, "404 page not found\n", "{path}");
    }
    cluster.delete(&format!("{CRDS}/widgets.example.com")).await.expect(200);
    assert_eq!(cluster.get(WIDGETS).await.header("content-type"), "text/plain; charset=utf-8");
}

/// `kubectl debug` looks into the details of a 404 to tell whether the pod or the subresource is missing.
#[tokio::test]
async fn a_missing_subresource_has_details() {
    let cluster = Cluster::with_widgets().await;
    cluster.post(crate::cluster::WIDGETS, &crate::cluster::widget("a")).await.expect(201);
    let nothing = "the server could not find the requested resource";
    for (path, message, details) in [
        (format!("{}/a/nothing", crate::cluster::PODS), nothing, json!({})),
        ("/api/v1/namespaces/default/nothing".to_owned(), nothing, json!({})),
        (
            format!("{}/a/nothing", crate::cluster::WIDGETS),
            "widgets.example.com \"a\" not found",
            json!({"name": "a", "group": "example.com", "kind": "widgets"}),
        ),
    ] {
        let answer = cluster.get(&path).await;
        assert_eq!(answer.fails(404, "NotFound"), message, "{path}");
        assert_eq!(answer.json()["details"], details, "{path}");
    }
}
