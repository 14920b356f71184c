//! Tests of `strategic`, as tables.

use serde_json::json;

use super::*;
use crate::builtin_types::kubernetes;

#[track_caller]
fn patch(kind: &str, original: Value, patch: Value) -> Result<Value, StrategicError> {
    let ty = kubernetes().named(kind).expect("a published type");
    strategic_merge_patch(kubernetes(), ty, original, patch)
}

#[track_caller]
fn check(original: Value, given: Value, expect: Value) {
    assert_eq!(patch("io.k8s.api.core.v1.PodSpec", original, given), Ok(expect));
}

#[track_caller]
fn refused(original: Value, given: Value, expect: &str, code: u16) {
    let error = patch("io.k8s.api.core.v1.PodSpec", original, given).expect_err("refused");
    assert_eq!(error.to_string(), expect);
    assert_eq!(error.status().code, code);
}

#[test]
fn objects_merge_and_null_removes() {
    check(json!({}), json!({}), json!({}));
    check(json!({"hostname": "a"}), json!({"hostname": "b"}), json!({"hostname": "b"}));
    check(json!({"hostname": "a"}), json!({"hostname": null, "nodeName": null}), json!({}));
    check(
        json!({"nodeSelector": {"a": "1", "b": "2"}}),
        json!({"nodeSelector": {"b": null, "c": "3"}}),
        json!({"nodeSelector": {"a": "1", "c": "3"}}),
    );
    // In what is new to the object a null removes nothing, and is not kept.
    check(json!({}), json!({"nodeSelector": {"a": null, "b": "1"}}), json!({"nodeSelector": {"b": "1"}}));
    check(json!({"hostname": 1}), json!({"hostname": {"a": null, "b": 1}}), json!({"hostname": {"b": 1}}));
}

#[test]
fn the_patch_directive_of_an_object() {
    let original = json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}});
    check(
        original.clone(),
        json!({"securityContext": {"$patch": "replace", "runAsGroup": 3}}),
        json!({"securityContext": {"runAsGroup": 3}}),
    );
    check(original.clone(), json!({"securityContext": {"$patch": "delete"}}), json!({"securityContext": {}}));
    check(original.clone(), json!({"$patch": "delete"}), json!({}));
    check(json!({}), json!({"securityContext": {"$patch": "delete"}}), json!({}));
    refused(
        original.clone(),
        json!({"securityContext": {"$patch": "merge", "fsGroup": 1}}),
        "unknown patch type: merge in map: map[$patch:merge fsGroup:1]",
        500,
    );
    refused(original, json!({"$patch": 1}), "unknown patch type: %!s(int64=1) in map: map[$patch:1]", 500);
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(
        json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
        json!({"tolerations": [{"key": "c"}]}),
        json!({"tolerations": [{"key": "c"}]}),
    );
    check(
        json!({"containers": [{"name": "a", "args": ["1", "2"]}]}),
        json!({"containers": [{"name": "a", "args": ["3"]}]}),
        json!({"containers": [{"name": "a", "args": ["3"]}]}),
    );
}

#[test]
fn lists_with_a_key_merge() {
    let original = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
    check(
        original.clone(),
        json!({"containers": [{"name": "b", "image": "2"}]}),
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
    );
    // New items come first: the order of the patch goes before the live one.
    check(
        original.clone(),
        json!({"containers": [{"name": "c"}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
    );
    check(
        original.clone(),
        json!({"containers": [{"$patch": "delete", "name": "a"}, {"name": "b", "image": null}]}),
        json!({"containers": [{"name": "b"}]}),
    );
    check(
        original.clone(),
        json!({"containers": [{"$patch": "replace"}, {"name": "c", "image": "3"}]}),
        json!({"containers": [{"name": "c", "image": "3"}]}),
    );
    check(
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "X", "$patch": "delete"}, {"name": "Z", "value": "2"}]}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "Z", "value": "2"}, {"name": "Y", "value": "1"}]}]}),
    );
    check(original.clone(), json!({"containers": []}), original);
}

#[test]
fn lists_with_a_key_refuse() {
    let original = json!({"containers": [{"name": "a"}]});
    refused(
        original.clone(),
        json!({"containers": [{"image": "x"}]}),
        "map: map[image:x] does not contain declared merge key: name",
        500,
    );
    refused(
        original.clone(),
        json!({"containers": [{"$patch": "delete"}]}),
        "map: map[$patch:delete] does not contain declared merge key: name",
        500,
    );
    refused(
        original.clone(),
        json!({"containers": [{"$patch": "merge", "name": "a"}]}),
        "merging lists cannot yet be specified in the patch",
        500,
    );
    refused(
        original.clone(),
        json!({"containers": [{"$patch": "move", "name": "a"}]}),
        "unknown patch type: move in map: map[$patch:move name:a]",
        500,
    );
    refused(
        original.clone(),
        json!({"containers": ["a"]}),
        "list element types are not identical: [[map[name:a]] [a]]",
        500,
    );
    refused(json!({"containers": [[]]}), json!({"containers": [[]]}), "lists of lists are not supported", 422);
}

