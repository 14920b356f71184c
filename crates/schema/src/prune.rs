//! Pruning of unknown fields. In: an object and its type. Out: the object without undeclared fields and without nulls that
//! are not values, and the paths of the removed fields as strict decoding reports them. The field validation modes Ignore,
//! Warn and Strict differ only in what the caller does with those paths.

use serde_json::{Map, Value};

use crate::arena::{Arena, Node, Scalar, Shape, TypeId};
use crate::path::Path;

/// Which rules for `null` apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullRules {
    /// Those of decoding into Go structs: a null field is absent, a null item or map value becomes the zero value.
    BuiltIn,
    /// Those of custom resources: a null field is kept if it is nullable or undeclared, replaced by its default if it has
    /// one, and absent otherwise. A null item is kept, and validation decides about it. Metadata follows `BuiltIn`.
    Custom,
}

/// Prunes `object` in place and returns the path of every unknown field that was removed.
///
/// Paths below the root's metadata come first, the others in the order of their names.
pub fn prune(arena: &Arena, root: TypeId, object: &mut Value, null_rules: NullRules) -> Vec<String> {
    let mut pruner = Pruner { arena, unknown: Vec::new() };
    pruner.value(root, object, &Path::Root, null_rules);
    let mut unknown = pruner.unknown;
    if null_rules == NullRules::Custom {
        unknown.sort_by(|a, b| (!a.starts_with("metadata."), a).cmp(&(!b.starts_with("metadata."), b)));
    }
    unknown
}

struct Pruner<'a> {
    arena: &'a Arena,
    unknown: Vec<String>,
}

impl Pruner<'_> {
    fn value(&mut self, id: TypeId, value: &mut Value, path: &Path<'_>, null_rules: NullRules) {
        let node = self.arena.node(id);
        match (&node.shape, value) {
            (Shape::Struct { fields, open, .. }, Value::Object(map)) => {
                let whole = node.embedded || matches!(path, Path::Root);
                map.retain(|name, value| match fields.binary_search_by(|field| (*field.name).cmp(name)) {
                    Ok(at) => {
                        let ty = fields[at].ty;
                        // Metadata is decoded like any built-in type, in custom resources too.
                        let null_rules = if whole && name == "metadata" { NullRules::BuiltIn } else { null_rules };
                        if value.is_null() {
                            return self.keeps_null(ty, null_rules);
                        }
                        self.value(ty, value, &Path::Field(path, name), null_rules);
                        true
                    }
                    Err(_) if *open => {
                        if prunes_nested(node) {
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
                        self.value(*ty, value, &Path::Key(path, name), null_rules);
                        return true;
                    }
                    if null_rules == NullRules::BuiltIn {
                        zero(self.arena.node(*ty), value);
                    }
                    null_rules == NullRules::BuiltIn || self.keeps_null(*ty, null_rules)
                });
            }
            (Shape::List { item, .. }, Value::Array(items)) => {
                for (at, value) in items.iter_mut().enumerate() {
                    if !value.is_null() {
                        self.value(*item, value, &Path::Index(path, at), null_rules);
                    } else if null_rules == NullRules::BuiltIn {
                        zero(self.arena.node(*item), value);
                    }
                }
            }
            (Shape::Any | Shape::Opaque, value) if prunes_nested(node) => {
                self.undeclared(value, path);
            }
            (Shape::Struct { open: true, .. }, _) if !prunes_nested(node) => {}
            // The JSON type is wrong, and validation reports that; nothing inside of the value is declared.
            (Shape::Scalar(_) | Shape::List { .. }, value @ Value::Object(_))
            | (Shape::Scalar(_) | Shape::Struct { .. } | Shape::Map { .. }, value @ Value::Array(_))
                if null_rules == NullRules::Custom =>
            {
                self.undeclared(value, path);
            }
            _ => {}
        }
    }

    fn keeps_null(&self, ty: TypeId, null_rules: NullRules) -> bool {
        let node = self.arena.node(ty);
        match null_rules {
            NullRules::BuiltIn => node.nullable,
            NullRules::Custom => {
                node.nullable || node.default.is_some() || (matches!(node.shape, Shape::Any) && prunes_nested(node))
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

/// Whether undeclared fields are kept while objects nested in them are emptied.
fn prunes_nested(node: &Node) -> bool {
    node.checks.as_ref().is_some_and(|checks| checks.prunes_nested)
}

/// Replaces a null by Go's zero value, as decoding into lists and maps of built-in types does.
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
