//! Finds duplicates in lists of type set or map. In: a list and what identifies its items. Out: one error for each
//! duplicated item, at its second occurrence.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use konverge_core::{FieldError, FieldPath};
use serde_json::{Map, Value};

use crate::arena::ListKind;
use crate::budget::{Budget, size};
use crate::path::Path;

/// Reports duplicates in `items`, the list at `path` below `prefix`.
pub(crate) fn check(
    kind: &ListKind,
    items: &[Value],
    path: &Path<'_>,
    prefix: &FieldPath,
    budget: &Budget,
    errors: &mut Vec<FieldError>,
) {
    let at = |index: usize| Path::Index(path, index).keyed(prefix);
    // A long path is repeated in every error. `false` ends the list.
    let mut duplicate = |index: usize, value: &Value| {
        let at = at(index);
        let paid = budget.produce(at.as_str().len() + size(value));
        if paid {
            errors.push(FieldError::duplicate(at, value.clone()));
        }
        paid
    };
    match kind {
        ListKind::Atomic => {}
        ListKind::Set => {
            repeated(items.iter()).into_iter().all(|index| duplicate(index, &items[index]));
        }
        ListKind::Map(keys) => {
            let not_an_object = items.iter().position(|item| !item.is_object() && !item.is_null());
            if let Some(index) = not_an_object {
                let complaint = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(at(index), items[index].clone(), complaint));
                return;
            }
            repeated_keys(items, keys).into_iter().all(|index| duplicate(index, &key_of(&items[index], keys)));
        }
    }
}

/// The key fields that an item has.
pub(crate) fn key_of(item: &Value, keys: &[Box<str>]) -> Value {
    let entry = |key: &str| item.get(key).map(|value| (key.to_owned(), value.clone()));
    Value::Object(keys.iter().filter_map(|key| entry(key)).collect::<Map<_, _>>())
}

/// The index of the second item of each key.
pub(crate) fn repeated_keys(items: &[Value], keys: &[Box<str>]) -> Vec<usize> {
    match keys {
        [key] => repeated(items.iter().map(|item| item.get(&**key))),
        keys => repeated(items.iter().map(|item| keys.iter().map(|key| item.get(&**key)).collect::<Vec<_>>())),
    }
}

/// Whether the list has duplicates.
pub(super) fn has_repeated(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    !items.iter().all(|item| seen.insert(item))
}

/// The index of the second occurrence of each repeated value.
fn repeated<T: Hash + Eq>(values: impl ExactSizeIterator<Item = T>) -> Vec<usize> {
    let mut found = Vec::new();
    if values.len() < 2 {
        return found;
    }
    let mut seen: HashMap<T, usize> = HashMap::with_capacity(values.len());
    for (index, value) in values.enumerate() {
        let times = seen.entry(value).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
