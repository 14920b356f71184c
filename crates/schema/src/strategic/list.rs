//! Lists under a strategic merge patch: merge by key or value, then order.
//! In: the live list, the list of the patch, an order. Out: one list, which keeps the order of the patch and, for the other
//! items, that of the live list.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::error::StrategicError;
use super::{DIRECTIVE, Patcher};
use crate::arena::TypeId;
use crate::field_set::PathElement;
use crate::go_format;

/// The type of the items of a list that is merged.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ItemKind {
    Object,
    Scalar,
}

/// Removes these scalars from a list.
pub(super) fn delete(list: &mut Vec<Value>, delete: &[Value]) {
    let delete = positions(delete, None);
    list.retain(|item| !delete.contains_key(&identity(item, None)));
}

/// The type of the items of both lists; `None` if there are no items.
pub(super) fn item_kind(old: &[Value], new: &[Value]) -> Result<Option<ItemKind>, StrategicError> {
    let mut items = old.iter().chain(new);
    let Some(first) = items.next() else { return Ok(None) };
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if items.any(|item| go_format::go_type_name(item) != go_format::go_type_name(first)) {
        let lists = Value::Array(vec![Value::Array(old.to_vec()), Value::Array(new.to_vec())]);
        let lists = go_format::plain(&lists);
        return Err(StrategicError::Type(format!("list element types are not identical: {lists}")));
    }
    Ok(Some(if first.is_object() { ItemKind::Object } else { ItemKind::Scalar }))
}

/// Merges the items of a patch into a list.
pub(super) fn merge(
    patcher: Patcher<'_>,
    item: Option<TypeId>,
    key: Option<&str>,
    old: Vec<Value>,
    new: Vec<Value>,
) -> Result<Vec<Value>, StrategicError> {
    match item_kind(&old, &new)? {
        None => Ok(old),
        Some(ItemKind::Scalar) => {
            let mut seen = BTreeSet::new();
            let mut merged: Vec<Value> = old.iter().chain(&new).cloned().collect();
            merged.retain(|value| seen.insert(identity(value, None)));
            in_order(merged, &new, &old, None)
        }
        Some(ItemKind::Object) => {
            let key =
                key.ok_or_else(|| StrategicError::Type("cannot merge lists without merge key for struct".into()))?;
            let (old, new) = directives(old, new, key)?;
            let live_order = old.clone();
            let merged = by_key(patcher, item, key, old, &new)?;
            in_order(merged, &new, &live_order, Some(key))
        }
    }
}

/// Carries out the items that are directives: `$patch: delete` and `$patch: replace`.
fn directives(mut old: Vec<Value>, new: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let mut items = Vec::with_capacity(new.len());
    let mut deleted = BTreeSet::new();
    let mut replace = false;
    for item in new {
        let Some(object) = item.as_object() else { return Err(StrategicError::expected_map(&item)) };
        match object.get(DIRECTIVE) {
            None => items.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                object.get(key).ok_or_else(|| StrategicError::no_merge_key(&item, key))?;
                deleted.insert(identity(&item, Some(key)));
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(StrategicError::Type("merging lists cannot yet be specified in the patch".into()));
            }
            Some(other) => return Err(StrategicError::unknown_directive(other, object)),
        }
    }
    old.retain(|live| live.get(key).is_none() || !deleted.contains(&identity(live, Some(key))));
    Ok(if replace { (items, Vec::new()) } else { (old, items) })
}

fn by_key(
    patcher: Patcher<'_>,
    ty: Option<TypeId>,
    key: &str,
    mut old: Vec<Value>,
    new: &[Value],
) -> Result<Vec<Value>, StrategicError> {
    // If several live items have the same key, the patch is merged into the first.
    let mut places = BTreeMap::new();
    for (at, live) in old.iter().enumerate().filter(|(_, live)| live.get(key).is_some()) {
        places.entry(identity(live, Some(key))).or_insert(at);
    }
    for item in new {
        item.get(key).ok_or_else(|| StrategicError::no_merge_key(item, key))?;
        let place = places.entry(identity(item, Some(key))).or_insert(old.len());
        match (old.get_mut(*place), item) {
            (Some(Value::Object(live)), Value::Object(item)) => {
                let merged = patcher.object(ty, std::mem::take(live), item.clone())?;
                *live = merged;
            }
            _ => old.push(item.clone()),
        }
    }
    Ok(old)
}

