//! Validation of the defaults in a schema. In: a structural schema. Out: errors for defaults that pruning would change or
//! that the schema itself rejects.

use konverge_core::{FieldError, FieldPath};
use serde_json::Value;

use crate::arena::{Arena, Node, Shape, TypeId};
use crate::budget::Budget;
use crate::openapi::compile;
use crate::prune::{NullRules, prune};
use crate::validate::validate_below;

pub(super) fn check(schema: &Value, path: &FieldPath, budget: &Budget) -> Vec<FieldError> {
    let mut arena = Arena::default();
    let mut errors = Vec::new();
    // An invalid pattern is reported elsewhere.
    if let Ok(root) = compile(&mut arena, Some(schema)) {
        // A default at the root must be a whole object.
        let whole = Node { embedded: true, ..arena.node(root).clone() };
        arena.set(root, whole);
        walk(&arena, root, path, false, budget, &mut errors);
    }
    errors
}

/// Defaults below `additionalProperties` are not checked, because defaulting never uses them.
fn walk(arena: &Arena, id: TypeId, path: &FieldPath, in_meta: bool, budget: &Budget, errors: &mut Vec<FieldError>) {
    if !budget.spend(1) {
        return;
    }
    let node = arena.node(id);
    let in_meta = in_meta && !node.embedded;
    if let Some(default) = &node.default {
        let at = path.child("default");
        let mut pruned = (**default).clone();
        if !in_meta && !prune(arena, id, &mut pruned, NullRules::Custom).is_empty() {
            errors.push(FieldError::invalid(at.clone(), (**default).clone(), "must not have unknown fields"));
        }
        errors.extend(validate_below(arena, id, default, &at, budget));
    }
    match &node.shape {
        Shape::List { item, .. } => walk(arena, *item, &path.child("items"), in_meta, budget, errors),
        Shape::Struct { fields, .. } => {
            for field in fields {
                let meta = node.embedded && matches!(&*field.name, "metadata" | "apiVersion" | "kind");
                let at = path.child("properties").key(&field.name);
                walk(arena, field.ty, &at, in_meta || meta, budget, errors);
            }
        }
        _ => {}
    }
}
