//! Merges an applied configuration into the live object.
//! In: a type, the object, the configuration. Out: the object changed in place. It never removes anything.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::type_ref::{Parts, TypeRef};
use crate::arena::ListKind;
use crate::field_set::PathElement;

/// Sets every value of `config` in `live`, and leaves other fields as they are.
pub(super) fn merge(type_ref: TypeRef<'_>, live: &mut Value, config: &Value) {
    match type_ref.parts(config) {
        Parts::Whole => live.clone_from(config),
        Parts::Fields => {
            let given = config.as_object().filter(|fields| !fields.is_empty());
            let present = live.as_object().is_some_and(|fields| !fields.is_empty());
            match (given, present) {
                (None, true) => {}
                (None, false) => live.clone_from(config),
                (Some(given), _) => fields(type_ref, live, given),
            }
        }
        Parts::Items(kind) => {
            let given = config.as_array().filter(|items| !items.is_empty());
            let present = live.as_array_mut().filter(|items| !items.is_empty());
            match (given, present) {
                (None, Some(_)) => {}
                (_, None) => live.clone_from(config),
                (Some(given), Some(present)) => {
                    let merged = items(type_ref, kind, std::mem::take(present), given);
                    *present = merged;
                }
            }
        }
    }
}

fn fields(type_ref: TypeRef<'_>, live: &mut Value, given: &Map<String, Value>) {
    if !live.is_object() {
        *live = Value::Object(Map::new());
    }
    let Value::Object(live) = live else { return };
    for (name, config) in given {
        match live.get_mut(name) {
            Some(live) => merge(type_ref.field(name).0, live, config),
            None => {
                live.insert(name.clone(), config.clone());
            }
        }
    }
}

/// An item of the live list, until it is taken. It has no element if it lacks the key of the list.
struct LiveItem {
    element: Option<PathElement>,
    value: Option<Value>,
}

/// Merges two lists item by item. Items of the configuration keep their order among themselves, and so do items that are
/// only in the live list. Items in both lists align the two orders.
fn items(type_ref: TypeRef<'_>, kind: &ListKind, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let length = live.len().max(config.len());
    let mut live: Vec<LiveItem> = live
        .into_iter()
        .map(|value| LiveItem { element: type_ref.element(kind, &value).ok(), value: Some(value) })
        .collect();
    let config: Vec<(PathElement, &Value)> =
        config.iter().filter_map(|item| Some((type_ref.element(kind, item).ok()?, item))).collect();

    let in_config: BTreeMap<&PathElement, usize> =
        config.iter().enumerate().map(|(at, (element, _))| (element, at)).collect();
    // The live item that each item of the configuration merges with: none if the live list has duplicates of it.
    let mut partner: Vec<Option<usize>> = vec![None; config.len()];
    let mut shared = vec![false; config.len()];
    // The item of the configuration with the same element as each live item.
    let mut belongs: Vec<Option<usize>> = Vec::with_capacity(live.len());
    for (at, item) in live.iter().enumerate() {
        let found = item.element.as_ref().and_then(|element| in_config.get(element)).copied();
        if let Some(found) = found {
            partner[found] = if shared[found] { None } else { Some(at) };
            shared[found] = true;
        }
        belongs.push(found);
    }

    let mut out = Vec::with_capacity(length);
    let mut next_shared = (0..config.len()).filter(|at| shared[*at]).peekable();
    let mut done = vec![false; config.len()];
    let (mut l, mut r) = (0, 0);
    let take = |r: usize, live: &mut Vec<LiveItem>| {
        let given = config[r].1;
        match partner[r].and_then(|at| live[at].value.take()) {
            Some(mut value) => {
                merge(type_ref.item(), &mut value, given);
                value
            }
            None => given.clone(),
        }
    };
    while l < live.len() || r < config.len() {
        if l < live.len() && r < config.len() {
            if belongs[l] == Some(r) {
                out.push(take(r, &mut live));
                done[r] = true;
                next_shared.next();
                l += 1;
                r += 1;
                continue;
            }
            // In both lists, but the configuration has another shared item first: this one follows in the configuration's order.
            if belongs[l].is_some() && next_shared.peek().is_some_and(|next| belongs[l] != Some(*next)) {
                l += 1;
                continue;
            }
        }
        if l < live.len() {
            match belongs[l] {
                None => {
                    out.extend(live[l].value.take());
                    l += 1;
                    continue;
                }
                Some(at) if done[at] => l += 1,
                Some(_) => {}
            }
        }
        if r < config.len() {
            out.push(take(r, &mut live));
            done[r] = true;
            if next_shared.peek() == Some(&r) {
                next_shared.next();
            }
            r += 1;
        }
    }
    out
}
