//! AlwaysDeny: refuses every write. Off by default.

use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Plugin, Verdict, decided};

pub(super) struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn handles(&self, _: &Attributes<'_>) -> bool {
        true
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, _: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(Err(denied(attributes)))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, _: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(Err(denied(attributes)))
    }
}

fn denied(attributes: &Attributes<'_>) -> Status {
    attributes.forbidden("admission control is denying all modifications")
}