/// Sorts a merged list: items of `order` in that order, the other items in the order of the live list. If the live list has
/// both an ordered and another item, they keep their live order, too.
pub(super) fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    if let Some(key) = key {
        for item in merged.iter().chain(order).chain(live) {
            if !item.is_object() {
                return Err(StrategicError::expected_map(item));
            }
            item.get(key).ok_or_else(|| StrategicError::no_merge_key(item, key))?;
        }
    }
    let (order, live) = (positions(order, key), positions(live, key));
    let at = |positions: &BTreeMap<PathElement, usize>, item: &Value| positions.get(&identity(item, key)).copied();
    let (mut ordered, mut others): (Vec<_>, Vec<_>) = (merged.into_iter())
        .map(|item| (at(&order, &item), at(&live, &item), item))
        .partition(|(ordered, ..)| ordered.is_some());
    ordered.sort_by_key(|(ordered, ..)| *ordered);
    others.sort_by_key(|(_, live, _)| live.unwrap_or(usize::MAX));

    let mut out = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, here, item) in ordered {
        let before = |other: Option<usize>| other.zip(here).is_some_and(|(other, here)| other < here);
        while let Some((.., other)) = others.next_if(|(_, other, _)| before(*other)) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others.map(|(.., other)| other));
    Ok(out)
}

/// The position of the first occurrence of each item.
fn positions(list: &[Value], key: Option<&str>) -> BTreeMap<PathElement, usize> {
    let mut positions = BTreeMap::new();
    for (at, item) in list.iter().enumerate() {
        positions.entry(identity(item, key)).or_insert(at);
    }
    positions
}

/// What identifies an item, in a form that can be sorted.
fn identity(item: &Value, key: Option<&str>) -> PathElement {
    PathElement::Value(match key {
        Some(key) => item.get(key).cloned().unwrap_or_default(),
        None => item.clone(),
    })
}

/// Fails if a patch contradicts its own `$setElementOrder`, which must name all its items in the same order. Items to
/// delete may be missing there.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), StrategicError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut items = Vec::with_capacity(patch.len());
    for item in patch {
        if key.is_some() && !item.is_object() {
            return Err(StrategicError::expected_map(item));
        }
        if key.is_none() || item.get(DIRECTIVE).is_none_or(|directive| directive != "delete") {
            items.push(item);
        }
    }
    let (mut items, mut order_left) = (items.into_iter().peekable(), order.iter().peekable());
    while let (Some(item), Some(ordered)) = (items.peek(), order_left.peek()) {
        if item.get(DIRECTIVE).is_some() {
            items.next();
            continue;
        }
        if same_item(item, ordered, key)? {
            items.next();
        }
        order_left.next();
    }
    if items.peek().is_some() {
        let print = |list: &[Value]| go_format::plain(&Value::Array(list.to_vec()));
        return Err(StrategicError::Type(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            print(patch),
            print(order)
        )));
    }
    Ok(())
}

/// The live order that `$setElementOrder` is merged with: for each deleted item a new one is appended, so that a renamed
/// item comes after the items that only the live list has.
pub(super) fn live_order(old: &[Value], new: &[Value], key: Option<&str>) -> Vec<Value> {
    let Some(key) = key else { return old.to_vec() };
    let is_delete = |item: &&Value| item.get(DIRECTIVE).is_some_and(|directive| directive == "delete");
    let deleted: BTreeSet<_> = new.iter().filter(is_delete).map(|item| identity(item, Some(key))).collect();
    let mut order: Vec<Value> = old.to_vec();
    order.retain(|item| !deleted.contains(&identity(item, Some(key))));
    let known = positions(&order, Some(key));
    let added = new.iter().filter(|item| item.get(DIRECTIVE).is_none());
    let appended = added.filter(|item| !known.contains_key(&identity(item, Some(key))));
    let room = old.len() - order.len();
    order.extend(appended.take(room).cloned());
    order
}

fn same_item(a: &Value, b: &Value, key: Option<&str>) -> Result<bool, StrategicError> {
    let Some(key) = key else { return Ok(a == b) };
    if !b.is_object() {
        return Err(StrategicError::expected_map(b));
    }
    let value = |item: &Value| item.get(key).cloned().ok_or_else(|| StrategicError::no_merge_key(item, key));
    Ok(value(a)? == value(b)?)
}
