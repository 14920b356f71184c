//! Published kinds: what real objects are owned by, and the sets that stand on their own.

use super::*;
use crate::builtin_types::kubernetes;

#[track_caller]
fn created(kind: &str, api_version: &str, mut object: Value, expect: Value) {
    let ty = kubernetes().named(kind).expect("a published type");
    object["apiVersion"] = api_version.into();
    let writer = FieldManager {
        arena: kubernetes(),
        ty,
        api_version,
        kind: "",
        subresource: "",
        manager: "m",
        reset: &FieldSet::of_fields([&["status"][..]]),
        empty_object: &empty_object(kubernetes(), ty),
        now: T1,
    };
    writer.update(None, &mut object);
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], expect);
}

#[test]
fn created_objects_are_owned_as_in_kubernetes() {
    created(
        "io.k8s.api.core.v1.ConfigMap",
        "v1",
        json!({"metadata": {"name": "c"}, "data": {"a": "1"}}),
        json!({"f:data": {".": {}, "f:a": {}}}),
    );
    created(
        "io.k8s.api.core.v1.Service",
        "v1",
        json!({"metadata": {"name": "s", "labels": {"l": "1"}}, "spec": {"selector": {"a": "b"}, "type": "ClusterIP",
            "ports": [{"port": 80, "targetPort": "http"}]}, "status": {"loadBalancer": {}}}),
        json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}},
            "f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}":
                {".": {}, "f:port": {}, "f:targetPort": {}}}, "f:selector": {}, "f:type": {}}}),
    );
    created(
        "io.k8s.api.apps.v1.Deployment",
        "apps/v1",
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers":
                [{"name": "c", "image": "i", "resources": {}, "ports": [{"containerPort": 80}]}]}}}}),
        json!({"f:spec": {"f:replicas": {}, "f:selector": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:containers":
                {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}, "f:ports":
                    {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}}),
    );
    created(
        "io.k8s.api.rbac.v1.RoleBinding",
        "rbac.authorization.k8s.io/v1",
        json!({"metadata": {"name": "r", "ownerReferences": [{"uid": "1", "name": "o"}]},
            "roleRef": {"name": "x"}, "subjects": [{"name": "y"}]}),
        json!({"f:metadata": {"f:ownerReferences": {".": {}, "k:{\"uid\":\"1\"}": {}}}, "f:roleRef": {}, "f:subjects": {}}),
    );
}

#[test]
fn sets_changes_and_parts_of_an_object() {
    let Types { arena, thing } = types();
    let old = json!({"spec": {"text": "x", "items": [{"name": "1", "value": "v"}, {"name": "2"}], "map": {"a": "1"}}});
    let new = json!({"spec": {"text": "y", "items": [{"name": "2"}, {"name": "3", "value": "w"}], "map": {"a": "1"}, "pair": {}}});
    let set = to_field_set(&arena, thing, &old);
    assert_eq!(
        set.to_fields_v1(),
        json!({"f:spec": {"f:text": {}, "f:map": {"f:a": {}}, "f:items": {
            "k:{\"name\":\"1\"}": {".": {}, "f:name": {}, "f:value": {}}, "k:{\"name\":\"2\"}": {".": {}, "f:name": {}}}}})
    );
    let changes = compare(&arena, thing, &old, &new);
    assert_eq!(changes.modified.to_fields_v1(), json!({"f:spec": {"f:text": {}}}));
    assert_eq!(
        changes.added.to_fields_v1(),
        json!({"f:spec": {"f:pair": {}, "f:items": {"k:{\"name\":\"3\"}": {".": {}, "f:name": {}, "f:value": {}}}}})
    );
    assert_eq!(
        changes.removed.to_fields_v1(),
        json!({"f:spec": {"f:items": {"k:{\"name\":\"1\"}": {".": {}, "f:name": {}, "f:value": {}}}}})
    );
    assert!(compare(&arena, thing, &old, &old).is_empty());

    let some =
        FieldSet::from_fields_v1(&json!({"f:spec": {"f:text": {}, "f:items": {"k:{\"name\":\"1\"}": {"f:name": {}}}}}));
    let some = some.expect("valid");
    assert_eq!(
        remove_fields(&arena, thing, &old, &some),
        json!({"spec": {"items": [{"value": "v"}, {"name": "2"}], "map": {"a": "1"}}})
    );
    assert_eq!(extract_fields(&arena, thing, &old, &some), json!({"spec": {"text": "x", "items": [{"name": "1"}]}}));
    let mut merged = old.clone();
    merge(&arena, thing, &mut merged, &new);
    assert_eq!(
        merged,
        json!({"spec": {"text": "y", "map": {"a": "1"}, "pair": {},
            "items": [{"name": "1", "value": "v"}, {"name": "2"}, {"name": "3", "value": "w"}]}})
    );
    assert_eq!(check_applied(&arena, thing, &old), Ok(()));
}
