//! Finds embedded resources. In: an object of a custom kind and its type. Out: every value with `x-kubernetes-embedded-resource` in
//! it, one after the other, with its path. Judges none of them.

use std::ops::ControlFlow;

use konverge_core::FieldPath;
use serde_json::Value;

use crate::arena::{Arena, Shape, TypeId};
use crate::path::Path;

/// An object inside of an object of a custom kind.
pub struct EmbeddedResource<'a> {
    /// The type of the resource in its arena.
    pub ty: TypeId,
    /// The resource itself, which is a JSON object.
    pub value: &'a Value,
    path: &'a Path<'a>,
}

impl EmbeddedResource<'_> {
    /// Where it is.
    pub fn path(&self) -> FieldPath {
        self.path.keyed(&FieldPath::root())
    }
}

/// Calls `visit` for each embedded resource of an object, until it breaks.
///
/// ```
/// use std::ops::ControlFlow;
/// use konverge_schema::{Arena, compile, visit_embedded};
/// use serde_json::json;
/// let mut arena = Arena::default();
/// let whole = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
/// let root = compile(&mut arena, Some(&json!({"type": "object", "properties": {"template": whole}}))).unwrap();
/// let object = json!({"template": {"kind": "Pod"}});
/// let found = visit_embedded(&arena, root, &object, &mut |embedded| ControlFlow::Break(embedded.path().to_string()));
/// assert_eq!(found, ControlFlow::Break("template".to_owned()));
/// ```
pub fn visit_embedded<B>(
    arena: &Arena,
    root: TypeId,
    object: &Value,
    visit: &mut impl FnMut(EmbeddedResource<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    walk(arena, root, object, &Path::Root, visit)
}

fn walk<B>(
    arena: &Arena,
    id: TypeId,
    value: &Value,
    path: &Path<'_>,
    visit: &mut impl FnMut(EmbeddedResource<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let node = arena.node(id);
    if node.embedded && value.is_object() {
        visit(EmbeddedResource { ty: id, value, path })?;
    }
    match (&node.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(map)) => {
            for (name, value) in map {
                if let Ok(at) = fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    walk(arena, fields[at].ty, value, &Path::Field(path, name), visit)?;
                }
            }
        }
        (Shape::Map { value: ty, .. }, Value::Object(map)) => {
            for (name, value) in map {
                walk(arena, *ty, value, &Path::Key(path, name), visit)?;
            }
        }
        (Shape::List { item, .. }, Value::Array(items)) => {
            for (at, value) in items.iter().enumerate() {
                walk(arena, *item, value, &Path::Index(path, at), visit)?;
            }
        }
        _ => {}
    }
    ControlFlow::Continue(())
}
