//! What an applier stops applying goes, unless someone else owns it.
//! In: the merged object, all managers, what the applier owned before. Out: the pruned object.

use serde_json::Value;

use super::own::{fields_of, with_named_fields};
use super::remove::remove;
use super::type_ref::TypeRef;
use crate::field_set::FieldSet;
use crate::managed_fields::ManagedFields;

/// Removes the fields of `last` that no manager owns now. Taking out a struct or an item takes out all of
/// it, so two passes put back what should not have gone: first what anyone owns, then what the applier
/// never owned.
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

    let gone = present.difference(&present_in(&without_unowned));
    remove(type_ref, merged, &gone.intersection(&last))
}
