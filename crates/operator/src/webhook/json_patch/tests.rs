//! Patches by table, and random ones against trees of values.

use super::*;

fn patch(sent: &Value, before: &Value, after: &Value) -> Vec<Value> {
    super::patch(&sent.to_string(), &before.to_string(), &after.to_string()).unwrap()
}

fn apply(object: &Value, operations: Vec<Value>) -> Value {
    let mut patched = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations)).unwrap();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

#[test]
fn only_what_the_function_changed() {
    for (sent, before, after, expect) in [
        // Nothing changed, although the type shows a field more.
        (json!({"a": 1}), json!({"a": 1, "shown": 0}), json!({"a": 1, "shown": 0}), json!([])),
        // A field that the type does not know stays.
        (
            json!({"a": 1, "unknown": {"x": 1}}),
            json!({"a": 1}),
            json!({"a": 2}),
            json!([{"op": "replace", "path": "/a", "value": 2}]),
        ),
        // A parent that the type shows and nobody set is added as a whole.
        (
            json!({}),
            json!({"strategy": {"type": ""}}),
            json!({"strategy": {"type": "Recreate"}}),
            json!([{"op": "add", "path": "/strategy", "value": {"type": "Recreate"}}]),
        ),
        (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2}), json!({"b": 2}), json!([{"op": "remove", "path": "/a"}])),
        (
            json!({"labels": {}}),
            json!({"labels": {}}),
            json!({"labels": {"app.kubernetes.io/name": "x", "a~b": "y"}}),
            json!([
                {"op": "add", "path": "/labels/a~0b", "value": "y"},
                {"op": "add", "path": "/labels/app.kubernetes.io~1name", "value": "x"},
            ]),
        ),
        // Items keep what the type does not know, also when another one comes before them.
        (
            json!([{"name": "a", "unknown": 1}]),
            json!([{"name": "a"}]),
            json!([{"name": "sidecar"}, {"name": "a", "image": "x"}]),
            json!([
                {"op": "replace", "path": "/0/name", "value": "sidecar"},
                {"op": "remove", "path": "/0/unknown"},
                {"op": "add", "path": "/-", "value": {"name": "a", "unknown": 1, "image": "x"}},
            ]),
        ),
        (
            json!([1, 2, 3]),
            json!([1, 2, 3]),
            json!([1]),
            json!([
                {"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"},
            ]),
        ),
        (json!({"a": null}), json!({}), json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 1}])),
    ] {
        let operations = patch(&sent, &before, &after);
        let (mut found, mut expected) = (operations.clone(), expect.as_array().unwrap().clone());
        found.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert_eq!(found, expected, "{sent} {before} {after}");
        let mut wanted = sent.clone();
        carry_over(&mut wanted, &before, &after);
        assert_eq!(apply(&sent, operations), wanted);
    }
}

/// Made-up values of a few fields, so that they often have something in common.
fn value(random: &mut u64, depth: u32) -> Value {
    let choice = next(random) as u32;
    let keys = ["a", "b/c", "d~e", "name"];
    match choice % if depth == 0 { 3 } else { 6 } {
        0 => json!(choice % 3),
        1 => json!(["x", "y"][choice as usize / 8 % 2]),
        2 => Value::Null,
        3 => (0..choice / 8 % 4).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let fields = (0..choice / 8 % 4)
                .map(|at| (keys[((choice >> 5) + at) as usize % keys.len()].to_owned(), value(random, depth - 1)));
            Value::Object(fields.collect())
        }
    }
}

/// The same operations in the same order as from decoded trees, also for an object of which the type knows a part.
#[test]
fn texts_are_compared_as_values_are() {
    let mut random = 7;
    for round in 0..50_000 {
        let sent = value(&mut random, 4);
        let mut before = sent.clone();
        for _ in 0..round % 3 {
            forget(&mut before, &mut random);
        }
        let mut after = before.clone();
        for _ in 0..1 + round % 4 {
            disturb(&mut after, &mut random);
        }
        let mut wanted = sent.clone();
        carry_over(&mut wanted, &before, &after);
        let mut expected = Vec::new();
        diff(&sent, &wanted, &mut String::new(), &mut expected);
        assert_eq!(patch(&sent, &before, &after), expected, "round {round}: {sent} {before} {after}");
        // A server may write an object with white space and in another order.
        let pretty = serde_json::to_string_pretty(&sent).unwrap();
        let operations = super::patch(&pretty, &before.to_string(), &after.to_string()).unwrap();
        assert_eq!(operations, expected, "round {round}: {pretty} {before} {after}");
    }
}

