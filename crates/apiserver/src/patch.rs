//! JSON patch, merge patch and strategic merge patch. In: a patch and an object. Out: the patched object, or the error. The
//! fourth kind, server-side apply, is in `write`.

use serde_json::Value;

use konverge_core::Status;
use konverge_schema::{Budget, merge_patch, size, strategic_merge_patch};

use crate::decode::{self, Decoded};
use crate::json_patch;
use crate::resource::Resource;
use crate::work::over_budget;

/// The most operations one JSON patch may have: what kube-apiserver accepts.
const MAX_OPERATIONS: usize = 10_000;

/// How many unknown fields of operations are reported: as many as kube-apiserver reports.
const MAX_UNKNOWN: usize = 100;

/// Inserting into a list moves the items behind; this many items are moved in the time of one step.
const ITEMS_PER_STEP: usize = 16;

/// A patch that was read.
#[derive(Debug)]
pub(crate) struct Patch {
    content: Content,
    /// What strict decoding says of the patch itself: fields that it has more than once, or that operations do not have.
    pub strict_errors: Vec<String>,
}

#[derive(Debug)]
enum Content {
    /// RFC 6902
    Json(Vec<Value>),
    /// RFC 7386
    Merge(Value),
    /// Kubernetes' own, driven by the schema.
    Strategic(Value),
}

impl Patch {
    /// Reads RFC 6902.
    pub(crate) fn json(body: &[u8], budget: &Budget) -> Result<Self, Status> {
        let Decoded { value, duplicates } = decode::json(body, budget)?;
        let duplicates = duplicates.iter().map(|path| format!("json patch duplicate field \"{path}\""));
        let strict_errors = duplicates.chain(unknown_fields(&value)).collect();
        let mut operations = match value {
            Value::Array(operations) if operations.iter().all(|one| one.is_object() || one.is_null()) => operations,
            Value::Null => Vec::new(),
            _ => return Err(Status::bad_request("error decoding patch: a JSON patch must be a list of objects")),
        };
        if operations.len() > MAX_OPERATIONS {
            return Err(Status::too_large(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            )));
        }
        operations.iter_mut().filter_map(Value::as_object_mut).for_each(json_patch::drop_null_value);
        Ok(Self { content: Content::Json(operations), strict_errors })
    }

    /// Reads RFC 7386.
    pub(crate) fn merge(body: &[u8], budget: &Budget) -> Result<Self, Status> {
        object(body, Content::Merge, budget)
    }

    /// Reads a strategic merge patch.
    pub(crate) fn strategic(body: &[u8], budget: &Budget) -> Result<Self, Status> {
        object(body, Content::Strategic, budget)
    }

    /// The object after the patch.
    pub(crate) fn apply(&self, resource: &Resource, current: &Value, budget: &Budget) -> Result<Value, Status> {
        let mut object = current.clone();
        match &self.content {
            Content::Json(patch) => {
                apply_json(patch, &mut object, budget)?;
                decode::check_shape(&object)?;
            }
            Content::Merge(patch) => merge_patch(&mut object, patch),
            Content::Strategic(patch) => {
                let schema = &resource.schema;
                object = strategic_merge_patch(&schema.arena, schema.root, object, patch.clone())
                    .map_err(|error| error.status())?;
                // Kubernetes merges into a Go struct, which stays of its kind whatever the patch says.
                for field in ["apiVersion", "kind"] {
                    if object[field].is_string() {
                        object[field] = current[field].clone();
                    }
                }
            }
        }
        Ok(object)
    }

    /// A strategic merge patch, which errors show instead of what it made.
    pub(crate) fn shown_in_errors(&self) -> Option<&Value> {
        match &self.content {
            Content::Strategic(patch) => Some(patch),
            _ => None,
        }
    }
}

/// An operation that cannot be done, or that there is not. Kubernetes does not say which.
fn rejected() -> Status {
    let mut status = Status::failure(422, "Invalid", "the server rejected our request due to an error in our request");
    status.details_mut();
    status
}

/// The fields of operations that no operation has. Only the first of them are of interest.
fn unknown_fields(operations: &Value) -> impl Iterator<Item = String> {
    const FIELDS: [&str; 4] = ["op", "path", "from", "value"];
    let operations = operations.as_array().into_iter().flatten().enumerate();
    let unknown = operations.flat_map(|(at, operation)| {
        let names = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        names.filter(|name| !FIELDS.contains(&name.as_str())).map(move |name| (at, name))
    });
    unknown.take(MAX_UNKNOWN).map(|(at, name)| format!("json patch unknown field \"[{at}].{name}\""))
}

