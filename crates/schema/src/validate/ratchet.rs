//! Which values have not changed in an update. In: a value, what it was before, and its type. Out: whether both are the same,
//! as kube-apiserver compares them: lists of type map without regard to order, and objects only if all of it is declared.

use serde_json::{Map, Value};

use crate::arena::{Arena, ListKind, Node, Shape, TypeId};
use crate::budget::Budget;

/// The item of `old` with the same keys; only lists of type map have one.
pub(super) fn old_item<'o>(kind: &ListKind, item: &Value, old: &'o Value) -> Option<&'o Value> {
    let ListKind::Map(keys) = kind else { return None };
    let item = item.as_object()?;
    let key = |item: &Map<String, Value>, name: &str| -> Option<Value> {
        item.get(name).filter(|value| matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))).cloned()
    };
    let wanted = keys.iter().map(|name| key(item, name)).collect::<Option<Vec<_>>>()?;
    old.as_array()?.iter().find(|old| {
        let Some(old) = old.as_object() else { return false };
        keys.iter().zip(&wanted).all(|(name, value)| key(old, name).as_ref() == Some(value))
    })
}

/// Whether a value is what it was before.
pub(super) fn is_unchanged(
    arena: &Arena,
    meta: Option<TypeId>,
    node: &Node,
    new: &Value,
    old: &Value,
    budget: &Budget,
) -> bool {
    if !budget.spend(1) {
        return false;
    }
    let part = |id: TypeId, new: &Value, old: &Value| {
        Some(id) != meta && is_unchanged(arena, meta, arena.node(id), new, old, budget)
    };
    match (new, old) {
        (Value::Array(new), Value::Array(items)) => match &node.shape {
            Shape::List { item, kind: kind @ ListKind::Map(_) } if !items.is_empty() => {
                new.len() == items.len()
                    && new.iter().all(|one| old_item(kind, one, old).is_some_and(|before| part(*item, one, before)))
            }
            _ => new == items,
        },
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, value)| {
                    let id = match &node.shape {
                        Shape::Struct { fields, .. } => {
                            let at = fields.binary_search_by(|field| (*field.name).cmp(name));
                            at.ok().map(|at| fields[at].ty)
                        }
                        Shape::Map { value, .. } => Some(*value),
                        _ => None,
                    };
                    id.zip(old.get(name)).is_some_and(|(id, before)| part(id, value, before))
                })
        }
        (new, old) => new == old,
    }
}
