//! Removes a set of fields from an object, or everything else.
//! In: a type, an object, a set of fields. Out: the object without these fields, or with only these fields.

use serde_json::{Map, Value};

use super::type_ref::{Parts, TypeRef};
use crate::field_set::{FieldSet, PathElement};

/// The object without these fields. An object or list that becomes empty turns into null, as in
/// Kubernetes; to remove it as a whole, it must be in the set itself.
pub(super) fn remove(type_ref: TypeRef<'_>, value: &Value, fields: &FieldSet) -> Value {
    match type_ref.parts(value) {
        Parts::Whole => match value {
            // A value that is owned as a whole has no paths below it.
            Value::Array(_) | Value::Object(_) => Value::Null,
            scalar => scalar.clone(),
        },
        Parts::Fields => {
            let mut out = Map::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                let element = PathElement::field(name);
                if fields.member(&element) {
                    continue;
                }
                let value = match fields.below(&element) {
                    Some(below) => remove(type_ref.field(name).0, value, below),
                    None => value.clone(),
                };
                out.insert(name.clone(), value);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        Parts::Items(kind) => {
            let mut out = Vec::new();
            for item in value.as_array().into_iter().flatten() {
                let Ok(element) = type_ref.element(kind, item) else {
                    out.push(item.clone());
                    continue;
                };
                if fields.member(&element) {
                    continue;
                }
                out.push(match fields.below(&element) {
                    Some(below) => remove(type_ref.item(), item, below),
                    None => item.clone(),
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
    }
}

/// The object with nothing but these fields.
pub(super) fn extract(type_ref: TypeRef<'_>, value: &Value, fields: &FieldSet) -> Value {
    match type_ref.parts(value) {
        Parts::Whole => value.clone(),
        Parts::Fields => {
            let Some(object) = value.as_object().filter(|object| !object.is_empty()) else { return value.clone() };
            let mut out = Map::new();
            for (name, value) in object {
                let element = PathElement::field(name);
                if let Some(below) = fields.below(&element) {
                    out.insert(name.clone(), extract(type_ref.field(name).0, value, below));
                } else if fields.member(&element) {
                    out.insert(name.clone(), value.clone());
                }
            }
            Value::Object(out)
        }
        Parts::Items(kind) => {
            let Some(items) = value.as_array() else { return value.clone() };
            let kept = items.iter().filter_map(|item| {
                let element = type_ref.element(kind, item).ok()?;
                match fields.below(&element) {
                    Some(below) => Some(extract(type_ref.item(), item, below)),
                    None => fields.member(&element).then(|| item.clone()),
                }
            });
            Value::Array(kept.collect())
        }
    }
}
