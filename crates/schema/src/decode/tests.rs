//! Tests of `decode`, as tables.

use serde_json::json;

use super::*;
use crate::arena::{Field, ListKind, Node};

/// A few published types, as the table would have them.
fn types() -> Arena {
    let mut arena = Arena::default();
    let mut add = |shape| arena.add(Node { shape, ..Node::default() });
    let string = add(Shape::Scalar(Scalar::String));
    let int32 = add(Shape::Scalar(Scalar::Int32));
    let int64 = add(Shape::Scalar(Scalar::Int64));
    let boolean = add(Shape::Scalar(Scalar::Boolean));
    let time = add(Shape::Scalar(Scalar::Time));
    let bytes = add(Shape::Scalar(Scalar::Bytes));
    let number = add(Shape::Scalar(Scalar::Number));
    let port = add(Shape::Scalar(Scalar::IntOrString));
    let quantity = add(Shape::Scalar(Scalar::Quantity));
    let labels = add(Shape::Map { value: string, atomic: false });
    let data = add(Shape::Map { value: bytes, atomic: false });
    let limits = add(Shape::Map { value: quantity, atomic: false });
    let strings = add(Shape::List { item: string, kind: ListKind::Set });
    let raw = add(Shape::Opaque);
    let struct_of = |fields: &[(&str, TypeId)]| {
        let mut fields: Vec<Field> =
            fields.iter().map(|(name, ty)| Field { name: (*name).into(), ty: *ty, required: false }).collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Shape::Struct { fields: fields.into(), open: false, atomic: false }
    };
    let meta = add(struct_of(&[
        ("name", string),
        ("labels", labels),
        ("finalizers", strings),
        ("generation", int64),
        ("creationTimestamp", time),
    ]));
    let container = add(struct_of(&[("name", string), ("port", port), ("limits", limits), ("stdin", boolean)]));
    let containers = add(Shape::List { item: container, kind: ListKind::Map([Box::from("name")].into()) });
    let spec = add(struct_of(&[("replicas", int32), ("containers", containers), ("ratio", number), ("raw", raw)]));
    let deployment = add(struct_of(&[("metadata", meta), ("spec", spec), ("data", data)]));
    // A use of the same type with something added.
    let copy = arena.node(meta).clone();
    let use_of_meta = arena.add(copy);
    let template = struct_of(&[("metadata", use_of_meta)]);
    let template = arena.add(Node { shape: template, ..Node::default() });
    for (name, id) in [
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", meta),
        ("io.k8s.api.core.v1.Container", container),
        ("io.k8s.api.apps.v1.DeploymentSpec", spec),
        ("io.k8s.api.apps.v1.Deployment", deployment),
        ("io.k8s.api.core.v1.PodTemplateSpec", template),
    ] {
        arena.name(name, id);
    }
    arena
}

fn check_as(kind: &str, object: Value, expect: &str) {
    let arena = types();
    let root = arena.named(kind).expect("a type of the table");
    let found = check_types(&arena, root, &object).map_or_else(|why| why.to_string(), |()| String::new());
    assert_eq!(found, expect, "{object}");
}

fn check(object: Value, expect: &str) {
    check_as("io.k8s.api.apps.v1.Deployment", object, expect);
}

#[test]
fn what_fits() {
    check(json!({"spec": {"replicas": 3, "ratio": 1, "raw": {"any": [1]}, "unknown": 1}}), "");
    check(
        json!({"spec": null, "metadata": {"labels": {"a": null}, "finalizers": null, "creationTimestamp": null}}),
        "",
    );
    check(json!({"spec": {"containers": [{"port": "http"}, {"port": 80}, null]}}), "");
    check(json!({"metadata": {"generation": i64::MAX}, "data": {"a": "YQ==", "b": [1, 2]}}), "");
}