#[test]
fn texts_of_any_order_are_compared() {
    for (sent, before, after, expect) in [
        // The order of a HashMap says nothing.
        (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, json!([])),
        (r#"{"m":{"b":2,"a":1,"u":0}}"#, r#"{"m":{"a":1,"b":2}}"#, r#"{"m":{"b":2,"a":1}}"#, json!([])),
        (r#"{"l":[{"a":1,"b":2}]}"#, r#"{"l":[{"a":1,"b":2}]}"#, r#"{"l":[{"b":2,"a":1}]}"#, json!([])),
        (r#"{}"#, r#"{"m":{"a":1,"b":2}}"#, r#"{"m":{"b":2,"a":1}}"#, json!([])),
        (
            r#"{"spec":{"b":1,"u":[{}]},"kind":"A"}"#,
            r#"{"kind":"A","spec":{"b":1}}"#,
            r#"{"kind":"A","spec":{"b":2}}"#,
            json!([{"op": "replace", "path": "/spec/b", "value": 2}]),
        ),
        // Names with escapes.
        (
            r#"{"a\u002fb":{"x\"":1}}"#,
            r#"{"a/b":{"x\"":1}}"#,
            r#"{"a/b":{"x\"":2}}"#,
            json!([{"op": "replace", "path": "/a~1b/x\"", "value": 2}]),
        ),
        // An item of a list of names changes, one is new at the end.
        (
            r#"[{"name":"a","u":1},{"name":"b","u":2}]"#,
            r#"[{"name":"a"},{"name":"b"}]"#,
            r#"[{"name":"a"},{"name":"b","image":"x"},{"name":"c"}]"#,
            json!([
                {"op": "add", "path": "/1/image", "value": "x"},
                {"op": "add", "path": "/-", "value": {"name": "c"}},
            ]),
        ),
    ] {
        let operations = super::patch(sent, before, after).unwrap();
        assert_eq!(Value::Array(operations), expect, "{sent} {before} {after}");
    }
}

/// A number for a choice.
fn next(random: &mut u64) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize
}

/// Somewhere within a value, as a function may reach it.
fn somewhere<'a>(within: &'a mut Value, random: &mut u64) -> &'a mut Value {
    let choice = next(random);
    let may_enter = match within {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if !may_enter || choice.is_multiple_of(4) {
        return within;
    }
    match within {
        Value::Object(fields) => {
            let at = choice / 4 % fields.len();
            somewhere(fields.values_mut().nth(at).unwrap(), random)
        }
        Value::Array(items) => {
            let at = choice / 4 % items.len();
            somewhere(&mut items[at], random)
        }
        scalar => scalar,
    }
}

/// Removes a field, as a type that does not know it.
fn forget(object: &mut Value, random: &mut u64) {
    if let Value::Object(fields) = somewhere(object, random)
        && let Some(name) = fields.keys().next().cloned()
    {
        fields.remove(&name);
    }
}

/// Changes, adds or removes something.
fn disturb(object: &mut Value, random: &mut u64) {
    let made = value(random, 2);
    let choice = next(random);
    match somewhere(object, random) {
        Value::Object(fields) if !choice.is_multiple_of(3) => {
            fields.insert(["a", "b/c", "new"][choice / 3 % 3].to_owned(), made);
        }
        Value::Array(items) if choice % 4 == 1 => items.push(made),
        Value::Array(items) if choice % 4 == 2 => drop(items.pop()),
        Value::Array(items) if choice % 4 == 3 => items.insert(0, made),
        found => *found = made,
    }
}

/// For an object that the type shows as it is, the patch makes exactly what the function made.
#[test]
fn what_is_patched_is_what_was_made() {
    let mut random = 1;
    for round in 0..20_000 {
        let (before, after) = (value(&mut random, 4), value(&mut random, 4));
        assert_eq!(apply(&before, patch(&before, &before, &after)), after, "round {round}: {before}");
    }
}
