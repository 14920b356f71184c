//! Removal of what a type does not declare. In: an object and its type. Out: the object without undeclared fields and
//! meaningless nulls, and the paths of the fields removed, as strict decoding reports them. Ignore, warn and strict
//! field validation differ only in what the caller does with those paths.

use serde_json::{Map, Value};

use crate::arena::{Arena, Node, Scalar, Shape, TypeId};
use crate::path::Path;

/// Whose rules for `null` apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Objects decode into Go structs: a null field is an absent one, a null item or map value is the zero value.
    BuiltIn,
    /// A null field stays where it is nullable or undeclared, waits for its default where it has one, and is absent
    /// otherwise; a null item stays and is judged by validation. Metadata follows the rules of built-in types.
    Custom,
}

/// Prunes `object` in place and returns the path of every field removed because nothing declares it.
///
/// Paths below the root's metadata come first, the others in the order of their names.
pub fn prune(arena: &Arena, root: TypeId, object: &mut Value, flavour: Flavour) -> Vec<String> {
    let mut pruner = Pruner { arena, unknown: Vec::new() };
    pruner.value(root, object, &Path::Root, flavour);
    let mut unknown = pruner.unknown;
    if flavour == Flavour::Custom {
        unknown.sort_by(|a, b| (!a.starts_with("metadata."), a).cmp(&(!b.starts_with("metadata."), b)));
    }
    unknown
}

struct Pruner<'a> {
    arena: &'a Arena,
    unknown: Vec<String>,
}

impl Pruner<'_> {
    fn value(&mut self, id: TypeId, value: &mut Value, path: &Path<'_>, flavour: Flavour) {
        let node = self.arena.node(id);
        match (&node.shape, value) {
            (Shape::Struct { fields, open, .. }, Value::Object(map)) => {
                let whole = node.embedded || matches!(path, Path::Root);
                map.retain(|name, value| match fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    Ok(at) => {
                        let ty = fields[at].ty;
                        // Metadata is decoded like any built-in type, in custom resources too.
                        let flavour = if whole && name == "metadata" { Flavour::BuiltIn } else { flavour };
                        if value.is_null() {
                            return self.keeps_null(ty, flavour);
                        }
                        self.value(ty, value, &Path::Field(path, name), flavour);
                        true
                    }
                    Err(_) if *open => {
                        if sealed(node) {
                            self.undeclared(value, &Path::Field(path, name));
                        }
                        true
                    }
                    Err(_) => {
                        self.unknown.push(Path::Field(path, name).dotted());
                        false
                    }
                });
            }
            (Shape::Map { value: ty, .. }, Value::Object(map)) => {
                map.retain(|name, value| {
                    if !value.is_null() {
                        self.value(*ty, value, &Path::Key(path, name), flavour);
                        return true;
                    }
                    if flavour == Flavour::BuiltIn {
                        zero(self.arena.node(*ty), value);
                    }
                    flavour == Flavour::BuiltIn || self.keeps_null(*ty, flavour)
                });
            }
            (Shape::List { item, .. }, Value::Array(items)) => {
                for (at, value) in items.iter_mut().enumerate() {
                    if !value.is_null() {
                        self.value(*item, value, &Path::Index(path, at), flavour);
                    } else if flavour == Flavour::BuiltIn {
                        zero(self.arena.node(*item), value);
                    }
                }
            }
            (Shape::Any | Shape::Opaque, value) if sealed(node) => {
                self.undeclared(value, path);
            }
            (Shape::Struct { open: true, .. }, _) if !sealed(node) => {}
            // The JSON type is wrong, which validation will say; nothing inside is declared.
            (Shape::Scalar(_) | Shape::List { .. }, value @ Value::Object(_))
            | (Shape::Scalar(_) | Shape::Struct { .. } | Shape::Map { .. }, value @ Value::Array(_))
                if flavour == Flavour::Custom =>
            {
                self.undeclared(value, path);
            }
            _ => {}
        }
    }

    fn keeps_null(&self, ty: TypeId, flavour: Flavour) -> bool {
        let node = self.arena.node(ty);
        match flavour {
            Flavour::BuiltIn => node.nullable,
            Flavour::Custom => {
                node.nullable || node.default.is_some() || (matches!(node.shape, Shape::Any) && sealed(node))
            }
        }
    }

    /// Empties every object inside a value that nothing declares.
    fn undeclared(&mut self, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                for name in map.keys() {
                    self.unknown.push(Path::Field(path, name).dotted());
                }
                *map = Map::new();
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.undeclared(item, &Path::Index(path, at));
                }
            }
            _ => {}
        }
    }
}

/// Whether undeclared fields stay without what is nested in them.
fn sealed(node: &Node) -> bool {
    node.checks.as_ref().is_some_and(|checks| checks.sealed)
}

/// What a null becomes where Go has no null: inside lists and maps of built-in types.
fn zero(node: &Node, value: &mut Value) {
    if node.nullable {
        return;
    }
    *value = match &node.shape {
        Shape::Struct { .. } => Value::Object(Map::new()),
        Shape::Scalar(Scalar::String) => Value::String(String::new()),
        Shape::Scalar(Scalar::Quantity) => Value::String("0".into()),
        Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString) => 0.into(),
        Shape::Scalar(Scalar::Boolean) => Value::Bool(false),
        _ => return,
    };
}

#[cfg(test)]
mod tests;