#[test]
fn json_types() {
    let cases = [
        (json!("x"), "string into Go value of type v1.Deployment"),
        (json!([]), "array into Go value of type v1.Deployment"),
        (json!({"spec": []}), "array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        (json!({"spec": {"replicas": "x"}}), "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (json!({"spec": {"replicas": true}}), "bool into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (json!({"spec": {"replicas": [1]}}), "array into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            json!({"spec": {"replicas": 3_000_000_000u32}}),
            "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 1.0}}),
            "number 1.0 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"spec": {"replicas": 1.5}}),
            "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"metadata": {"generation": 9_999_999_999_999_999_999u64}}),
            "number 9999999999999999999 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (json!({"spec": {"ratio": "x"}}), "string into Go struct field DeploymentSpec.spec.ratio of type float64"),
        (
            json!({"spec": {"containers": {"a": 1}}}),
            "object into Go struct field DeploymentSpec.spec.containers of type []v1.Container",
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, "b"]}}),
            "string into Go struct field DeploymentSpec.spec.containers of type v1.Container",
        ),
        (
            json!({"spec": {"containers": [{"name": 1}]}}),
            "number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            json!({"spec": {"containers": [{"stdin": "yes"}]}}),
            "string into Go struct field Container.spec.containers.stdin of type bool",
        ),
        (
            json!({"spec": {"containers": [{"port": true}]}}),
            "bool into Go struct field Container.spec.containers.port of type int32",
        ),
        (
            json!({"spec": {"containers": [{"port": 1.5}]}}),
            "number 1.5 into Go struct field Container.spec.containers.port of type int32",
        ),
        (
            json!({"spec": {"containers": [{"limits": "a"}]}}),
            "string into Go struct field Container.spec.containers.limits of type map[string]resource.Quantity",
        ),
        (
            json!({"metadata": {"labels": {"a": 1}}}),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            json!({"metadata": {"labels": [1]}}),
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            json!({"metadata": {"finalizers": "a"}}),
            "string into Go struct field ObjectMeta.metadata.finalizers of type []string",
        ),
        (
            json!({"metadata": {"finalizers": [1]}}),
            "number into Go struct field ObjectMeta.metadata.finalizers of type string",
        ),
        (
            json!({"metadata": {"creationTimestamp": 1}}),
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (json!({"data": {"a": 1}}), "number into Go struct field Deployment.data of type []uint8"),
    ];
    for (object, expect) in cases {
        check(object, &format!("json: cannot unmarshal {expect}"));
    }
}

