//! The changes between two versions of an object, as sets of fields.
//! In: a type and two values. Out: the paths added, modified and removed; a path is in one of them only.

use serde_json::{Map, Value};

use super::owned_fields::{paths_of, sorted_items};
use super::type_ref::{Parts, TypeRef};
use crate::arena::ListKind;
use crate::field_set::{Entry, FieldSet, PathElement, equal_values};

/// The difference between two versions of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only in the new object.
    pub added: FieldSet,
    /// In both objects, with different values.
    pub modified: FieldSet,
    /// Only in the old object.
    pub removed: FieldSet,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The changes outside of these fields and everything below them.
    pub(super) fn without(mut self, fields: &FieldSet) -> Self {
        [&mut self.added, &mut self.modified, &mut self.removed]
            .into_iter()
            .for_each(|set| set.remove_all_below(fields));
        self
    }

    /// The changes without these very paths.
    pub(super) fn except(mut self, paths: &FieldSet) -> Self {
        [&mut self.added, &mut self.modified, &mut self.removed].into_iter().for_each(|set| set.remove_all(paths));
        self
    }
}

/// What `new` changes in `old`.
pub(super) fn compare(type_ref: TypeRef<'_>, old: &Value, new: &Value) -> Changes {
    let mut below = ChangedEntries::default();
    walk(type_ref, old, new, &mut below);
    below.finish()
}

/// The entries of the three sets at one level of the tree, in any order.
#[derive(Default)]
struct ChangedEntries {
    added: Vec<Entry>,
    modified: Vec<Entry>,
    removed: Vec<Entry>,
}

impl ChangedEntries {
    fn finish(self) -> Changes {
        Changes {
            added: FieldSet::from_entries(self.added),
            modified: FieldSet::from_entries(self.modified),
            removed: FieldSet::from_entries(self.removed),
        }
    }

    /// Compares one part and records it under its path element.
    fn visit(
        &mut self,
        type_ref: TypeRef<'_>,
        element: impl Fn() -> PathElement,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        match (old, new) {
            (Some(old), Some(new)) => {
                let mut below = ChangedEntries::default();
                let modified = walk(type_ref, old, new, &mut below);
                self.record(element, modified, below);
            }
            (None, Some(new)) => {
                self.added.push(Entry { element: element(), member: true, children: paths_of(type_ref, new) });
            }
            (Some(old), None) => {
                self.removed.push(Entry { element: element(), member: true, children: paths_of(type_ref, old) });
            }
            (None, None) => {}
        }
    }

    fn record(&mut self, element: impl Fn() -> PathElement, modified: bool, below: ChangedEntries) {
        let push = |into: &mut Vec<Entry>, member: bool, children: Vec<Entry>| {
            if member || !children.is_empty() {
                into.push(Entry { element: element(), member, children: FieldSet::from_entries(children) });
            }
        };
        push(&mut self.added, false, below.added);
        push(&mut self.modified, modified, below.modified);
        push(&mut self.removed, false, below.removed);
    }
}

/// Records what changed below a value that is in both objects. Returns whether the value itself was modified.
fn walk(type_ref: TypeRef<'_>, old: &Value, new: &Value, below: &mut ChangedEntries) -> bool {
    let (before, after) = (type_ref.parts(old), type_ref.parts(new));
    // A value without a declared type whose JSON type changed is compared as both types.
    let first = before != after && walk_as(type_ref, before, old, new, below);
    walk_as(type_ref, after, old, new, below) || first
}

fn walk_as(type_ref: TypeRef<'_>, parts: Parts<'_>, old: &Value, new: &Value, below: &mut ChangedEntries) -> bool {
    match parts {
        Parts::Whole => return !equal_values(old, new),
        Parts::Fields => match (filled_object(old), filled_object(new)) {
            // Both are empty; one may be `{}` and the other `null`.
            (None, None) => return !equal_values(old, new),
            (before, after) => fields(type_ref, before, after, below),
        },
        Parts::Items(kind) => match (filled_list(old), filled_list(new)) {
            (None, None) => return !equal_values(old, new),
            (before, after) => items(type_ref, kind, before.unwrap_or_default(), after.unwrap_or_default(), below),
        },
    }
    false
}

