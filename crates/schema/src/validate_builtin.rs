//! Validation of built-in objects that follows from their types. In: a decoded object and its type. Out: field errors for
//! missing required fields, values outside of enumerations, and duplicates in lists. Rules of a single kind are not here.

use konverge_core::{FieldError, FieldPath};
use serde_json::Value;

use crate::arena::{Arena, ListKind, Shape, TypeId};
use crate::budget::Budget;
use crate::path::Path;
use crate::validate::unique;

/// Checks the required fields and the enumerations of a whole object. `status` is not checked: controllers write it in
/// parts, and Go fills in the zero values.
pub fn check_required(arena: &Arena, root: TypeId, object: &Value) -> Vec<FieldError> {
    let mut validator = BuiltinValidator { arena, errors: Vec::new(), lists: false };
    validator.value(root, object, &Path::Root);
    validator.errors
}

/// Finds duplicates in lists that are sets or maps. This is a separate function because Kubernetes accepts duplicates in
/// some lists, such as the environment variables and the ports of a container.
pub fn check_lists(arena: &Arena, root: TypeId, object: &Value) -> Vec<FieldError> {
    let mut validator = BuiltinValidator { arena, errors: Vec::new(), lists: true };
    validator.value(root, object, &Path::Root);
    validator.errors
}

struct BuiltinValidator<'a> {
    arena: &'a Arena,
    errors: Vec<FieldError>,
    lists: bool,
}

impl BuiltinValidator<'_> {
    fn value(&mut self, id: TypeId, value: &Value, path: &Path<'_>) {
        let node = self.arena.node(id);
        if let (false, Some(checks)) = (self.lists, &node.checks) {
            // In Go a string that is not set is empty.
            let known = checks.enumeration.is_empty() || value == "" || checks.enumeration.contains(value);
            if !known {
                let texts = checks.enumeration.iter().filter_map(Value::as_str);
                self.errors.push(FieldError::not_supported(self.at(path), value.clone(), texts));
            }
        }
        match (&node.shape, value) {
            (Shape::Struct { fields, .. }, Value::Object(map)) => {
                for field in fields {
                    if matches!((path, &*field.name), (Path::Root, "status")) {
                        continue;
                    }
                    let path = Path::Field(path, &field.name);
                    match map.get(&*field.name).filter(|value| !value.is_null()) {
                        Some(value) => self.value(field.ty, value, &path),
                        None if field.required && !self.lists => {
                            self.errors.push(FieldError::required(self.at(&path), ""));
                        }
                        None => {}
                    }
                }
            }
            (Shape::Map { value: inner, .. }, Value::Object(map)) => {
                for (key, value) in map {
                    self.value(*inner, value, &Path::Key(path, key));
                }
            }
            (Shape::List { item, kind }, Value::Array(items)) => {
                if self.lists {
                    self.repeats(kind, items, path);
                }
                for (at, value) in items.iter().enumerate() {
                    self.value(*item, value, &Path::Index(path, at));
                }
            }
            _ => {}
        }
    }

    /// With one key the error stands at the key, as in `spec.volumes[1].name: Duplicate value: "data"`.
    fn repeats(&mut self, kind: &ListKind, items: &[Value], path: &Path<'_>) {
        let ListKind::Map(keys) = kind else {
            return unique::check(kind, items, path, &FieldPath::root(), Budget::unlimited(), &mut self.errors);
        };
        for index in unique::repeated_keys(items, keys) {
            let at = Path::Index(path, index);
            let error = match (&**keys, &items[index]) {
                ([key], item) if item.get(&**key).is_some() => {
                    FieldError::duplicate(self.at(&Path::Field(&at, key)), item[&**key].clone())
                }
                (_, item) => FieldError::duplicate(self.at(&at), unique::key_of(item, keys)),
            };
            self.errors.push(error);
        }
    }

    fn at(&self, path: &Path<'_>) -> FieldPath {
        path.keyed(&FieldPath::root())
    }
}

#[cfg(test)]
mod tests;
