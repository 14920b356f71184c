//! Tests of `field_set`, as tables.

use serde_json::json;

use super::*;

fn set(fields_v1: Value) -> FieldSet {
    FieldSet::from_fields_v1(&fields_v1).expect("a test writes valid FieldsV1")
}

#[test]
fn fields_v1_reads_back_as_it_was_written() {
    #[track_caller]
    fn check(fields_v1: Value, expect_paths: &str) {
        let set = set(fields_v1.clone());
        assert_eq!(set.to_string().lines().collect::<Vec<_>>().join(" "), expect_paths);
        assert_eq!(set.to_fields_v1(), fields_v1);
    }
    check(json!({}), "");
    check(json!({"f:spec": {"f:replicas": {}}}), ".spec.replicas");
    check(json!({"f:spec": {".": {}, "f:replicas": {}}}), ".spec .spec.replicas");
    check(
        json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}, "v:3": {}}}}),
        ".metadata.finalizers[=3] .metadata.finalizers[=\"x\"]",
    );
    check(
        json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:targetPort": {}}}}),
        ".ports[port=80,protocol=\"TCP\"] .ports[port=80,protocol=\"TCP\"].targetPort",
    );
    check(json!({"f:l": {"i:3": {}}}), ".l[3]");
    check(
        json!({"f:l": {"k:{\"a\":true,\"b\":null,\"c\":1.5,\"d\":\"q\\\"\"}": {}}}),
        ".l[a=true,b=null,c=1.5,d=\"q\\\"\"]",
    );
    check(json!({"f:a": {}, "f:a-b": {"f:c": {}}}), ".a .a-b.c");
    check(json!({"f:kubectl.kubernetes.io/x": {}, "f:": {}}), ". .kubectl.kubernetes.io/x");
}

#[test]
fn fields_v1_is_read_generously() {
    let check = |given: Value, expect: Value| assert_eq!(set(given).to_fields_v1(), expect);
    // Keys in another order are the same key.
    check(json!({"k:{\"b\":1,\"a\":2}": {}}), json!({"k:{\"a\":2,\"b\":1}": {}}));
    check(
        json!({"k:{\"b\":1,\"a\":2}": {}, "k:{\"a\":2,\"b\":1}": {"f:x": {}}}),
        json!({"k:{\"a\":2,\"b\":1}": {".": {}, "f:x": {}}}),
    );
    // Steps a later version may know are dropped, null is an empty object, and "." at the top says nothing.
    check(json!({"x:new": {"f:a": {}}, "f:b": {}}), json!({"f:b": {}}));
    check(json!({"f:a": null}), json!({"f:a": {}}));
    check(json!({".": {}, "f:a": {}}), json!({"f:a": {}}));
}

#[test]
fn broken_fields_v1_is_named() {
    #[track_caller]
    fn check(given: Value, expect: &str) {
        assert_eq!(FieldSet::from_fields_v1(&given).expect_err("broken").to_string(), expect);
    }
    check(json!([]), "fieldsV1: expected an object");
    check(json!({"f:a": 1}), "fieldsV1 at \"f:a\": expected an object");
    check(json!({"f": {}}), "fieldsV1: parsing key as path element: key must be 2 characters long");
    check(json!({"abc": {}}), "fieldsV1: parsing key as path element: missing colon: abc");
    check(json!({"i:x": {}}), "fieldsV1: parsing key as path element: i:x: not a number");
    check(
        json!({"v:{": {}}),
        "fieldsV1: parsing key as path element: v:{: EOF while parsing an object at line 1 column 1",
    );
    check(
        json!({"k:[]": {}}),
        "fieldsV1: parsing key as path element: k:[]: invalid type: sequence, expected a map at line 1 column 0",
    );
    check(json!({"v:1 2": {}}), "fieldsV1: parsing key as path element: v:1 2: trailing characters at line 1 column 3");
}

