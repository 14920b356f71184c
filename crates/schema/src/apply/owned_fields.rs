//! The fields that a write of an object owns, and field sets adapted to a changed type.
//! In: a type with an object or a set. Out: a set. It never changes an object.

use serde_json::Value;

use super::type_ref::{Parts, TypeRef};
use crate::arena::ListKind;
use crate::field_set::{Entry, FieldSet, PathElement};

/// Every field and item of the object that its writer owns.
pub(super) fn fields_of(type_ref: TypeRef<'_>, object: &Value) -> FieldSet {
    FieldCollector { structs: false }.below(type_ref, object)
}

/// Every path of a value, including those of structs and lists that contain others.
pub(super) fn paths_of(type_ref: TypeRef<'_>, value: &Value) -> FieldSet {
    FieldCollector { structs: true }.below(type_ref, value)
}

struct FieldCollector {
    /// Whether a struct that is implied by its fields is in the set as well.
    structs: bool,
}

impl FieldCollector {
    /// The set of the paths below this value.
    fn below(&self, type_ref: TypeRef<'_>, value: &Value) -> FieldSet {
        match (type_ref.parts(value), value) {
            (Parts::Fields, Value::Object(fields)) => {
                let mut entries = Vec::with_capacity(fields.len());
                for (name, value) in fields {
                    let (type_ref, declared) = type_ref.field(name);
                    let member = self.structs || !declared || is_owned_itself(type_ref, value);
                    entries.push(Entry {
                        element: PathElement::field(name),
                        member,
                        children: self.below(type_ref, value),
                    });
                }
                FieldSet::from_entries(entries)
            }
            (Parts::Items(kind), Value::Array(items)) => {
                let mut entries: Vec<Entry> = Vec::with_capacity(items.len());
                for (element, item) in sorted_items(type_ref, kind, items) {
                    match entries.last_mut() {
                        // Duplicates are owned together.
                        Some(last) if last.element == element => last.children = FieldSet::default(),
                        _ => entries.push(Entry { element, member: true, children: self.below(type_ref.item(), item) }),
                    }
                }
                FieldSet::from_entries(entries)
            }
            _ => FieldSet::default(),
        }
    }
}

/// The items of a list with their path elements, sorted by element.
pub(super) fn sorted_items<'v>(
    type_ref: TypeRef<'_>,
    kind: &ListKind,
    items: &'v [Value],
) -> Vec<(PathElement, &'v Value)> {
    let mut keyed: Vec<_> = items.iter().filter_map(|item| Some((type_ref.element(kind, item).ok()?, item))).collect();
    if !keyed.is_sorted_by(|(a, _), (b, _)| a <= b) {
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    keyed
}

/// Whether the path of a value is in the set: the value is owned as a whole, or has nothing below it.
fn is_owned_itself(type_ref: TypeRef<'_>, value: &Value) -> bool {
    match (type_ref.parts(value), value) {
        (Parts::Whole, _) | (_, Value::Null) => true,
        (Parts::Fields, Value::Object(fields)) => fields.is_empty(),
        _ => false,
    }
}

/// Adds every declared field on the way to a path of the set, so that a struct is removed with its last field.
pub(super) fn with_named_fields(type_ref: TypeRef<'_>, set: &FieldSet) -> FieldSet {
    let entries = set.entries().iter().map(|entry| {
        let (type_ref, named) = type_ref.step(&entry.element);
        Entry {
            element: entry.element.clone(),
            member: entry.member || (named && !entry.children.is_empty()),
            children: with_named_fields(type_ref, &entry.children),
        }
    });
    FieldSet::from_entries(entries.collect())
}

/// Adapts a set to types that have become atomic since it was recorded: ownership of fields becomes ownership of the whole
/// value. `None` if nothing changes.
pub(super) fn reconciled(type_ref: TypeRef<'_>, set: &FieldSet) -> Option<FieldSet> {
    let mut changed = false;
    let mut entries = Vec::new();
    for (at, entry) in set.entries().iter().enumerate() {
        let (type_ref, _) = type_ref.step(&entry.element);
        let children = if entry.children.is_empty() {
            None
        } else if type_ref.is_atomic() {
            Some(FieldSet::default())
        } else {
            reconciled(type_ref, &entry.children)
        };
        match children {
            Some(children) => {
                if !changed {
                    entries.extend_from_slice(&set.entries()[..at]);
                    changed = true;
                }
                let member = entry.member || children.is_empty();
                entries.push(Entry { element: entry.element.clone(), member, children });
            }
            None if changed => entries.push(entry.clone()),
            None => {}
        }
    }
    changed.then(|| FieldSet::from_entries(entries))
}