#[test]
fn lists_of_scalars_merge() {
    #[track_caller]
    fn check(original: Value, given: Value, expect: Value) {
        assert_eq!(patch("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", original, given), Ok(expect));
    }
    check(json!({"finalizers": ["a", "b"]}), json!({"finalizers": ["b", "c"]}), json!({"finalizers": ["a", "b", "c"]}));
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["a", "c", "x"]}),
        json!({"finalizers": ["b"]}),
    );
    check(
        json!({"finalizers": ["a", "b"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}),
        json!({"finalizers": ["c", "b"]}),
    );
    check(json!({}), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!({}));
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"]}),
        json!({"finalizers": ["b", "c", "d", "a"]}),
    );
}

#[test]
fn set_element_order_orders() {
    let named = |names: &[&str]| json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
    let check = |live: &[&str], order: &[&str], given: Option<Value>, expect: &[&str]| {
        let mut patch = json!({"$setElementOrder/volumes": named(order)});
        if let Some(given) = given {
            patch["volumes"] = given;
        }
        check(json!({"volumes": named(live)}), patch, json!({"volumes": named(expect)}));
    };
    check(&["a", "b", "c"], &["c", "a", "b"], None, &["c", "a", "b"]);
    check(&["a", "b"], &["b", "c", "a"], Some(named(&["c"])), &["b", "c", "a"]);
    // Items only the live list has stay where they were among the others.
    check(&["x", "a", "b"], &["b", "a"], None, &["x", "b", "a"]);
    check(&["a", "x", "b", "y"], &["b", "a"], None, &["x", "b", "a", "y"]);
    check(&["a", "x", "b", "y"], &["a", "b", "c"], Some(named(&["c"])), &["a", "x", "b", "c", "y"]);
    check(&["a", "b"], &["b"], Some(json!([{"name": "a", "$patch": "delete"}])), &["b"]);
    // A renamed item comes after what only the live list has.
    check(&["a", "x"], &["b"], Some(json!([{"name": "a", "$patch": "delete"}, {"name": "b"}])), &["x", "b"]);
}

#[test]
fn set_element_order_refuses() {
    let original = json!({"volumes": [{"name": "a"}, {"name": "b"}]});
    refused(
        original.clone(),
        json!({"$setElementOrder/volumes": [{"name": "a"}], "volumes": [{"name": "c"}]}),
        "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        500,
    );
    refused(
        original.clone(),
        json!({"$setElementOrder/volumes": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "b"}, {"name": "a"}]}),
        "The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n",
        500,
    );
    refused(
        original.clone(),
        json!({"$setElementOrder/volumes": [{"nam": "a"}]}),
        "map: map[nam:a] does not contain declared merge key: name",
        500,
    );
    refused(
        original.clone(),
        json!({"$setElementOrder/volumes": "a"}),
        "expected a []interface {}, but received a string",
        500,
    );
    refused(original.clone(), json!({"$setElementOrder": []}), "invalid patch format of setElementOrder list", 400);
    refused(original.clone(), json!({"$deleteFromPrimitiveList": []}), "invalid patch format of primitive list", 400);
    refused(
        original.clone(),
        json!({"$setElementOrder/cubes": []}),
        "unable to find api field in struct PodSpec for the json field \"cubes\"",
        500,
    );
    refused(original, json!({"$setElementOrder/hostname": []}), "expected slice or array type, but got: struct", 500);
    refused(json!([]), json!({}), "invalid JSON document", 400);
}

#[test]
fn retain_keys_clears_the_others() {
    #[track_caller]
    fn check(original: Value, given: Value, expect: Result<Value, StrategicError>) {
        let wrap = |strategy: Value| json!({"strategy": strategy});
        let actual = patch("io.k8s.api.apps.v1.DeploymentSpec", wrap(original), wrap(given));
        assert_eq!(actual, expect.map(wrap));
    }
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    check(rolling.clone(), json!({"$retainKeys": ["type"], "type": "Recreate"}), Ok(json!({"type": "Recreate"})));
    check(
        rolling.clone(),
        json!({"$retainKeys": ["rollingUpdate"], "rollingUpdate": {"maxSurge": 2}, "type": null}),
        Ok(json!({"rollingUpdate": {"maxSurge": 2}})),
    );
    check(rolling.clone(), json!({"$retainKeys": []}), Ok(json!({})));
    check(
        rolling.clone(),
        json!({"$retainKeys": ["type"], "rollingUpdate": {}}),
        Err(StrategicError::RetainKeysFormat),
    );
    check(rolling, json!({"$retainKeys": "type"}), Err(StrategicError::RetainKeysFormat));
}

#[test]
fn what_is_no_struct_does_not_merge_deeper() {
    let ty = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let refused = patch(ty, json!({"properties": {"a": {"type": "x"}}}), json!({"properties": {"a": {"type": "y"}}}));
    let text = "merging an object in json but data type is not struct, instead is: map";
    assert_eq!(refused, Err(StrategicError::Type(text.into())));
}
