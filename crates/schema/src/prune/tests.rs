//! Tests of `prune`, as tables.

use serde_json::json;

use super::*;
use crate::arena::{Field, ListKind};

/// A struct with one field of each shape.
fn types() -> (Arena, TypeId) {
    let mut arena = Arena::default();
    let mut add = |shape| arena.add(Node { shape, ..Node::default() });
    let field = |name: &str, ty| Field { name: name.into(), ty, required: false };
    let string = add(Shape::Scalar(Scalar::String));
    let int = add(Shape::Scalar(Scalar::Int32));
    let time = add(Shape::Scalar(Scalar::Time));
    let raw = add(Shape::Opaque);
    let inner = add(Shape::Struct { fields: [field("name", string)].into(), open: false, atomic: false });
    let inners = add(Shape::List { item: inner, kind: ListKind::Atomic });
    let labels = add(Shape::Map { value: string, atomic: false });
    let counts = add(Shape::Map { value: int, atomic: false });
    let strings = add(Shape::List { item: string, kind: ListKind::Atomic });
    let fields = [
        field("counts", counts),
        field("inner", inner),
        field("inners", inners),
        field("labels", labels),
        field("raw", raw),
        field("strings", strings),
        field("time", time),
    ];
    let root = add(Shape::Struct { fields: fields.into(), open: false, atomic: false });
    (arena, root)
}

fn check(given: Value, then: Value, unknown: &[&str]) {
    let (arena, root) = types();
    let mut object = given.clone();
    assert_eq!(prune(&arena, root, &mut object, NullRules::BuiltIn), unknown, "{given}");
    assert_eq!(object, then, "{given}");
}

// Custom resources are in `tests/custom.rs`, beside defaults and validation.
#[test]
fn built_in_objects() {
    let kept = json!({"raw": {"any": {"thing": null}}, "inner": {"name": "a"}, "labels": {"a": "b"}});
    check(kept.clone(), kept, &[]);
    check(json!({"foo": 1, "inner": {"bar": {}}}), json!({"inner": {}}), &["foo", "inner.bar"]);
    check(
        json!({"inners": [{"name": "a"}, {"x": 1, "name": "b", "y": 2}]}),
        json!({"inners": [{"name": "a"}, {"name": "b"}]}),
        &["inners[1].x", "inners[1].y"],
    );
    check(json!({"inner": null, "inners": null, "labels": null, "raw": null, "time": null}), json!({}), &[]);
    check(
        json!({"labels": {"a": null}, "counts": {"a": null}, "strings": [null], "inners": [null]}),
        json!({"labels": {"a": ""}, "counts": {"a": 0}, "strings": [""], "inners": [{}]}),
        &[],
    );
    check(json!({"inner": [1], "strings": {"a": 1}}), json!({"inner": [1], "strings": {"a": 1}}), &[]);
}
