//! DenyServiceExternalIPs: no service gets an external address that it does not have yet. Off by default.

use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

pub(super) struct DenyServiceExternalIps;

impl Plugin for DenyServiceExternalIps {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_about("", "services") && attributes.operation != Operation::Delete
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, service: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(check(attributes, service))
    }
}

fn check(attributes: &Attributes<'_>, service: &Value) -> Result<(), Status> {
    let addresses = |service: &Value| service["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
    let old = attributes.old.map(addresses).unwrap_or_default();
    match addresses(service).iter().all(|address| old.contains(address)) {
        true => Ok(()),
        false => Err(attributes.forbidden("Use of external IPs is denied by admission control")),
    }
}
