//! Defaulting of custom resources. In: an object and its type. Out: the object with the defaults that its type declares,
//! also inside lists and maps. A null that is not valid is replaced by the default. It never removes or validates anything.

use serde_json::{Map, Value};

use crate::arena::{Arena, Node, Shape, TypeId};
use crate::budget::{Budget, OverBudget};

/// Applies defaults to `object` in place. It spends from a budget, because a long default in the items of a list can make
/// a small object large.
///
/// ```
/// use konverge_schema::{Arena, Budget, compile, default};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let size = json!({"type": "integer", "default": 3});
/// let root = compile(&mut arena, Some(&json!({"type": "object", "properties": {"size": size}}))).unwrap();
/// let mut object = json!({});
/// default(&arena, root, &mut object, &Budget::new(1000, 1000)).unwrap();
/// assert_eq!(object, json!({"size": 3}));
/// ```
pub fn default(arena: &Arena, root: TypeId, object: &mut Value, budget: &Budget) -> Result<(), OverBudget> {
    fill(arena, arena.node(root), object, budget);
    budget.check()
}

/// Returns early when the budget is used up.
fn fill(arena: &Arena, node: &Node, value: &mut Value, budget: &Budget) {
    match (&node.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            if !budget.spend(1 + fields.len() as u64 / 8) {
                return;
            }
            for field in fields {
                let node = arena.node(field.ty);
                if let Some(default) = &node.default {
                    put(map, &field.name, node, default, budget);
                }
            }
            for (name, value) in map {
                if let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    fill(arena, arena.node(fields[at].ty), value, budget);
                }
            }
        }
        (Shape::Map { value: ty, .. }, Value::Object(map)) => {
            let node = arena.node(*ty);
            for value in map.values_mut() {
                fill_item(arena, node, value, budget);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            let node = arena.node(*item);
            for value in items {
                fill_item(arena, node, value, budget);
            }
        }
        _ => {}
    }
}

fn put(map: &mut Map<String, Value>, name: &str, node: &Node, default: &Value, budget: &Budget) {
    match map.get_mut(name) {
        None if budget.copy(default) => {
            map.insert(name.to_owned(), default.clone());
        }
        Some(value) if value.is_null() && !node.nullable && budget.copy(default) => *value = default.clone(),
        _ => {}
    }
}

/// An item or map value: it is present, so only an invalid null is replaced.
fn fill_item(arena: &Arena, node: &Node, value: &mut Value, budget: &Budget) {
    if !budget.spend(1) {
        return;
    }
    if let (true, false, Some(default)) = (value.is_null(), node.nullable, &node.default)
        && budget.copy(default)
    {
        *value = (**default).clone();
    }
    fill(arena, node, value, budget);
}
