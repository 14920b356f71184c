//! The patches of mutating policies. In: an object, and what an expression gave. Out: the patched object, or why the patch does
//! not apply, in the words of kube-apiserver and of the JSON patch library that it uses.

use serde_json::Value;

use konverge_core::{GroupVersionKind, Status};
use konverge_schema::{Budget, ListKind, Shape, TypeId, check_applied, check_restorable, merge, size};

use crate::admission::patched::PatchTarget;
use crate::decode;
use crate::json_patch::{Refused, apply, find};
use crate::work::over_budget;

/// Merges an object that an expression made into the object of a request. The outer error is for the client.
pub(super) fn apply_configuration(
    target: &PatchTarget<'_>,
    object: &Value,
    mut config: Value,
) -> Result<Result<Value, String>, Status> {
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    if let Err(why) = check_applied(target.arena, target.root, &config) {
        return Ok(Err(format!("error applying patch: failed to convert patch object to typed object: {why}")));
    }
    let mut atomics = Vec::new();
    find_atomics(target, target.root, &config, String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Ok(Err(format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        )));
    }
    let mut merged = object.clone();
    merge(target.arena, target.root, &mut merged, &config);
    // The merge knows texts and numbers, but neither base64, times and quantities nor how large a number may be.
    if !target.custom
        && let Err(why) = check_restorable(target.arena, target.root, &merged)
    {
        let GroupVersionKind { group, version, kind } = &target.gvk;
        return Ok(Err(format!("unable to convert unstructured object to {group}/{version}, Kind={kind}: {why}")));
    }
    target.read(&mut merged)?;
    Ok(Ok(merged))
}

/// The paths of atomic values in a configuration: merging would remove everything in them that it does not repeat.
fn find_atomics(target: &PatchTarget<'_>, ty: TypeId, value: &Value, path: String, found: &mut Vec<String>) {
    match (&target.arena.node(ty).shape, value) {
        (Shape::Struct { atomic, fields, .. }, Value::Object(given)) => {
            if *atomic {
                found.push(path.clone());
            }
            for (name, value) in given {
                if let Some(field) = fields.iter().find(|field| *field.name == **name) {
                    find_atomics(target, field.ty, value, format!("{path}.{name}"), found);
                }
            }
        }
        (Shape::Map { atomic: true, .. }, Value::Object(_)) => found.push(path),
        (Shape::List { item, kind }, Value::Array(items)) => {
            if *kind == ListKind::Atomic {
                found.push(path.clone());
            }
            for (at, value) in items.iter().enumerate() {
                find_atomics(target, *item, value, format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

/// Applies the operations of a JSON patch. A `test` that fails leaves the object as it is. The outer error is for the client.
pub(super) fn json_patch(
    target: &PatchTarget<'_>,
    object: &Value,
    operations: &[Value],
    budget: &Budget,
) -> Result<Result<Value, String>, Status> {
    let mut patched = object.clone();
    for operation in operations {
        // A patch that copies its own copies ends at the budget.
        let copied = operation["from"].as_str().and_then(|from| find(&patched, from)).map_or(0, size);
        budget.produce(size(operation) + copied);
        budget.check().map_err(over_budget)?;
        match apply(&mut patched, operation) {
            Ok(()) => {}
            Err(Refused::Test(_)) => return Ok(Ok(object.clone())),
            Err(Refused::Error(why)) => return Ok(Err(format!("JSON Patch: {why}"))),
        }
    }
    decode::check_shape(&patched)?;
    decoded_strictly(target, patched)
}

/// Reads a patched object as its kind. A field that the kind does not have is an error of the server.
fn decoded_strictly(target: &PatchTarget<'_>, mut patched: Value) -> Result<Result<Value, String>, Status> {
    let unknown = target.read(&mut patched)?;
    if unknown.is_empty() {
        return Ok(Ok(patched));
    }
    let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    Err(Status::internal(format!("strict decoding error: {}", unknown.join(", "))))
}
