//! Strategic merge patch: a merge patch that knows which lists are merged, and by which key.
//! In: an object, a patch with its `$` directives, their type. Out: the patched object.
//! It never validates the result.

mod error;
mod list;

use std::collections::HashSet;

use serde_json::{Map, Value};

pub use error::StrategicError;
use error::{describe_type, unknown_field};

use crate::arena::{Arena, Patch, Shape, TypeId};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

type Object = Map<String, Value>;

/// Applies a strategic merge patch to an object of a published type.
pub fn strategic_merge_patch(
    arena: &Arena,
    ty: TypeId,
    original: Value,
    patch: Value,
) -> Result<Value, StrategicError> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            Patcher { arena }.object(Some(ty), original, patch).map(Value::Object)
        }
        _ => Err(StrategicError::NotAnObject),
    }
}

#[derive(Clone, Copy)]
struct Patcher<'a> {
    arena: &'a Arena,
}

impl<'a> Patcher<'a> {
    /// Merges two objects, after carrying out the directives of the patch.
    fn object(self, ty: Option<TypeId>, mut original: Object, mut patch: Object) -> Result<Object, StrategicError> {
        match patch.get(DIRECTIVE) {
            None => {}
            Some(Value::String(directive)) if directive == "replace" => {
                patch.remove(DIRECTIVE);
                return Ok(patch);
            }
            Some(Value::String(directive)) if directive == "delete" => return Ok(Object::new()),
            Some(other) => return Err(StrategicError::unknown_directive(other, &patch)),
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(ty, &mut original, &mut patch)?;
        // Deletions come first, so that they do not remove what the patch sets.
        let (deletes, fields): (Vec<_>, Vec<_>) =
            patch.into_iter().partition(|(name, _)| name.starts_with(DELETE_FROM));
        for (name, value) in deletes {
            let name = name[DELETE_FROM.len()..].strip_prefix('/').ok_or(StrategicError::DeleteListFormat)?;
            self.delete_items(ty, name, &mut original, value)?;
        }
        for (name, value) in fields {
            self.field(ty, name, &mut original, value)?;
        }
        Ok(original)
    }

    fn field(
        self,
        ty: Option<TypeId>,
        name: String,
        original: &mut Object,
        mut patch: Value,
    ) -> Result<(), StrategicError> {
        if patch.is_null() {
            original.remove(&name);
            return Ok(());
        }
        let merged = match (original.get_mut(&name), patch) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let ty = self.field_type(ty, &name)?;
                Some(Value::Object(self.object(ty, std::mem::take(old), new)?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let (item, merge) = self.list_type(ty, &name)?;
                Some(Value::Array(self.merge_list(item, merge, std::mem::take(old), new)?))
            }
            (old, new) => {
                patch = new;
                if old.is_none_or(|old| !same_kind(old, &patch)) {
                    discard_nulls(&mut patch);
                }
                without_directives(patch)
            }
        };
        match merged {
            Some(value) => original.insert(name, value),
            None => original.remove(&name),
        };
        Ok(())
    }

    /// `$deleteFromPrimitiveList/name`: removes these scalars from the list.
    fn delete_items(
        self,
        ty: Option<TypeId>,
        name: &str,
        original: &mut Object,
        delete: Value,
    ) -> Result<(), StrategicError> {
        if delete.is_null() {
            original.remove(name);
            return Ok(());
        }
        let (Some(Value::Array(old)), Value::Array(delete)) = (original.get_mut(name), delete) else { return Ok(()) };
        let (item, patch) = self.list_type(ty, name)?;
        if list::item_kind(old, &delete)? == Some(list::ItemKind::Object) {
            let items = std::mem::take(old);
            *old = list::merge(self, item, patch.and_then(merge_key), items, delete)?;
        } else {
            list::delete(old, &delete);
        }
        Ok(())
    }

    /// `$setElementOrder/name`: merges the list of that name now, and puts it in this order.
    fn ordered_lists(
        self,
        ty: Option<TypeId>,
        original: &mut Object,
        patch: &mut Object,
    ) -> Result<(), StrategicError> {
        let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let order = patch.remove(&directive).unwrap_or_default();
            let Value::Array(order) = order else { return Err(StrategicError::expected_list(&order)) };
            let name = directive[SET_ORDER.len()..].strip_prefix('/').ok_or(StrategicError::SetOrderFormat)?;
            let old = original.get(name).map(|list| list.as_array().ok_or(list)).transpose();
            let old = old.map_err(StrategicError::expected_list)?.cloned();
            let new = patch.get(name).map(|list| list.as_array().ok_or(list)).transpose();
            let new = new.map_err(StrategicError::expected_list)?.cloned();
            let (item, merge) = self.list_type(ty, name)?;
            let key = merge.and_then(merge_key);
            list::check_order(new.as_deref().unwrap_or_default(), &order, key)?;
            let merges = merge.is_some_and(|patch| patch.merge);
            let live = match (&old, &new) {
                (Some(old), Some(new)) if merges => list::live_order(old, new, key),
                (old, _) => old.clone().unwrap_or_default(),
            };
            let merged = match (old, new) {
                (None, None) => continue,
                (Some(old), None) => old,
                (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
                (Some(old), Some(new)) => self.merge_list(item, merge, old, new)?,
            };
            let ordered = list::in_order(merged, &order, &live, key)?;
            original.insert(name.into(), Value::Array(ordered));
            patch.remove(name);
        }
        Ok(())
    }

    /// Merges or replaces a list, as its type says.
    fn merge_list(
        self,
        item: Option<TypeId>,
        patch: Option<&Patch>,
        old: Vec<Value>,
        new: Vec<Value>,
    ) -> Result<Vec<Value>, StrategicError> {
        match patch {
            Some(patch) if patch.merge => list::merge(self, item, merge_key(patch), old, new),
            _ => Ok(new),
        }
    }

    /// The type of a field that holds an object in both the object and the patch.
    fn field_type(self, ty: Option<TypeId>, name: &str) -> Result<Option<TypeId>, StrategicError> {
        let Some(ty) = ty else { return Ok(None) };
        match &self.arena.node(ty).shape {
            Shape::Struct { open, .. } => match self.arena.field(ty, name) {
                Some(field) => Ok(Some(field)),
                None if *open => Ok(None),
                None => Err(unknown_field(self.arena, ty, name)),
            },
            Shape::Any => Ok(None),
            shape => Err(StrategicError::Type(format!(
                "merging an object in json but data type is not struct, instead is: {}",
                describe_type(shape)
            ))),
        }
    }

    /// The type of the items of a list field, and how the list merges.
    fn list_type(self, ty: Option<TypeId>, name: &str) -> Result<(Option<TypeId>, Option<&'a Patch>), StrategicError> {
        let Some(field) = self.field_type(ty, name)? else { return Ok((None, None)) };
        let node = self.arena.node(field);
        match &node.shape {
            Shape::List { item, .. } => Ok((Some(*item), node.patch.as_deref())),
            Shape::Any | Shape::Opaque => Ok((None, None)),
            _ => Err(StrategicError::Type("expected slice or array type, but got: struct".into())),
        }
    }
}

fn merge_key(patch: &Patch) -> Option<&str> {
    patch.merge_key.as_deref()
}

/// `$retainKeys`: only these fields of the object are kept, and the patch may set no others.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), StrategicError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(StrategicError::RetainKeysFormat)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let retained = |name: &str| keys.contains(name);
    let is_list = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_list(name) && !retained(name)) {
        return Err(StrategicError::RetainKeysFormat);
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// Removes the directives from a value that is new to the object: there is nothing to merge with, and an object with a
/// `$patch` directive is left out.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

/// Removes nulls from a value that is new to the object: there is nothing for them to delete.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn same_kind(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

#[cfg(test)]
mod tests;
