//! Which values have not changed in an update. In: a value, what it was before, and its type. Out: whether both are the same,
//! as kube-apiserver compares them: lists of type map without regard to order, and objects only if all of it is declared.

use serde_json::Value;

use crate::arena::{Arena, ListKind, Node, Shape, TypeId};
use crate::budget::Budget;
use crate::items_by_key::ItemsByKey;

/// The items of `old` by their keys; only lists of type map have some.
pub(super) fn old_items<'o>(kind: &'o ListKind, old: &'o Value, budget: &Budget) -> Option<ItemsByKey<'o>> {
    let ListKind::Map(keys) = kind else { return None };
    Some(ItemsByKey::new(keys, old.as_array()?, budget))
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
        (Value::Array(new), Value::Array(items)) if new.len() != items.len() => false,
        (Value::Array(new), Value::Array(items)) => match &node.shape {
            Shape::List { item, kind: ListKind::Map(keys) } if !items.is_empty() => {
                let before = ItemsByKey::new(keys, items, budget);
                new.iter().all(|one| before.find(one).is_some_and(|before| part(*item, one, before)))
            }
            _ => budget.spend(items.len() as u64) && new == items,
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
