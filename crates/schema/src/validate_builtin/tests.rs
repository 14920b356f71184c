//! Tests of `builtin`, as tables.

use serde_json::json;

use super::*;
use crate::arena::{Field, Node, Scalar};
use crate::checks::Checks;

/// `spec` with a required selector, a policy of two values, and lists of each kind; `status` with a required count.
fn types() -> (Arena, TypeId) {
    let mut arena = Arena::default();
    let mut add = |node: Node| arena.add(node);
    let of = |shape| Node { shape, ..Node::default() };
    let field = |name: &str, ty, required| Field { name: name.into(), ty, required };
    let of_fields = |fields: Vec<Field>| of(Shape::Struct { fields: fields.into(), open: false, atomic: false });
    let string = add(of(Shape::Scalar(Scalar::String)));
    let int = add(of(Shape::Scalar(Scalar::Int32)));
    let checks = Checks { enumeration: [json!("Always"), json!("Never")].into(), ..Checks::default() };
    let policy = add(Node { checks: Some(Box::new(checks)), ..of(Shape::Scalar(Scalar::String)) });
    let volume = add(of_fields(vec![field("name", string, true), field("port", int, false)]));
    let keys = |keys: &[&str]| ListKind::Map(keys.iter().map(|key| Box::from(*key)).collect());
    let volumes = add(of(Shape::List { item: volume, kind: keys(&["name"]) }));
    let ports = add(of(Shape::List { item: volume, kind: keys(&["name", "port"]) }));
    let tags = add(of(Shape::List { item: string, kind: ListKind::Set }));
    let map = add(of(Shape::Map { value: volume, atomic: false }));
    let spec = add(of_fields(vec![
        field("byName", map, false),
        field("policy", policy, false),
        field("ports", ports, false),
        field("selector", string, true),
        field("tags", tags, false),
        field("volumes", volumes, false),
    ]));
    let status = add(of_fields(vec![field("count", int, true)]));
    let root = add(of_fields(vec![field("spec", spec, true), field("status", status, false)]));
    (arena, root)
}

fn check(object: Value, expect: &[&str]) {
    let (arena, root) = types();
    let errors = check_required(&arena, root, &object).into_iter().chain(check_lists(&arena, root, &object));
    let texts: Vec<String> = errors.map(|error| error.to_string()).collect();
    assert_eq!(texts, expect, "{object}");
}

#[test]
fn built_in_objects() {
    check(json!({}), &["spec: Required value"]);
    check(json!({"spec": null}), &["spec: Required value"]);
    check(json!({"spec": {}}), &["spec.selector: Required value"]);
    check(json!({"spec": {"selector": ""}, "status": {}}), &[]);
    check(json!({"spec": {"selector": "a", "policy": "Always", "volumes": [{"name": "a"}, {"name": "b"}]}}), &[]);
    check(json!({"spec": {"selector": "a", "policy": ""}}), &[]);
    check(
        json!({"spec": {"selector": "a", "policy": "Often"}}),
        &["spec.policy: Unsupported value: \"Often\": supported values: \"Always\", \"Never\""],
    );
    check(
        json!({"spec": {"selector": "a", "volumes": [{}, {"port": 1}]}}),
        &[
            "spec.volumes[0].name: Required value",
            "spec.volumes[1].name: Required value",
            "spec.volumes[1]: Duplicate value: {}",
        ],
    );
    check(json!({"spec": {"selector": "a", "byName": {"k": {}}}}), &["spec.byName[k].name: Required value"]);
    check(
        json!({"spec": {"selector": "a", "volumes": [{"name": "a"}, {"name": "a"}, {"name": "a"}]}}),
        &["spec.volumes[1].name: Duplicate value: \"a\""],
    );
    check(
        json!({"spec": {"selector": "a", "ports": [{"name": "a", "port": 1}, {"name": "a"}, {"name": "a", "port": 1}]}}),
        &["spec.ports[2]: Duplicate value: {\"name\":\"a\",\"port\":1}"],
    );
    check(json!({"spec": {"selector": "a", "tags": ["a", "a"]}}), &["spec.tags[1]: Duplicate value: \"a\""]);
}
