//! PodResizeValidator: a pod that has a node is resized only to what the node could give it if it were alone there.

use serde_json::{Value, json};

use konverge_core::{ResourceList, Status, pod_requests, resource_list};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::meta;
use crate::subresource::Subresource;

const NODES: lookup::Kind = ("", "nodes");

pub(super) struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.subresource == Subresource::Resize
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(check(attributes, pod))
    }
}

fn check(attributes: &Attributes<'_>, pod: &Value) -> Result<(), Status> {
    let Some(name) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return Ok(()) };
    // The generation grows with every change of the spec.
    let generation = |pod: &Value| meta::of(pod).get("generation").cloned();
    if attributes.old.is_some_and(|old| generation(old) == generation(pod)) {
        return Ok(());
    }
    let Some((_, node)) = lookup::get::<Value>(attributes.server, NODES, None, name)? else {
        return Err(attributes.forbidden(format!("node {name:?} not found")));
    };
    match refusal(&node, name, pod) {
        None => Ok(()),
        Some((why, reason)) => Err(attributes.forbidden(why).with_cause(reason, "", "")),
    }
}

/// Why a node cannot give a pod what it asks for, and the reason in one word.
fn refusal(node: &Value, name: &str, pod: &Value) -> Option<(String, &'static str)> {
    if let Some(system) = node["metadata"]["labels"]["kubernetes.io/os"].as_str().filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return Some((why, "UnsupportedPlatform"));
    }
    let allocatable = resource_list(&node["status"]["allocatable"]);
    let requests = pod_requests(&json!({"spec": pod["spec"]}));
    let amount = |list: &ResourceList, name: &str| list.get(name).copied().unwrap_or_default();
    let mut missing = Vec::new();
    let (requested, most) = (amount(&requests, "cpu"), amount(&allocatable, "cpu"));
    if requested > most {
        missing.push(format!("cpu, requested: {}, allocatable: {}", requested.milli_value(), most.milli_value()));
    }
    let (requested, most) = (amount(&requests, "memory"), amount(&allocatable, "memory"));
    if requested > most {
        missing.push(format!("memory, requested: {}, allocatable: {}", requested.value(), most.value()));
    }
    let why = format!("node didn't have enough allocatable resources: {}", missing.join("; "));
    (!missing.is_empty()).then_some((why, "NodeCapacity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gives_what_it_has() {
        #[track_caller]
        fn check(labels: Value, requests: Value, expect: Option<&str>) {
            let allocatable = json!({"cpu": "4", "memory": "1Gi"});
            let node = json!({"metadata": {"labels": labels}, "status": {"allocatable": allocatable}});
            let pod = json!({"spec": {"containers": [{"resources": {"requests": requests}}]}});
            assert_eq!(refusal(&node, "n", &pod).as_ref().map(|(why, _)| why.as_str()), expect);
        }
        let (linux, windows) = (json!({"kubernetes.io/os": "linux"}), json!({"kubernetes.io/os": "windows"}));
        check(json!({}), json!({"cpu": "4", "memory": "1Gi"}), None);
        check(
            linux,
            json!({"cpu": "4001m", "memory": "2Gi"}),
            Some(
                "node didn't have enough allocatable resources: cpu, requested: 4001, allocatable: 4000; \
                 memory, requested: 2147483648, allocatable: 1073741824",
            ),
        );
        check(windows, json!({}), Some("pod resize is only supported on linux nodes, node \"n\" is \"windows\""));
    }
}
