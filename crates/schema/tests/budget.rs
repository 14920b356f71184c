//! Small objects that would cost much: each ends at its budget, and ordinary ones spend next to nothing of it.

use konverge_core::FieldPath;
use konverge_schema::{
    Arena, Budget, FieldManager, FieldSet, ManagedFields, OverBudget, TypeId, check_schema, compile, default,
    empty_object, kubernetes, merge, size, validate,
};
use serde_json::{Value, json};

/// A schema whose spec has a list `l` of these items.
fn list_of(items: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "l": {"type": "array", "items": items},
    }}}})
}

fn compiled(schema: &Value) -> (Arena, TypeId) {
    let mut arena = Arena::default();
    let root = compile(&mut arena, Some(schema)).expect("the schema is structural");
    (arena, root)
}

fn empty_items(count: usize) -> Value {
    json!({"spec": {"l": vec![json!({}); count]}})
}

/// Clauses that have two clauses of each kind, and so on: each level makes four times the work.
fn nested(depth: usize) -> Value {
    if depth == 0 {
        return json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    }
    let inner = nested(depth - 1);
    json!({"anyOf": [inner, inner], "allOf": [inner, inner]})
}

fn item_with_clauses(depth: usize) -> Value {
    let mut item = nested(depth);
    item["type"] = "object".into();
    item["properties"] = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    item
}

#[test]
fn defaults_cannot_make_a_small_object_large() {
    let long = json!({"type": "string", "default": "x".repeat(100_000)});
    let (arena, root) = compiled(&list_of(&json!({"type": "object", "properties": {"long": long}})));
    for (items, expect) in [(10, Ok(())), (100_000, Err(OverBudget::Bytes))] {
        let mut object = empty_items(items);
        assert_eq!(default(&arena, root, &mut object, &Budget::new(1_000_000, 4 << 20)), expect, "{items}");
        assert!(size(&object) < 5 << 20, "{items}: {}", size(&object));
    }
}

/// Whatever is left to walk when the bytes are gone is not walked: not measured, not put into words.
#[test]
fn a_walk_ends_when_its_bytes_are_gone() {
    let filled = json!({"type": "object", "properties": {
        "many": {"type": "array", "items": {"type": "integer"}, "default": vec![1; 10_000]},
    }});
    let chosen = json!({"type": "string", "enum": ["a".repeat(10_000), "b".repeat(10_000)]});
    let unique = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}});
    let long = |value: Value| json!({"k".repeat(10_000): value});
    let map_of = |schema: Value| json!({"type": "object", "additionalProperties": schema});
    let cases = [
        ("defaults", filled, json!({}), 20_000),
        ("enumerations", chosen, json!("c"), 20_000),
        ("sets", map_of(unique), long(json!([1, 1, 2, 2])), 100),
        ("embedded resources", map_of(embedded), long(json!({})), 100),
    ];
    for (name, items, item, count) in cases {
        let (arena, root) = compiled(&list_of(&items));
        let mut object = json!({"spec": {"l": vec![item; count]}});
        let budget = Budget::new(1_000_000, 256 << 10);
        let ended = match name {
            "defaults" => default(&arena, root, &mut object, &budget),
            _ => validate(&arena, root, &object, &budget).map(|_| ()),
        };
        assert_eq!(ended, Err(OverBudget::Bytes), "{name}");
        // As much as it takes to produce so many bytes, and to walk the two defaults that were filled in.
        let spent = 1_000_000 - budget.steps_left();
        assert!(spent < 30_000, "{name}: {spent}");
    }
}

#[test]
fn nested_clauses_end_at_the_budget() {
    let (arena, root) = compiled(&list_of(&item_with_clauses(5)));
    let steps = |object: &Value| {
        let budget = Budget::new(1_000_000, 16 << 20);
        let judged = validate(&arena, root, object, &budget);
        (judged.map(|errors| errors.len()), 1_000_000 - budget.steps_left())
    };
    assert_eq!(steps(&empty_items(4000)), (Err(OverBudget::Steps), 1_000_000));
    let (errors, spent) = steps(&json!({"spec": {"l": [{"a": "x"}]}}));
    assert_eq!(errors, Ok(0));
    assert!(spent < 10_000, "{spent}");
}

