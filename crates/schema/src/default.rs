//! Filling in what is absent. In: an object and its type. Out: the object with the defaults its type declares, also
//! inside lists and maps. A null that is no value takes the default as well. Never removes, never judges.

use serde_json::{Map, Value};

use crate::arena::{Arena, Node, Shape, TypeId};

/// Applies defaults to `object` in place.
///
/// ```
/// use konverge_schema::{Arena, compile, default};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let size = json!({"type": "integer", "default": 3});
/// let root = compile(&mut arena, Some(&json!({"type": "object", "properties": {"size": size}}))).unwrap();
/// let mut object = json!({});
/// default(&arena, root, &mut object);
/// assert_eq!(object, json!({"size": 3}));
/// ```
pub fn default(arena: &Arena, root: TypeId, object: &mut Value) {
    fill(arena, arena.node(root), object);
}

fn fill(arena: &Arena, node: &Node, value: &mut Value) {
    match (&node.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for field in fields {
                let node = arena.node(field.ty);
                if let Some(default) = &node.default {
                    put(map, &field.name, node, default);
                }
            }
            for (name, value) in map {
                if let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    fill(arena, arena.node(fields[at].ty), value);
                }
            }
        }
        (Shape::Map { value: ty, .. }, Value::Object(map)) => {
            let node = arena.node(*ty);
            for value in map.values_mut() {
                fill_item(arena, node, value);
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            let node = arena.node(*item);
            for value in items {
                fill_item(arena, node, value);
            }
        }
        _ => {}
    }
}

fn put(map: &mut Map<String, Value>, name: &str, node: &Node, default: &Value) {
    match map.get_mut(name) {
        None => {
            map.insert(name.to_owned(), default.clone());
        }
        Some(value) if value.is_null() && !node.nullable => *value = default.clone(),
        Some(_) => {}
    }
}

/// An item or map value: it exists, so only a null that is no value is filled.
fn fill_item(arena: &Arena, node: &Node, value: &mut Value) {
    if let (true, false, Some(default)) = (value.is_null(), node.nullable, &node.default) {
        *value = (**default).clone();
    }
    fill(arena, node, value);
}
