//! LimitPodHardAntiAffinityTopology: required anti-affinity may only keep pods off single nodes, so that nobody claims a whole
//! zone. Off by default.

use serde_json::Value;

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_about("", "pods") && attributes.operation != Operation::Delete
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(check(attributes, pod))
    }
}

fn check(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let required = &pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let keys = required.as_array().into_iter().flatten().map(|term| term["topologyKey"].as_str().unwrap_or_default());
    match keys.into_iter().find(|key| *key != HOSTNAME) {
        None => Ok(()),
        Some(key) => Err(attributes.forbidden(format!(
            "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
        ))),
    }
}
