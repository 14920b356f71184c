//! JSON patches as kube-apiserver's library applies them. In: an object and one operation. Out: the object changed in place, or
//! why the operation does not apply, in the words of that library. It is more lenient than RFC 6902: `replace` also adds a
//! field, and `copy` of a field that is not there gives null.

use serde_json::{Map, Value};

/// Why an operation was not applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A test has failed: the whole patch is left out.
    Test(String),
    Error(String),
}

const MISSING: &str = "missing value";

/// Takes `value: null` out of an operation that was read from JSON: Go reads it as no value, so that a test for null is one for
/// absence. (A null that a CEL expression made is a value.)
pub(crate) fn drop_null_value(operation: &mut Map<String, Value>) {
    if operation.get("value").is_some_and(Value::is_null) {
        operation.remove("value");
    }
}

/// Applies one operation.
pub(crate) fn apply(object: &mut Value, operation: &Value) -> Result<(), Refused> {
    let text = |field: &str| operation[field].as_str().unwrap_or_default();
    let (op, path, from) = (text("op"), text("path"), text("from"));
    let value = || operation.get("value").cloned().unwrap_or_default();
    let missing = |what: &str| Refused::Error(format!("{op} operation does not apply: {what}: {MISSING}"));
    let failed = |place: &str, why: &str| Refused::Error(format!("error in {op} for path: '{place}': {why}"));
    // The library replaces and tests whole documents, and knows no other operation on them.
    if path.is_empty() {
        match op {
            "replace" if !value().is_object() => {
                let why = "replace operation value must be object or array: unexpected node type";
                return Err(Refused::Error(why.to_owned()));
            }
            "replace" => {
                *object = value();
                return Ok(());
            }
            "test" if *object == value() => return Ok(()),
            "test" => return Err(Refused::Test(path.to_owned())),
            _ => {}
        }
    }
    match op {
        "add" => {
            let (parent, key) =
                parent(object, path).ok_or_else(|| missing(&format!("doc is missing path: \"{path}\"")))?;
            add(parent, &key, value()).map_err(|why| failed(path, &why))
        }
        "remove" => {
            let (parent, key) =
                parent(object, path).ok_or_else(|| missing(&format!("doc is missing path: \"{path}\"")))?;
            remove(parent, &key).map(drop).map_err(|why| failed(path, &why))
        }
        "replace" => {
            let (parent, key) = parent(object, path).ok_or_else(|| missing(&format!("doc is missing path: {path}")))?;
            get(parent, &key).map_err(|_| missing(&format!("doc is missing key: {path}")))?;
            set(parent, &key, value());
            Ok(())
        }
        "test" => {
            let (parent, key) = parent(object, path).ok_or_else(|| missing(&format!("is missing path: {path}")))?;
            // The library takes a field that is null for none.
            let found = get(parent, &key).map_err(|why| failed(path, &why))?.filter(|found| !found.is_null());
            if found == operation.get("value") { Ok(()) } else { Err(Refused::Test(path.to_owned())) }
        }
        "move" => {
            let (source, key) =
                parent(object, from).ok_or_else(|| missing(&format!("doc is missing from path: {from}")))?;
            let moved = remove(source, &key).map_err(|why| failed(&key, &why))?;
            let (parent, key) =
                parent(object, path).ok_or_else(|| missing(&format!("doc is missing destination path: {path}")))?;
            add(parent, &key, moved).map_err(|why| failed(path, &why))
        }
        "copy" => {
            let (source, key) =
                parent(object, from).ok_or_else(|| missing(&format!("doc is missing from path: {from}")))?;
            let found = get(source, &key);
            let copied = found.map_err(|why| Refused::Error(format!("error in copy for from: '{from}': {why}")))?;
            let copied = copied.cloned().unwrap_or_default();
            let (parent, key) =
                parent(object, path).ok_or_else(|| missing(&format!("doc is missing destination path: {path}")))?;
            add(parent, &key, copied)
                .map_err(|why| Refused::Error(format!("error while adding value during copy: {why}")))
        }
        other => Err(Refused::Error(format!("Unexpected kind: {other}"))),
    }
}

/// The value that a path leads to.
pub(crate) fn find<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    steps(path).try_fold(object, |at, step| get(at, &step).ok().flatten())
}

/// The steps of a path. What stands before its first slash is not looked at.
fn steps(path: &str) -> impl Iterator<Item = String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}

/// What a path leads into, and the last step.
fn parent<'v>(object: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let mut steps = steps(path);
    let mut last = steps.next()?;
    let mut at = object;
    for step in steps {
        at = match at {
            Value::Array(items) => {
                let index = index(&last, items.len()).ok()?;
                items.get_mut(index)?
            }
            other => other.get_mut(&last)?,
        };
        last = step;
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then_some((at, last))
}

/// The place that a step names in a list; negative ones count from its end.
fn index(step: &str, length: usize) -> Result<usize, String> {
    let wrong = |index: i64| format!("Unable to access invalid index: {index}: invalid index referenced");
    let number: i64 = step.parse().map_err(|_| not_a_number(step))?;
    let index = if number < 0 { number + length as i64 } else { number };
    usize::try_from(index).ok().filter(|index| *index < length).ok_or_else(|| wrong(number))
}

fn not_a_number(step: &str) -> String {
    format!("strconv.Atoi: parsing {step:?}: invalid syntax")
}