#[test]
fn a_type_with_something_added_keeps_its_name() {
    check_as(
        "io.k8s.api.core.v1.PodTemplateSpec",
        json!({"metadata": "x"}),
        "json: cannot unmarshal string into Go struct field PodTemplateSpec.metadata of type v1.ObjectMeta",
    );
    check_as(
        "io.k8s.api.core.v1.PodTemplateSpec",
        json!({"metadata": {"name": 1}}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
    );
}

#[test]
fn metadata_alone() {
    check_as(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        json!({"labels": "x"}),
        "json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string",
    );
}

#[test]
fn quantities() {
    let check =
        |value: Value, expect: &str| check(json!({"spec": {"containers": [{"limits": {"cpu": value}}]}}), expect);
    for good in [
        "0", "1", "1.5", "100m", "1Gi", "1.G", "1e3", "1E3", "1E", "1e+3", "1e-3", "-1", "+1", ".5", "1 ", "00", "m",
        ".",
    ] {
        check(json!(good), "");
    }
    for good in [json!(1), json!(1.5), json!(null)] {
        check(good, "");
    }
    let format = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for bad in
        [json!(""), json!("abc"), json!("1x"), json!("1.2.3"), json!("0x"), json!("1E5M"), json!(true), json!({})]
    {
        check(bad, format);
    }
    for bad in ["1e", "1ee3", "1Ki5", "1iK", "1i"] {
        check(json!(bad), "unable to parse quantity's suffix");
    }
}

#[test]
fn moments_in_microseconds() {
    let types = crate::kubernetes();
    let lease = types.named("io.k8s.api.coordination.v1.Lease").unwrap();
    let layout = "2006-01-02T15:04:05.000000Z07:00";
    for (text, unread) in [
        ("2024-01-02T03:04:05.123456Z", None),
        ("2024-01-02T03:04:05.123456+02:00", None),
        ("2024-01-02T03:04:05Z", Some(("Z", ".000000"))),
        ("2024-01-02T03:04:05.123Z", Some((".123Z", ".000000"))),
        ("2024-01-02T03:04:05.123456789Z", Some(("789Z", "Z07:00"))),
    ] {
        let got = check_types(types, lease, &json!({"spec": {"renewTime": text}})).map_err(|why| why.to_string());
        let expect = unread
            .map(|(rest, part)| format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"));
        assert_eq!(got.err(), expect);
    }
}

#[test]
fn moments() {
    let check = |text: &str, expect: &str| {
        let expect = if expect.is_empty() { String::new() } else { format!("parsing time {text:?}{expect}") };
        check(json!({"metadata": {"creationTimestamp": text}}), &expect);
    };
    for good in [
        "2024-01-02T03:04:05Z",
        "2024-01-02T03:04:05.123456Z",
        "2024-01-02T03:04:05,5Z",
        "2024-01-02T03:04:05+01:00",
        "2024-01-02T3:04:05Z",
        "2024-02-29T03:04:05Z",
    ] {
        check(good, "");
    }
    check("2024-13-02T03:04:05Z", ": month out of range");
    check("2024-02-30T03:04:05Z", ": day out of range");
    check("2024-01-00T03:04:05Z", ": day out of range");
    check("2024-01-02T24:04:05Z", ": hour out of range");
    check("2024-01-02T03:60:05Z", ": minute out of range");
    check("2024-01-02T03:04:60Z", ": second out of range");
    check("2024-01-02T03:04:05+25:00", ": time zone offset hour out of range");
    check("2024-01-02T03:04:05ZZ", ": extra text: \"Z\"");
    for (text, rest, layout) in [
        ("2024-01-02T03:04:05", "", "Z07:00"),
        ("2024-01-02T03:04:05.Z", ".Z", "Z07:00"),
        ("2024-01-02T03:04:05+0100", "+0100", "Z07:00"),
        ("2024-01-02 03:04:05Z", " 03:04:05Z", "T"),
        ("2024-01-02t03:04:05z", "t03:04:05z", "T"),
        ("2024-1-2T03:04:05Z", "1-2T03:04:05Z", "01"),
        ("2024-01-02T03:04", "", ":"),
        ("24", "24", "2006"),
        ("x", "x", "2006"),
        ("é", "é", "2006"),
    ] {
        check(text, &format!(" as \"2006-01-02T15:04:05Z07:00\": cannot parse {rest:?} as {layout:?}"));
    }
}

#[test]
fn bytes() {
    let check = |text: &str, at: Option<usize>| {
        let expect = at.map_or_else(String::new, |at| format!("illegal base64 data at input byte {at}"));
        check(json!({"data": {"a": text}}), &expect);
    };
    for good in ["", "YQ==", "YWI=", "YWJj", "YW\nJj", "YR=="] {
        check(good, None);
    }
    for (bad, at) in [
        ("YQ", 0),
        ("YQ=", 3),
        ("Y", 0),
        ("!!", 0),
        ("YQ==YQ==", 4),
        ("YQ=a", 2),
        ("====", 0),
        ("YWJjZA", 4),
        ("YWJj!", 4),
        ("YWJjZ=", 5),
    ] {
        check(bad, Some(at));
    }
}

/// What Go's converter says of values that the merge of server-side apply cannot judge.
#[test]
fn what_cannot_be_restored() {
    for (object, expect) in [
        (json!({"data": {"a": "!!!"}}), "error decoding from json: illegal base64 data at input byte 0"),
        (json!({"data": {"a": ""}, "spec": {"replicas": 3}}), ""),
        (json!({"spec": {"replicas": 3_000_000_000_u32}}), "cannot convert int64 to int32"),
        (json!({"spec": {"replicas": 1.5}}), "cannot convert float64 to int32"),
        (
            json!({"metadata": {"creationTimestamp": "junk"}}),
            "parsing time \"junk\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"junk\" as \"2006\"",
        ),
    ] {
        let arena = types();
        let root = arena.named("io.k8s.api.apps.v1.Deployment").expect("a type of the table");
        let found = check_restorable(&arena, root, &object).map_or_else(|why| why.to_string(), |()| String::new());
        assert_eq!(found, expect, "{object}");
    }
}
