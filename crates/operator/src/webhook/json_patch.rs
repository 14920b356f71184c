//! What a function changed, as a JSON Patch (RFC 6902). In: an object as it was sent, and the same object before and after
//! the function as its Rust type shows it. Out: the operations. Pure.
//!
//! A Rust type may not know all fields of an object, and may show fields that nobody set. Neither must get into the patch:
//! only what differs between `before` and `after` is carried over to the object that was sent ([`carry_over`]).

use serde_json::{Map, Value, json};

/// The operations that make `sent` differ as `after` differs from `before`; none if nothing differs.
pub(super) fn patch(sent: &Value, before: &Value, after: &Value) -> Vec<Value> {
    let mut wanted = sent.clone();
    carry_over(&mut wanted, before, after);
    let mut operations = Vec::new();
    diff(sent, &wanted, &mut String::new(), &mut operations);
    operations
}

/// Changes `target` as `before` was changed to `after`, and leaves alone what both have in common.
fn carry_over(target: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (&mut *target, before, after) {
        (Value::Object(target), Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                target.remove(key);
            }
            for (key, after) in after {
                match (target.get_mut(key), before.get(key)) {
                    (Some(there), Some(before)) => carry_over(there, before, after),
                    (None, Some(before)) if before == after => {}
                    _ => drop(target.insert(key.clone(), after.clone())),
                }
            }
        }
        // Items are told apart by where they were. An item that is new, or has moved, is taken from `after` as it is, unless
        // an equal one or one of the same name was there before.
        (Value::Array(items), Value::Array(before), Value::Array(after)) if items.len() == before.len() => {
            let carried = after.iter().enumerate().map(|(at, after)| match place_of(after, at, before) {
                Some(place) => {
                    let mut item = items[place].clone();
                    carry_over(&mut item, &before[place], after);
                    item
                }
                None => after.clone(),
            });
            *items = carried.collect();
        }
        _ => *target = after.clone(),
    }
}

/// Where an item was before: the one with its name, else one that is equal, else the one at the same place.
fn place_of(after: &Value, at: usize, before: &[Value]) -> Option<usize> {
    if let Some(name) = name_of(after) {
        return before.iter().position(|item| name_of(item) == Some(name));
    }
    before.iter().position(|item| item == after).or((at < before.len()).then_some(at))
}

/// The name of an item of a list, such as a container or a variable.
fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Appends the operations that make `to` of `from`, which are at `path`.
fn diff(from: &Value, to: &Value, path: &mut String, operations: &mut Vec<Value>) {
    if from == to {
        return;
    }
    let length = path.len();
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            diff_fields(from, to, path, operations);
        }
        (Value::Array(from), Value::Array(to)) => {
            for (at, (from, to)) in from.iter().zip(to).enumerate() {
                path.push_str(&format!("/{at}"));
                diff(from, to, path, operations);
                path.truncate(length);
            }
            for to in to.iter().skip(from.len()) {
                operations.push(json!({"op": "add", "path": format!("{path}/-"), "value": to}));
            }
            // From the end, so that no index moves.
            for at in (to.len()..from.len()).rev() {
                operations.push(json!({"op": "remove", "path": format!("{path}/{at}")}));
            }
        }
        _ => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

fn diff_fields(from: &Map<String, Value>, to: &Map<String, Value>, path: &mut String, operations: &mut Vec<Value>) {
    let length = path.len();
    for key in from.keys().chain(to.keys().filter(|key| !from.contains_key(*key))) {
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        match (from.get(key), to.get(key)) {
            (Some(from), Some(to)) => diff(from, to, path, operations),
            (None, Some(to)) => operations.push(json!({"op": "add", "path": path, "value": to})),
            (_, None) => operations.push(json!({"op": "remove", "path": path})),
        }
        path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 2}),
                json!({"b": 2}),
                json!([{"op": "remove", "path": "/a"}]),
            ),
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
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = (*random >> 33) as u32;
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

    /// For an object that the type shows as it is, the patch makes exactly what the function made.
    #[test]
    fn what_is_patched_is_what_was_made() {
        let mut random = 1;
        for round in 0..20_000 {
            let (before, after) = (value(&mut random, 4), value(&mut random, 4));
            assert_eq!(apply(&before, patch(&before, &before, &after)), after, "round {round}: {before}");
        }
    }
}