fn get<'v>(parent: &'v Value, key: &str) -> Result<Option<&'v Value>, String> {
    match parent {
        Value::Array(items) => Ok(items.get(index(key, items.len())?)),
        other => Ok(other.get(key)),
    }
}

fn set(parent: &mut Value, key: &str, value: Value) {
    match parent {
        Value::Array(items) => {
            if let Ok(at) = index(key, items.len()) {
                items[at] = value;
            }
        }
        other => other[key] = value,
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            if key.parse::<i64>().is_err() {
                return Err(format!("value was not a proper array index: '{key}': {}", not_a_number(key)));
            }
            items.insert(index(key, items.len() + 1)?, value);
        }
        other => other[key] = value,
    }
    Ok(())
}

fn remove(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Array(items) => Ok(items.remove(index(key, items.len())?)),
        other => other
            .as_object_mut()
            .and_then(|fields| fields.remove(key))
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_apply_as_in_kube_apiserver() {
        let object = json!({"data": {"a": "1"}, "list": [{"name": "x"}], "empty": null});
        for (operation, expect) in [
            (json!({"op": "add", "path": "/data/b~1c", "value": "2"}), Ok(json!({"data": {"a": "1", "b/c": "2"}}))),
            (json!({"op": "replace", "path": "/data/x", "value": "2"}), Ok(json!({"data": {"a": "1", "x": "2"}}))),
            (json!({"op": "copy", "from": "/data/x", "path": "/data/y"}), Ok(json!({"data": {"a": "1", "y": null}}))),
            (json!({"op": "add", "path": "/data/x"}), Ok(json!({"data": {"a": "1", "x": null}}))),
            (json!({"op": "add", "path": "/list/-", "value": 1}), Ok(json!({"list": [{"name": "x"}, 1]}))),
            (json!({"op": "add", "path": "/list/0", "value": 1}), Ok(json!({"list": [1, {"name": "x"}]}))),
            (json!({"op": "remove", "path": "/list/-1"}), Ok(json!({"list": []}))),
            (json!({"op": "test", "path": "/data/a", "value": "1"}), Ok(json!({}))),
            (json!({"op": "test", "path": "/data/x"}), Ok(json!({}))),
            (json!({"op": "test", "path": "/data/a", "value": "x"}), Err("")),
            (json!({"op": "test", "path": "/data/x", "value": null}), Err("")),
            // A field that is null is the same as none.
            (json!({"op": "test", "path": "/empty"}), Ok(json!({}))),
            (json!({"op": "test", "path": "/empty", "value": "x"}), Err("")),
            (
                json!({"op": "test", "path": "/x/a", "value": "x"}),
                Err("test operation does not apply: is missing path: /x/a: missing value"),
            ),
            (
                json!({"op": "remove", "path": "/data/b"}),
                Err("error in remove for path: '/data/b': Unable to remove nonexistent key: b: missing value"),
            ),
            (
                json!({"op": "replace", "path": "/x/b", "value": "a"}),
                Err("replace operation does not apply: doc is missing path: /x/b: missing value"),
            ),
            (
                json!({"op": "replace", "path": "/list/7", "value": 1}),
                Err("replace operation does not apply: doc is missing key: /list/7: missing value"),
            ),
            (
                json!({"op": "add", "path": "/x/b", "value": "a"}),
                Err("add operation does not apply: doc is missing path: \"/x/b\": missing value"),
            ),
            (
                json!({"op": "add", "path": "", "value": "a"}),
                Err("add operation does not apply: doc is missing path: \"\": missing value"),
            ),
            (
                json!({"op": "add", "path": "/list/5", "value": 1}),
                Err("error in add for path: '/list/5': Unable to access invalid index: 5: invalid index referenced"),
            ),
            (
                json!({"op": "add", "path": "/list/x", "value": 1}),
                Err(
                    "error in add for path: '/list/x': value was not a proper array index: 'x': strconv.Atoi: parsing \
                     \"x\": invalid syntax",
                ),
            ),
            (
                json!({"op": "remove", "path": "/list/7"}),
                Err("error in remove for path: '/list/7': Unable to access invalid index: 7: invalid index referenced"),
            ),
            (
                json!({"op": "move", "from": "/data/x", "path": "/data/y"}),
                Err("error in move for path: 'x': Unable to remove nonexistent key: x: missing value"),
            ),
            (
                json!({"op": "move", "from": "/x/x", "path": "/data/y"}),
                Err("move operation does not apply: doc is missing from path: /x/x: missing value"),
            ),
            (
                json!({"op": "copy", "from": "/data/a", "path": "/x/y"}),
                Err("copy operation does not apply: doc is missing destination path: /x/y: missing value"),
            ),
            (json!({"op": "foo", "path": "/data/a"}), Err("Unexpected kind: foo")),
        ] {
            let mut patched = object.clone();
            let expect = match expect {
                Ok(change) => {
                    let mut changed = object.clone();
                    changed.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
                    Ok(changed)
                }
                Err("") => Err(Refused::Test(operation["path"].as_str().unwrap().to_owned())),
                Err(why) => Err(Refused::Error(why.to_owned())),
            };
            assert_eq!(apply(&mut patched, &operation).map(|()| patched), expect, "{operation}");
        }
    }
}
