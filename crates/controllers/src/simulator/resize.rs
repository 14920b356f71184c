//! Resizing pods. In: a pod, what its status says that its containers have, and what the other pods on its node use. Out: what
//! each container has from now on, which containers restart for it, and why a resize has to wait. Pure.
//!
//! Nothing runs here that could use resources, so a resize that the node has room for is done at once, and the condition
//! `PodResizeInProgress` never shows. One that the node has no room for is deferred, as a kubelet defers it.

use jiff::Timestamp;
use konverge_core::{Quantity, ResourceList, pod_requests, resource_list};
use serde_json::{Value, json};

use super::kind::{Container, Node, Pod};
use super::render::{condition_of, remove_condition, set_condition};

const PENDING: &str = "PodResizePending";

/// What the containers of a pod have.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Allocation {
    /// By name, for init containers and then for containers.
    resources: Vec<(String, Value)>,
    /// The containers that restart to get it.
    pub restarts: Vec<String>,
    /// Whether anything changes now.
    pub resized: bool,
    /// Why a resize has to wait.
    pub deferred: Option<String>,
}

impl Allocation {
    /// What a container has; nothing for containers that cannot have anything.
    pub(super) fn of(&self, name: &str) -> Value {
        let found = self.resources.iter().find(|(container, _)| container == name);
        found.map(|(_, resources)| resources.clone()).unwrap_or_default()
    }
}

/// Decides what the containers of a pod have. `used` is what the other pods on the node have; it is asked only for a pod
/// that wants something else than it has.
pub(super) fn allocate(pod: &Pod, node: &Node, used: impl FnOnce() -> ResourceList) -> Allocation {
    let wanted: Vec<(String, Value)> =
        containers(pod).map(|(_, container)| (container.name.clone(), asked(container))).collect();
    let before: Vec<Option<&Value>> =
        containers(pod).map(|(list, container)| reported(pod, list, &container.name)).collect();
    let changed = |((_, wanted), before): (&(String, Value), &Option<&Value>)| before.is_some_and(|had| had != wanted);
    if !wanted.iter().zip(&before).any(changed) {
        return Allocation { resources: wanted, ..Allocation::default() };
    }
    let (has, wants) = (
        requests(pod, |list, container| current(pod, list, container)),
        requests(pod, |_, container| asked(container)),
    );
    if let Some(why) = refusal(node, &has, &wants, &used()) {
        let resources =
            containers(pod).map(|(list, container)| (container.name.clone(), current(pod, list, container)));
        return Allocation { resources: resources.collect(), deferred: Some(why), ..Allocation::default() };
    }
    let restarts = containers(pod)
        .filter(|(list, container)| {
            let (had, wants) = (current(pod, list, container), asked(container));
            container.resize_policy.iter().any(|policy| {
                let differs =
                    |kind: &str| had[kind].get(&policy.resource_name) != wants[kind].get(&policy.resource_name);
                policy.restart_policy == "RestartContainer" && (differs("requests") || differs("limits"))
            })
        })
        .map(|(_, container)| container.name.clone())
        .collect();
    Allocation { resources: wanted, restarts, resized: true, deferred: None }
}

/// What a pod has on its node: what its status says, or what it asks for as long as its status says nothing.
pub(super) fn allocated(pod: &Pod) -> ResourceList {
    requests(pod, |list, container| current(pod, list, container))
}

/// Says in the conditions of a status whether a resize waits. Returns whether this is news.
pub(super) fn set_pending(status: &mut Value, deferred: Option<&str>, generation: i64, now: Timestamp) -> bool {
    let Some(conditions) = status.get_mut("conditions") else { return false };
    let Some(why) = deferred else {
        remove_condition(conditions, PENDING);
        return false;
    };
    let news = condition_of(conditions, PENDING).is_none_or(|there| there["observedGeneration"] != generation);
    set_condition(conditions, PENDING, "True", "Deferred", why, now);
    if let Some(condition) = conditions.as_array_mut().into_iter().flatten().find(|there| there["type"] == PENDING) {
        condition["observedGeneration"] = generation.into();
    }
    news
}

/// The text of an event about a resize, as a kubelet writes it.
pub(super) fn message(pod: &Pod, what: &str, error: Option<&str>) -> String {
    let of = |list: &[Container]| -> Vec<Value> {
        list.iter().map(|container| json!({"name": container.name, "resources": asked(container)})).collect()
    };
    let mut parts = Vec::new();
    for (name, list) in [("initContainers", &pod.spec.init_containers), ("containers", &pod.spec.containers)] {
        if !list.is_empty() {
            parts.push(format!("\"{name}\":{}", Value::from(of(list))));
        }
    }
    parts.push(format!("\"generation\":{}", pod.metadata.generation));
    parts.extend(error.map(|error| format!("\"error\":{}", Value::from(error))));
    format!("Pod resize {what}: {{{}}}", parts.join(","))
}

fn containers(pod: &Pod) -> impl Iterator<Item = (&'static str, &Container)> {
    let inits = pod.spec.init_containers.iter().map(|container| ("initContainerStatuses", container));
    inits.chain(pod.spec.containers.iter().map(|container| ("containerStatuses", container)))
}

