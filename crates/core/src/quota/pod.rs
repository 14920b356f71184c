//! What a pod uses. In: a pod. Out: its requests and limits, and the amounts that quotas limit.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::quantity::{Quantity, ResourceList, resource_list};

/// What quotas limit of pods, besides their number, huge pages and extended resources.
const COMPUTE: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// If a quota limits one of these, every container has to say how much it needs.
const TO_BE_SAID: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// What a pod may set for itself as a whole.
const POD_LEVEL: [&str; 2] = ["cpu", "memory"];

const HUGE_PAGES: &str = "hugepages-";

pub(super) fn tracks(resource: &str) -> bool {
    let requested = resource.strip_prefix("requests.");
    COMPUTE.contains(&resource)
        || resource.starts_with(HUGE_PAGES)
        || requested.is_some_and(|name| {
            name.starts_with(HUGE_PAGES) || name.starts_with("deviceclass.resource.kubernetes.io/") || !is_native(name)
        })
}

/// Whether a resource is one of Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a pod has ended: then it uses nothing any more.
pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"))
}

pub(super) fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod["status"]["qosClass"].as_str().filter(|class| !class.is_empty()) {
        return class == "BestEffort";
    }
    let spec = &pod["spec"];
    let asks = |resources: &Value| {
        ["requests", "limits"].into_iter().any(|field| {
            ["cpu", "memory"].into_iter().any(|name| {
                Quantity::of(&resources[field][name]).is_some_and(|amount| !amount.is_zero() && !amount.is_negative())
            })
        })
    };
    match spec["resources"].is_object() {
        true => !asks(&spec["resources"]),
        false => !containers(spec).any(|container| asks(&container["resources"])),
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().flat_map(|field| spec[field].as_array().into_iter().flatten())
}

pub(super) fn usage(pod: &Value) -> ResourceList {
    let overhead = resource_list(&pod["spec"]["overhead"]);
    let (mut requests, mut limits) = (pod_requests(pod), pod_limits(pod));
    add(&mut requests, &overhead);
    // The overhead counts only where there is a limit.
    for (name, amount) in &overhead {
        if let Some(limit) = limits.get_mut(name) {
            limit.add(amount);
        }
    }
    compute(&requests, &limits)
}

/// Requests and limits by the names that quotas limit.
fn compute(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut used = ResourceList::from([("pods".to_owned(), Quantity::new(1))]);
    for (name, amount) in requests {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with(HUGE_PAGES);
        let extended = !is_native(name) && !name.starts_with("requests.");
        if plain {
            used.insert(name.clone(), *amount);
        }
        if plain || extended || name.starts_with("deviceclass.resource.kubernetes.io/") {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        used.extend(limits.get(name).map(|amount| (format!("limits.{name}"), *amount)));
    }
    used
}

/// What of the limited resources the containers of a pod do not say.
pub(super) fn missing(limited: &BTreeSet<&str>, pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    let set = |field: &str| spec["resources"][field].as_object().is_some_and(|fields| !fields.is_empty());
    if set("requests") || set("limits") {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in containers(spec) {
        let list = |field: &str| resource_list(&container["resources"][field]);
        let said = compute(&list("requests"), &list("limits"));
        for name in limited.iter().filter(|name| TO_BE_SAID.contains(name) && !said.contains_key(**name)) {
            missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
        }
    }
    let texts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    (!texts.is_empty()).then(|| format!("must specify {}", texts.join("; ")))
}

/// The requests of a pod: those of all containers that run at the same time, without the overhead of its runtime class.
pub fn pod_requests(pod: &Value) -> ResourceList {
    total(pod, "requests")
}

/// The limits of a pod, likewise.
pub fn pod_limits(pod: &Value) -> ResourceList {
    total(pod, "limits")
}

fn total(pod: &Value, field: &str) -> ResourceList {
    let spec = &pod["spec"];
    let each = |name: &str| spec[name].as_array().into_iter().flatten();
    let mut sum = ResourceList::new();
    for container in each("containers") {
        add(&mut sum, &resource_list(&container["resources"][field]));
    }
    // Init containers run one after the other, but those that restart go on beside the ones after them.
    let (mut sidecars, mut initial) = (ResourceList::new(), ResourceList::new());
    for container in each("initContainers") {
        let own = resource_list(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut initial, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut initial, &together);
        }
    }
    raise(&mut sum, &initial);
    let whole = resource_list(&spec["resources"][field]);
    sum.extend(
        whole.into_iter().filter(|(name, _)| POD_LEVEL.contains(&name.as_str()) || name.starts_with(HUGE_PAGES)),
    );
    sum
}

fn add(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => drop(sum.insert(name.clone(), *amount)),
        }
    }
}

/// Takes the larger amount of each resource.
fn raise(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        match list.get_mut(name) {
            Some(there) if *there >= *amount => {}
            _ => drop(list.insert(name.clone(), *amount)),
        }
    }
}
