//! Removes the fields that an applier no longer applies, unless another manager owns them.
//! In: the merged object, all managers, and the fields that the applier owned before. Out: the pruned object.

use serde_json::Value;

use super::owned_fields::{fields_of, with_named_fields};
use super::remove::remove;
use super::type_ref::TypeRef;
use crate::field_set::FieldSet;
use crate::managed_fields::ManagedFields;

/// Removes the fields of `last` that no manager owns now. Removing a struct or an item removes everything
/// in it, so two passes restore what must stay: first the fields that any manager owns, then those that the applier never
/// owned.
pub(super) fn prune(type_ref: TypeRef<'_>, merged: &Value, managed: &ManagedFields, last: &FieldSet) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let last = with_named_fields(type_ref, last);
    let present = with_named_fields(type_ref, &fields_of(type_ref, merged));
    let present_in = |object: &Value| with_named_fields(type_ref, &fields_of(type_ref, object));

    let without_last = remove(type_ref, merged, &last);
    let owned = FieldSet::union_all(managed.entries.iter().map(|entry| &entry.fields));
    let keep = present_in(&without_last).union(&with_named_fields(type_ref, &owned));
    let without_unowned = remove(type_ref, merged, &present.difference(&keep));

    let removed = present.difference(&present_in(&without_unowned));
    remove(type_ref, merged, &removed.intersection(&last))
}