/// What a container asks for.
fn asked(container: &Container) -> Value {
    let mut asked = json!({});
    for kind in ["limits", "requests"] {
        if container.resources[kind].as_object().is_some_and(|amounts| !amounts.is_empty()) {
            asked[kind] = container.resources[kind].clone();
        }
    }
    asked
}

/// What the status says that a container has.
fn reported<'p>(pod: &'p Pod, list: &str, name: &str) -> Option<&'p Value> {
    let statuses = pod.status[list].as_array()?;
    let status = statuses.iter().find(|status| status["name"] == name)?;
    status.get("resources").filter(|resources| resources.is_object())
}

fn current(pod: &Pod, list: &str, container: &Container) -> Value {
    reported(pod, list, &container.name).cloned().unwrap_or_else(|| asked(container))
}

/// The requests of a whole pod whose containers have these resources.
fn requests(pod: &Pod, of: impl Fn(&'static str, &Container) -> Value) -> ResourceList {
    let list = |list: &'static str, containers: &[Container]| -> Vec<Value> {
        let one = |container: &Container| json!({"restartPolicy": container.restart_policy, "resources": of(list, container)});
        containers.iter().map(one).collect()
    };
    pod_requests(&json!({"spec": {
        "initContainers": list("initContainerStatuses", &pod.spec.init_containers),
        "containers": list("containerStatuses", &pod.spec.containers),
    }}))
}

/// Why a node has no room for more. What a pod gives back always fits.
fn refusal(node: &Node, has: &ResourceList, wants: &ResourceList, used: &ResourceList) -> Option<String> {
    let capacity = resource_list(&json!(node.status.allocatable));
    let amount = |list: &ResourceList, name: &str| list.get(name).copied().unwrap_or_default();
    ["cpu", "memory"].into_iter().find_map(|name| {
        let (requested, used) = (amount(wants, name), amount(used, name));
        let capacity = *capacity.get(name)?;
        if requested <= amount(has, name) || requested.plus(used) <= capacity {
            return None;
        }
        let number = |amount: Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
        let (requested, used, capacity) = (number(requested), number(used), number(capacity));
        Some(format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(asked: Value, has: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "generation": 2},
            "spec": {"containers": [{
                "name": "c", "resources": asked,
                "resizePolicy": [
                    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
                ],
            }]},
            "status": {"conditions": [], "containerStatuses": [{"name": "c", "resources": has}]},
        }))
        .unwrap()
    }

    fn requests(cpu: &str, memory: &str) -> Value {
        json!({"requests": {"cpu": cpu, "memory": memory}})
    }

    #[track_caller]
    fn check(asked: &Value, has: Value, expect: (&Value, &[&str], Option<&str>)) {
        let node: Node =
            serde_json::from_value(json!({"status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}})).unwrap();
        let used = || resource_list(&json!({"cpu": "2", "memory": "512Mi"}));
        let allocation = allocate(&pod(asked.clone(), has), &node, used);
        assert_eq!((&allocation.of("c"), allocation.deferred.as_deref()), (expect.0, expect.2));
        assert_eq!(allocation.restarts, expect.1);
    }

    #[test]
    fn a_container_gets_what_the_node_has() {
        let small = requests("1", "256Mi");
        // The first time it gets what it asks for.
        check(&small, Value::Null, (&small, &[], None));
        check(&small, small.clone(), (&small, &[], None));
        let more_cpu = requests("2", "256Mi");
        check(&more_cpu, small.clone(), (&more_cpu, &[], None));
        let more_memory = requests("1", "512Mi");
        check(&more_memory, small.clone(), (&more_memory, &["c"], None));
        let too_much = "Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000";
        check(&requests("2001m", "256Mi"), small.clone(), (&small, &[], Some(too_much)));
        let too_much =
            "Node didn't have enough resource: memory, requested: 1073741824, used: 536870912, capacity: 1073741824";
        check(&requests("1", "1Gi"), small.clone(), (&small, &[], Some(too_much)));
        // What is given back fits on every node.
        let large = requests("8", "256Mi");
        let less = requests("7", "256Mi");
        check(&less, large, (&less, &[], None));
    }

    #[test]
    fn a_deferred_resize_is_a_condition() {
        let mut status = json!({"conditions": []});
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert!(set_pending(&mut status, Some("no room"), 2, now));
        assert!(!set_pending(&mut status, Some("no room"), 2, now));
        assert_eq!(
            status["conditions"],
            json!([{
                "type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room",
                "observedGeneration": 2, "lastTransitionTime": "1970-01-12T13:46:40Z",
            }])
        );
        assert!(set_pending(&mut status, Some("no room"), 3, now));
        assert!(!set_pending(&mut status, None, 3, now));
        assert_eq!(status["conditions"], json!([]));
    }

    #[test]
    fn events_say_what_was_asked_for() {
        let pod = pod(requests("1", "1Gi"), Value::Null);
        assert_eq!(
            message(&pod, "completed", None),
            r#"Pod resize completed: {"containers":[{"name":"c","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"generation":2}"#
        );
        assert!(message(&pod, "Deferred", Some("no \"room\"")).ends_with(r#""generation":2,"error":"no \"room\""}"#));
    }
}
