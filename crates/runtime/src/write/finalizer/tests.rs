//! Tests of `finalizer`, as tables.

use super::*;
use crate::object::Mode;

fn object(finalizers: Value, deleting: bool) -> Object {
    let mut metadata = json!({"name": "w", "uid": "u", "resourceVersion": "7", "finalizers": finalizers});
    if deleting {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let api = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("example.com", "v1", "WebApp"));
    Object::parse(&api, &json!({"metadata": metadata}).to_string(), Mode::Full).unwrap()
}

/// The operations after the test of the uid.
fn patch(operations: Value) -> Step {
    let mut all = vec![json!({"op": "test", "path": "/metadata/uid", "value": "u"})];
    all.extend(operations.as_array().unwrap().iter().cloned());
    Step::Patch(Value::Array(all))
}

#[test]
fn a_finalizer_is_added_only_to_what_was_seen() {
    let first = patch(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["me"]},
    ]));
    let next = patch(json!([
        {"op": "test", "path": "/metadata/finalizers", "value": ["x"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "me"},
    ]));
    let cases = [
        (json!(null), false, first.clone()),
        (json!([]), false, first),
        (json!(["x"]), false, next),
        (json!(["me"]), false, Step::Done),
        (json!(["x", "me"]), true, Step::Done),
        (json!(["x"]), true, Step::ObjectIsTerminating),
        (json!(null), true, Step::ObjectIsTerminating),
    ];
    for (finalizers, deleting, expect) in cases {
        assert_eq!(add(&object(finalizers.clone(), deleting), "me"), expect, "{finalizers} {deleting}");
    }
}

#[test]
fn only_our_finalizer_is_removed() {
    let at = |at: usize| {
        let path = format!("/metadata/finalizers/{at}");
        patch(json!([{"op": "test", "path": path, "value": "me"}, {"op": "remove", "path": path}]))
    };
    let cases = [
        (json!(null), Step::Done),
        (json!(["x"]), Step::Done),
        (json!(["me"]), at(0)),
        (json!(["x", "me", "y"]), at(1)),
    ];
    for (finalizers, expect) in cases {
        for deleting in [false, true] {
            assert_eq!(remove(&object(finalizers.clone(), deleting), "me"), expect, "{finalizers}");
        }
    }
}