#[test]
fn an_ordinary_object_spends_little() {
    let mut item = json!({"type": "object", "required": ["name"], "properties": {}});
    for at in 0..20 {
        item["properties"][format!("f{at}")] = json!({"type": "string", "default": "x", "maxLength": 10});
    }
    item["properties"]["name"] = json!({"type": "string", "pattern": "^[a-z]+$", "enum": ["a", "b"]});
    let (arena, root) = compiled(&list_of(&item));
    let mut object = json!({"spec": {"l": vec![json!({"name": "a"}); 10]}});
    let budget = Budget::new(1_000_000, 1 << 20);
    default(&arena, root, &mut object, &budget).expect("a small object");
    assert_eq!(validate(&arena, root, &object, &budget), Ok(Vec::new()));
    assert!(1_000_000 - budget.steps_left() < 1000, "{}", budget.steps_left());
}

#[test]
fn a_schema_is_judged_within_the_budget_too() {
    let mut schema = list_of(&item_with_clauses(5));
    schema["properties"]["spec"]["properties"]["l"]["default"] = vec![json!({}); 4000].into();
    let judged = check_schema(&schema, false, &FieldPath::new("spec"), &Budget::new(1_000_000, 16 << 20));
    assert_eq!(judged.map(|errors| errors.len()), Err(OverBudget::Steps));
}

#[test]
fn unique_items_are_compared_once() {
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}}});
    let mut unique = schema.clone();
    unique["properties"]["l"]["uniqueItems"] = true.into();
    // A cluster refuses the keyword in a CRD; compiled types may still have it.
    let (arena, root) = compiled(&unique);
    let numbers: Vec<Value> = (0..100_000).map(Value::from).collect();
    for (list, expect) in [(numbers.clone(), 0), ([numbers, vec![7.into()]].concat(), 1)] {
        let errors = validate(&arena, root, &json!({"l": list}), Budget::unlimited()).expect("no limit");
        assert_eq!(errors.len(), expect);
    }
}

fn writer<'a>(manager: &'a str, reset: &'a FieldSet, empty_object: &'a Value) -> FieldManager<'a> {
    let arena = kubernetes();
    let ty = arena.named("io.k8s.api.core.v1.ConfigMap").expect("is published");
    let now = "2026-01-01T00:00:00Z";
    FieldManager { arena, ty, api_version: "v1", kind: "ConfigMap", subresource: "", manager, reset, empty_object, now }
}

/// Quadratic work over so many managers takes minutes in a test build.
#[test]
fn many_managers_take_time_in_proportion() {
    let arena = kubernetes();
    let ty = arena.named("io.k8s.api.core.v1.ConfigMap").expect("is published");
    let (reset, empty_object) = (FieldSet::default(), empty_object(arena, ty));
    let manager = |at: usize, operation: &str| {
        json!({"manager": format!("m{at}"), "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
               "fieldsV1": {"f:data": {format!("f:k{at}"): {}}}})
    };
    let object = |operation: &str, managers: usize| {
        let data: serde_json::Map<String, Value> = (0..managers).map(|at| (format!("k{at}"), "v".into())).collect();
        let managed: Vec<Value> = (0..managers).map(|at| manager(at, operation)).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "managedFields": managed}, "data": data})
    };
    for (operation, expect) in [("Update", 10), ("Apply", 25_001)] {
        let live = object(operation, 25_000);
        let mut new = live.clone();
        new["data"]["another"] = "v".into();
        writer("writer", &reset, &empty_object).update(Some(&live), &mut new);
        let managed = ManagedFields::of(&new).expect("was just written");
        assert_eq!(managed.entries.len(), expect, "{operation}");
        let owned = FieldSet::union_all(managed.entries.iter().map(|entry| &entry.fields));
        assert_eq!(owned.paths().len(), 25_001, "{operation}");
    }
    let live = object("Apply", 25_000);
    let mut config = live.clone();
    config["metadata"] = json!({"name": "c"});
    let applied = writer("m0", &reset, &empty_object).apply(Some(&live), &config, true).expect("is forced");
    assert_eq!(ManagedFields::of(&applied).expect("was just written").entries.len(), 25_000);
}

#[test]
fn lists_of_many_items_merge_by_key() {
    let schema = json!({"type": "object", "properties": {"m": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}},
    }}});
    let (arena, root) = compiled(&schema);
    let items = |value: &str| -> Value {
        json!({"m": (0..60_000).map(|at| json!({"k": format!("k{at}"), "v": value})).collect::<Vec<_>>()})
    };
    let mut live = items("old");
    merge(&arena, root, &mut live, &items("new"));
    assert_eq!(live, items("new"));
    assert_eq!(validate(&arena, root, &live, &Budget::new(1_000_000, 1 << 20)), Ok(Vec::new()));
}
