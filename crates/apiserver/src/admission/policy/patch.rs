//! The patches of mutating policies. In: an object, and what an expression gave. Out: the patched object, or why the patch does
//! not apply, in the words of kube-apiserver and of the JSON patch library that it uses.

use serde_json::Value;

use konverge_core::{GroupVersionKind, Status};
use konverge_schema::{
    Arena, Budget, ListKind, NullRules, Shape, TypeId, check_applied, check_types, kubernetes, merge, prune, size,
};

use crate::admission::json_patch::{Refused, apply};
use crate::decode;
use crate::resource::Resource;
use crate::subresource::Subresource;
use crate::work::over_budget;

/// The types that a patch has to fit.
pub(crate) struct PatchTarget<'a> {
    pub arena: &'a Arena,
    pub root: TypeId,
    pub custom: bool,
}

impl<'a> PatchTarget<'a> {
    /// The types of the kind that a request speaks.
    pub(crate) fn of(resource: &'a Resource, subresource: Subresource) -> Self {
        let kind = resource.subresource(subresource.name()).map(|info| &info.gvk).filter(|gvk| **gvk != resource.gvk());
        let arena = kubernetes();
        // What a binding, an eviction or a connection sends is of a built-in kind.
        if let Some(root) = kind.and_then(|gvk| arena.named(&type_name(gvk))) {
            return Self { arena, root, custom: false };
        }
        Self { arena: &resource.schema.arena, root: resource.schema.root, custom: resource.custom }
    }
}

/// The name of a built-in type: `io.k8s.api.autoscaling.v1.Scale`.
fn type_name(gvk: &GroupVersionKind) -> String {
    let group = gvk.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("io.k8s.api.{group}.{}.{}", gvk.version, gvk.kind)
}

/// Merges an object that an expression made into the object of a request.
pub(super) fn apply_configuration(
    target: &PatchTarget<'_>,
    object: &Value,
    mut config: Value,
) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    check_applied(target.arena, target.root, &config)
        .map_err(|why| format!("error applying patch: failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    find_atomics(target, target.root, &config, String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    let mut merged = object.clone();
    merge(target.arena, target.root, &mut merged, &config);
    let nulls = if target.custom { NullRules::Custom } else { NullRules::BuiltIn };
    prune(target.arena, target.root, &mut merged, nulls);
    Ok(merged)
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
        let copied = operation["from"].as_str().and_then(|from| patched.pointer(from)).map_or(0, size);
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

/// Reads a patched object as its kind, and says which of its fields the kind does not have. A value of another type than its
/// field's is an error of the server.
pub(crate) fn decoded(target: &PatchTarget<'_>, patched: &mut Value) -> Result<Vec<String>, Status> {
    let PatchTarget { arena, root, custom } = *target;
    if custom {
        prune(arena, root, patched, NullRules::Custom);
        return Ok(Vec::new());
    }
    check_types(arena, root, patched).map_err(Status::internal)?;
    Ok(prune(arena, root, patched, NullRules::BuiltIn).iter().map(ToString::to_string).collect())
}

/// The same where unknown fields are an error of the server.
fn decoded_strictly(target: &PatchTarget<'_>, mut patched: Value) -> Result<Result<Value, String>, Status> {
    let unknown = decoded(target, &mut patched)?;
    if unknown.is_empty() {
        return Ok(Ok(patched));
    }
    let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    Err(Status::internal(format!("strict decoding error: {}", unknown.join(", "))))
}