fn fields(
    type_ref: TypeRef<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    below: &mut ChangedEntries,
) {
    for (name, before) in old.into_iter().flatten() {
        let after = new.and_then(|new| new.get(name));
        below.visit(type_ref.field(name).0, || PathElement::field(name), Some(before), after);
    }
    for (name, after) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            below.visit(type_ref.field(name).0, || PathElement::field(name), None, Some(after));
        }
    }
}

/// An item, and the other items with the same path element if the list has duplicates.
struct Slot<'v> {
    element: PathElement,
    item: &'v Value,
    others: Vec<&'v Value>,
}

fn slots<'v>(type_ref: TypeRef<'_>, kind: &ListKind, items: &'v [Value]) -> Vec<Slot<'v>> {
    let mut slots: Vec<Slot<'v>> = Vec::with_capacity(items.len());
    for (element, item) in sorted_items(type_ref, kind, items) {
        match slots.last_mut() {
            Some(last) if last.element == element => last.others.push(item),
            _ => slots.push(Slot { element, item, others: Vec::new() }),
        }
    }
    slots
}

fn items(type_ref: TypeRef<'_>, kind: &ListKind, old: &[Value], new: &[Value], below: &mut ChangedEntries) {
    let (old, new) = (slots(type_ref, kind, old), slots(type_ref, kind, new));
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let (before, after) = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => (old.next(), None),
            (None, Some(_)) => (None, new.next()),
            (Some(a), Some(b)) => match a.element.cmp(&b.element) {
                std::cmp::Ordering::Less => (old.next(), None),
                std::cmp::Ordering::Greater => (None, new.next()),
                std::cmp::Ordering::Equal => (old.next(), new.next()),
            },
        };
        slot(type_ref.item(), before, after, below);
    }
}

fn slot(type_ref: TypeRef<'_>, before: Option<Slot<'_>>, after: Option<Slot<'_>>, below: &mut ChangedEntries) {
    let single = |slot: &Option<Slot<'_>>| slot.as_ref().is_none_or(|slot| slot.others.is_empty());
    let marker = |element: PathElement| Entry { element, member: true, children: FieldSet::default() };
    let (old, new) = (before.as_ref().map(|slot| slot.item), after.as_ref().map(|slot| slot.item));
    match (single(&before), single(&after)) {
        (true, true) => {
            let Some(Slot { element, .. }) = before.as_ref().or(after.as_ref()) else { return };
            below.visit(type_ref, || element.clone(), old, new);
        }
        // Duplicates are owned together and compared as one value.
        (false, false) => {
            let (Some(before), Some(after)) = (before, after) else { return };
            let same_others = before.others.len() == after.others.len()
                && before.others.iter().zip(&after.others).all(|(a, b)| equal_values(a, b));
            if !same_others || !equal_values(before.item, after.item) {
                below.modified.push(marker(before.element));
            }
        }
        (false, true) => {
            if let Some(Slot { element, item, .. }) = after {
                below.visit(type_ref, || element.clone(), None, Some(item));
            }
            below.removed.extend(before.map(|slot| marker(slot.element)));
        }
        (true, false) => {
            if let Some(Slot { element, item, .. }) = before {
                below.visit(type_ref, || element.clone(), Some(item), None);
            }
            below.added.extend(after.map(|slot| marker(slot.element)));
        }
    }
}

fn filled_object(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|fields| !fields.is_empty())
}

fn filled_list(value: &Value) -> Option<&[Value]> {
    value.as_array().map(Vec::as_slice).filter(|items| !items.is_empty())
}
