//! What decoding into Go structs and encoding again makes of objects. `cases.jsonl` has what Kubernetes itself made of mutated
//! objects of every kind (`cargo xtask canonical --write-cases`).

use serde_json::json;

use super::*;

#[track_caller]
fn check(api_version: &str, kind: &str, given: Value, expect: Value) {
    let mut object = given.clone();
    canonicalize(api_version, kind, &mut object, EmptyLists::Dropped, Budget::unlimited()).unwrap();
    assert_eq!(object, expect, "{given}");
}

#[test]
fn fields_are_those_that_go_writes() {
    let container = |more: Value| {
        let mut container = json!({"name": "a", "resources": {}});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container
    };
    for (given, expect) in [
        (json!({}), json!({"containers": null})),
        (json!({"containers": []}), json!({"containers": null})),
        (json!({"containers": [null]}), json!({"containers": [{"name": "", "resources": {}}]})),
        (
            json!({"containers": [{"name": "a", "args": [], "image": "", "stdin": false, "env": [{"name": "x", "value": ""}]}]}),
            json!({"containers": [container(json!({"env": [{"name": "x"}]}))]}),
        ),
        (
            json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}, "requests": {}}}]}),
            json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}),
        ),
        // A pointer tells zero from nothing.
        (
            json!({"containers": null, "securityContext": {}, "enableServiceLinks": false, "hostNetwork": false}),
            json!({"containers": null, "securityContext": {}, "enableServiceLinks": false}),
        ),
        (
            json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}, "secret": null}]}),
            json!({"containers": null, "volumes": [{"name": "v", "emptyDir": {}}]}),
        ),
    ] {
        let pod = |spec| json!({"metadata": {}, "spec": spec, "status": {}});
        check("v1", "Pod", pod(given), pod(expect));
    }
}

#[test]
fn empty_lists_can_be_kept() {
    let mut pod = json!({"spec": {"containers": [], "volumes": [], "nodeSelector": {}, "hostname": ""}});
    let found = canonicalize("v1", "Pod", &mut pod, EmptyLists::Kept, Budget::unlimited());
    assert_eq!(found, Ok(true));
    assert_eq!(pod["spec"], json!({"containers": [], "volumes": [], "nodeSelector": {}}));
    assert_eq!(canonicalize("v1", "Pod", &mut pod, EmptyLists::Dropped, Budget::unlimited()), Ok(false));
    assert_eq!(pod["spec"], json!({"containers": null}));
}

#[test]
fn times_are_in_utc() {
    for (given, expect) in [
        ("2024-01-02T03:04:05+02:00", "2024-01-02T01:04:05Z"),
        ("2024-01-02T03:04:05.999Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z"),
    ] {
        let object = |text: &str| json!({"metadata": {"creationTimestamp": text}});
        check("v1", "ConfigMap", object(given), object(expect));
    }
    check("v1", "ConfigMap", json!({"metadata": {"creationTimestamp": null}}), json!({"metadata": {}}));
    check("v1", "ConfigMap", json!({"metadata": {"creationTimestamp": ZERO_TIME}}), json!({"metadata": {}}));
    check(
        "coordination.k8s.io/v1",
        "Lease",
        json!({"spec": {"renewTime": "2024-01-02T03:04:05.123456+01:00"}}),
        json!({"metadata": {}, "spec": {"renewTime": "2024-01-02T02:04:05.123456Z"}}),
    );
    check(
        "events.k8s.io/v1",
        "Event",
        json!({"regarding": {"name": "a"}}),
        json!({"metadata": {}, "regarding": {"name": "a"}, "eventTime": null, "deprecatedSource": {},
               "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null}),
    );
}

#[test]
fn bytes_are_one_line() {
    let given = json!({"data": {"a": "eA\n==", "b": null, "c": [120], "d": ""}});
    check("v1", "Secret", given, json!({"metadata": {}, "data": {"a": "eA==", "b": "", "c": "eA==", "d": ""}}));
}

#[test]
fn objects_are_what_go_makes_of_them() {
    let types = crate::kubernetes();
    for line in include_str!("cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut object = case["given"].clone();
        let text = |name: &str| object[name].as_str().unwrap().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        // As the server does before.
        let ty = types.named(case["type"].as_str().unwrap()).expect("a kind of the table");
        crate::prune(types, ty, &mut object, crate::NullRules::BuiltIn);
        canonicalize(&api_version, &kind, &mut object, EmptyLists::Dropped, Budget::unlimited()).unwrap();
        assert_eq!(object, case["expect"], "{line}");
    }
}

#[test]
fn what_is_not_built_in_stays() {
    check("example.com/v1", "Widget", json!({"spec": {"a": ""}}), json!({"spec": {"a": ""}}));
}

#[test]
fn many_empty_items_are_paid_for() {
    let mut pod = json!({"spec": {"containers": vec![json!({}); 1000]}});
    assert!(canonicalize("v1", "Pod", &mut pod, EmptyLists::Dropped, &Budget::new(1000, 10_000)).is_err());
}
