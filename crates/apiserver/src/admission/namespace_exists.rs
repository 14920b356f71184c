//! NamespaceExists: nothing is written or deleted in a namespace that does not exist. Off by default, because
//! NamespaceLifecycle does the same for what is created.

use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Plugin, Verdict, decided};
use crate::namespace;

pub(super) struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.namespace.is_some()
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, _: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(check(attributes))
    }
}

fn check(attributes: &Attributes<'_>) -> Result<(), Status> {
    let Some(name) = attributes.namespace else { return Ok(()) };
    match namespace::find(attributes.server, name)? {
        Some(_) => Ok(()),
        None => Err(Status::not_found("", "namespaces", name)),
    }
}
