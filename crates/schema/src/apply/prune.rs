//! What an applier stops applying goes, unless someone else owns it.
//! In: the merged object, all managers, what the applier owned before. Out: the pruned object.

use serde_json::Value;

use super::own::{fields_of, with_named_fields};
use super::place::Place;
use super::remove::remove;
use crate::field_set::FieldSet;
use crate::managed_fields::ManagedFields;

/// Removes the fields of `last` that no manager owns now. Taking out a struct or an item takes out all of
/// it, so two passes put back what should not have gone: first what anyone owns, then what the applier
/// never owned.
pub(super) fn prune(place: Place<'_>, merged: &Value, managed: &ManagedFields, last: &FieldSet) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let last = with_named_fields(place, last);
    let present = with_named_fields(place, &fields_of(place, merged));
    let present_in = |object: &Value| with_named_fields(place, &fields_of(place, object));

    let without_last = remove(place, merged, &last);
    let owned = FieldSet::union_all(managed.entries.iter().map(|entry| &entry.fields));
    let keep = present_in(&without_last).union(&with_named_fields(place, &owned));
    let without_unowned = remove(place, merged, &present.difference(&keep));

    let gone = present.difference(&present_in(&without_unowned));
    remove(place, merged, &gone.intersection(&last))
}