fn object(body: &[u8], content: impl FnOnce(Value) -> Content, budget: &Budget) -> Result<Patch, Status> {
    let Decoded { value, duplicates } = decode::yaml(body, budget)?;
    if !value.is_object() {
        return Err(Status::bad_request("a merge patch must be a JSON object"));
    }
    let strict_errors = duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    Ok(Patch { content: content(value), strict_errors })
}

/// Applies one operation at a time, so that a patch that copies its own copies is stopped before it is large or deep.
fn apply_json(operations: &[Value], object: &mut Value, budget: &Budget) -> Result<(), Status> {
    for operation in operations {
        let from = matches!(text(operation, "op"), "copy" | "move").then_some("from");
        if from.into_iter().chain(["path"]).any(|field| !operation[field].is_string()) {
            return Err(rejected());
        }
        pay(operation, object, budget)?;
        json_patch::apply(object, operation).map_err(|_| rejected())?;
    }
    Ok(())
}

fn text<'o>(operation: &'o Value, field: &str) -> &'o str {
    operation[field].as_str().unwrap_or_default()
}

/// Spends what an operation is going to cost, and refuses one that would nest the object too deeply.
fn pay(operation: &Value, object: &Value, budget: &Budget) -> Result<(), Status> {
    let (op, path, from) = (text(operation, "op"), text(operation, "path"), text(operation, "from"));
    // What is put at the path.
    let put = match op {
        "add" | "replace" => operation.get("value"),
        "copy" | "move" => json_patch::find(object, from),
        _ => None,
    };
    let items = |path: &str| {
        let list = path.rsplit_once('/').and_then(|(list, _)| json_patch::find(object, list)).and_then(Value::as_array);
        list.map_or(0, Vec::len)
    };
    let behind = match op {
        "add" | "copy" | "remove" => items(path),
        "move" => items(from) + items(path),
        _ => 0,
    };
    budget.spend(1 + (behind / ITEMS_PER_STEP) as u64);
    budget.check().map_err(over_budget)?;
    if let Some(value) = put {
        let levels = path.matches('/').count();
        if levels > decode::MAX_DEPTH || decode::depth_exceeds(value, decode::MAX_DEPTH - levels) {
            return Err(decode::too_deep());
        }
        match op {
            "copy" => budget.produce(size(value)),
            // Its depth was just looked at.
            _ => budget.spend((size(value) / 64) as u64),
        };
        budget.check().map_err(over_budget)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: Value, operations: Value) -> Result<Value, u16> {
        let budget = Budget::new(1_000_000, 1 << 20);
        let patch = Patch::json(operations.to_string().as_bytes(), &budget).map_err(|status| status.code)?;
        let Content::Json(patch) = patch.content else { panic!("is a JSON patch") };
        let mut object = object;
        apply_json(&patch, &mut object, &budget).map_err(|status| status.code).map(|()| object)
    }

    #[test]
    fn patches_end_at_their_budget() {
        let copies = |count: usize| -> Value {
            (0..count).map(|at| json!({"op": "copy", "from": "/a", "path": format!("/a/k{at}")})).collect()
        };
        // Each operation puts the whole object at its own innermost place, so that the depth doubles.
        let deeper = |times: u32| -> Value {
            let nest = |at: u32| json!({"op": "copy", "from": "/x", "path": "/x".repeat(1 << at) + "/x"});
            (0..times).map(nest).collect()
        };
        let numbers = Value::Array((0..100_000).map(Value::from).collect());
        let in_front = |times: usize| Value::Array(vec![json!({"op": "add", "path": "/l/0", "value": 1}); times]);
        let to_and_fro: Value = (0..1000)
            .flat_map(|_| {
                [json!({"op": "move", "from": "/a", "path": "/b"}), json!({"op": "move", "from": "/b", "path": "/a"})]
            })
            .collect();
        for (name, object, operations, expect) in [
            ("copies of copies", json!({"a": {"x": "y".repeat(1000)}}), copies(5), None),
            ("too many copies of copies", json!({"a": {"x": "y".repeat(1000)}}), copies(30), Some(413)),
            ("deep", json!({"x": {}}), deeper(3), None),
            ("too deep", json!({"x": {}}), deeper(10), Some(400)),
            ("in front of a list", json!({"l": numbers}), in_front(10), None),
            ("too often in front of a list", json!({"l": numbers}), in_front(1000), Some(400)),
            ("to and fro", json!({"a": {"x": "y".repeat(100)}}), to_and_fro.clone(), None),
            ("a large value to and fro", json!({"a": {"x": "y".repeat(1_000_000)}}), to_and_fro, Some(400)),
            ("too many", json!({}), Value::Array(vec![json!({"op": "remove", "path": "/a"}); 10_001]), Some(413)),
        ] {
            assert_eq!(patched(object, operations).err(), expect, "{name}");
        }
    }
}