#[test]
fn sets_combine() {
    struct Expect {
        union: Value,
        intersection: Value,
        difference: Value,
        recursive_difference: Value,
    }
    #[track_caller]
    fn check(a: Value, b: Value, expect: Expect) {
        let (a, b) = (set(a), set(b));
        assert_eq!(a.union(&b), set(expect.union), "union");
        assert_eq!(b.union(&a), a.union(&b), "union the other way");
        assert_eq!(a.intersection(&b), set(expect.intersection), "intersection");
        assert_eq!(a.difference(&b), set(expect.difference), "difference");
        assert_eq!(a.recursive_difference(&b), set(expect.recursive_difference), "recursive difference");
        assert!(a.difference(&a).is_empty());
        assert_eq!(a.intersection(&a), a);
    }
    check(
        json!({"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}}),
        json!({"f:b": {"f:c": {}}, "f:e": {}}),
        Expect {
            union: json!({"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}, "f:e": {}}),
            intersection: json!({"f:b": {"f:c": {}}}),
            difference: json!({"f:a": {}, "f:b": {"f:d": {}}}),
            recursive_difference: json!({"f:a": {}, "f:b": {"f:d": {}}}),
        },
    );
    // A parent and its parts are different paths, unless the difference is recursive.
    check(
        json!({"f:a": {".": {}, "f:b": {}}}),
        json!({"f:a": {}}),
        Expect {
            union: json!({"f:a": {".": {}, "f:b": {}}}),
            intersection: json!({"f:a": {}}),
            difference: json!({"f:a": {"f:b": {}}}),
            recursive_difference: json!({}),
        },
    );
    check(
        json!({"f:a": {}}),
        json!({"f:a": {"f:b": {}}}),
        Expect {
            union: json!({"f:a": {".": {}, "f:b": {}}}),
            intersection: json!({}),
            difference: json!({"f:a": {}}),
            recursive_difference: json!({"f:a": {}}),
        },
    );
    check(
        json!({"f:l": {"v:1": {}, "k:{\"n\":\"x\"}": {}, "f:z": {}, "i:0": {}}}),
        json!({"f:l": {"v:1.0": {}, "i:1": {}}}),
        Expect {
            union: json!({"f:l": {"v:1": {}, "k:{\"n\":\"x\"}": {}, "f:z": {}, "i:0": {}, "i:1": {}}}),
            intersection: json!({"f:l": {"v:1": {}}}),
            difference: json!({"f:l": {"k:{\"n\":\"x\"}": {}, "f:z": {}, "i:0": {}}}),
            recursive_difference: json!({"f:l": {"k:{\"n\":\"x\"}": {}, "f:z": {}, "i:0": {}}}),
        },
    );
}

#[test]
fn paths_come_level_by_level_in_the_order_of_kinds() {
    let set = set(json!({"f:b": {".": {}, "f:x": {}}, "f:a": {"f:y": {}}, "f:c": {},
        "f:l": {"i:1": {}, "v:true": {}, "v:\"s\"": {}, "v:2": {}, "k:{\"a\":1,\"b\":1}": {}, "k:{\"a\":1}": {}, "f:f": {}}}));
    let expect =
        [".b", ".c", ".a.y", ".b.x", ".l.f", ".l[a=1]", ".l[a=1,b=1]", ".l[=2]", ".l[=\"s\"]", ".l[=true]", ".l[1]"];
    assert_eq!(set.paths().iter().map(FieldSetPath::to_string).collect::<Vec<_>>(), expect);
    assert!(set.paths().iter().all(|path| set.has(&path.0)));
    assert!(!set.has(&[PathElement::field("a")]));
    assert!(!set.has(&[]));
    assert_eq!(set.leaves().to_string(), expect[1..].join("\n"));
}

#[test]
fn field_paths_make_a_set() {
    let set = FieldSet::of_fields([&["spec"][..], &["metadata", "labels"], &["metadata"], &[]]);
    assert_eq!(set.to_fields_v1(), json!({"f:spec": {}, "f:metadata": {".": {}, "f:labels": {}}}));
}
