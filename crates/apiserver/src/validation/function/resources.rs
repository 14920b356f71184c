//! Resource requests and limits: their names, their amounts, and that no request exceeds its limit.

use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, FieldPath, NameRule, Quantity, check_label_key, check_name};

use super::super::place::Place;
use super::super::quantity;
use super::super::walk::{Frame, NULL, Target, Walk};
use super::{Function, entries, field, has, list, text};

const HUGE_PAGES: &str = "hugepages-";

/// Resources without a domain that something in a cluster knows.
const STANDARD: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
];

/// Resources that are counted.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "container-resources" => {
            |walk, at, frame| requirements(walk, at.value, at.place, &claim_names(frame), container_name)
        }
        "overhead" => |walk, at, _| {
            let limits = serde_json::json!({"limits": at.value});
            requirements(walk, &limits, at.place, &[], container_name);
        },
        "pod-resources" => pod_resources,
        "ephemeral-resources" => ephemeral_resources,
        _ => return None,
    })
}

pub(super) fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a resource is an extended one: not of Kubernetes itself, such as a GPU.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && check_label_key(&format!("requests.{name}")).is_empty()
}

pub(super) fn can_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// The name of any resource.
pub(super) fn check_resource(walk: &mut Walk<'_>, name: &str, path: &FieldPath) -> bool {
    let problems = check_label_key(name);
    for why in &problems {
        walk.push(FieldError::invalid(path.clone(), name.into(), why.clone()));
    }
    if !problems.is_empty() {
        return false;
    }
    let is_quota_page = is_huge_page(name) || name.starts_with("requests.hugepages-");
    let known = STANDARD.contains(&name) || name == "services.loadbalancers" || is_quota_page;
    if !name.contains('/') && !known {
        let why = "must be a standard resource type or fully qualified";
        walk.push(FieldError::invalid(path.clone(), name.into(), why));
        return false;
    }
    true
}

/// The name of a resource that a container can ask for.
pub(super) fn container_name(walk: &mut Walk<'_>, name: &str, path: &FieldPath) {
    check_resource(walk, name, path);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_page(name) {
            let why = "must be a standard resource for containers";
            walk.push(FieldError::invalid(path.clone(), name.into(), why));
        }
    } else if !is_native(name) && !is_extended(name) {
        let why = "doesn't follow extended resource name standard";
        walk.push(FieldError::invalid(path.clone(), name.into(), why));
    }
}

fn pod_name(walk: &mut Walk<'_>, name: &str, path: &FieldPath) {
    if check_resource(walk, name, path) && !["cpu", "memory"].contains(&name) && !is_huge_page(name) {
        walk.push(FieldError::not_supported(path.clone(), name.into(), ["cpu", "memory"]));
    }
}

/// The amount of a resource: not negative, and whole where the resource is counted.
pub(super) fn check_amount(walk: &mut Walk<'_>, name: &str, amount: &Value, path: &FieldPath) {
    let quantity = quantity::of(amount);
    if quantity.is_negative() {
        let why = "must be greater than or equal to 0";
        walk.push(FieldError::invalid(path.clone(), quantity::text(amount).into(), why));
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !quantity.is_integer() {
        walk.push(FieldError::invalid(path.clone(), quantity::text(amount).into(), "must be an integer"));
    }
}

fn check_huge_page(walk: &mut Walk<'_>, name: &str, amount: &Value, path: &FieldPath) {
    let size = quantity::of(&Value::String(name.trim_start_matches(HUGE_PAGES).to_owned()));
    let quantity = quantity::of(amount);
    let divisible =
        !size.is_zero() && !size.is_negative() && size.is_integer() && quantity.value() % size.value().max(1) == 0;
    if !divisible {
        let why = format!("{} is not positive integer multiple of {name}", quantity::text(amount));
        walk.push(FieldError::invalid(path.clone(), quantity::text(amount).into(), why));
    }
}

fn requirements(
    walk: &mut Walk<'_>,
    value: &Value,
    place: &Place<'_>,
    claims: &[String],
    name_rule: fn(&mut Walk<'_>, &str, &FieldPath),
) {
    if value.is_null() {
        return;
    }
    let (limits, requests) = (place.child("limits"), place.child("requests"));
    let (mut pages, mut compute) = (false, false);
    for (name, amount) in entries(value, "limits") {
        let path = limits.key(name);
        name_rule(walk, name, &path);
        check_amount(walk, name, amount, &path);
        if is_huge_page(name) {
            pages = true;
            check_huge_page(walk, name, amount, &path);
        }
        compute |= ["cpu", "memory"].contains(&name.as_str());
    }
    for (name, amount) in entries(value, "requests") {
        let path = requests.key(name);
        name_rule(walk, name, &path);
        check_amount(walk, name, amount, &path);
        let limit = field(field(value, "limits"), name);
        let asked = quantity::of(amount);
        if limit.is_null() {
            if !can_overcommit(name) {
                let why = "Limit must be set for non overcommitable resources";
                walk.push(FieldError::required(limits.clone(), why));
            }
        } else if asked != quantity::of(limit) && !can_overcommit(name) {
            let why = format!("must be equal to {name} limit of {}", quantity::text(limit));
            walk.push(FieldError::invalid(requests.clone(), quantity::text(amount).into(), why));
        } else if asked > quantity::of(limit) {
            let why = format!("must be less than or equal to {name} limit of {}", quantity::text(limit));
            walk.push(FieldError::invalid(requests.clone(), quantity::text(amount).into(), why));
        }
        if is_huge_page(name) {
            pages = true;
            check_huge_page(walk, name, amount, &path);
        }
        compute |= ["cpu", "memory"].contains(&name.as_str());
    }
    if pages && !compute {
        walk.push(FieldError::forbidden(place.path(), "HugePages require cpu or memory"));
    }
    check_claims(walk, value, &place.child("claims"), claims);
}

fn check_claims(walk: &mut Walk<'_>, value: &Value, path: &FieldPath, known: &[String]) {
    let mut seen: HashSet<String> = HashSet::new();
    for (index, claim) in list(value, "claims").iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            walk.push(FieldError::required(path, ""));
            continue;
        }
        if seen.contains(name) {
            walk.push(FieldError::duplicate(path.clone(), name.into()));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                for why in check_name(request, NameRule::Label, false) {
                    walk.push(FieldError::invalid(path.child("request"), request.into(), why));
                }
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                walk.push(FieldError::duplicate(path.clone(), key.as_str().into()));
            } else if request.is_empty() {
                let start = format!("{name}/");
                for _ in seen.iter().filter(|key| key.starts_with(&start)) {
                    walk.push(FieldError::duplicate(path.clone(), name.into()));
                }
            }
            seen.insert(key);
        }
        if !known.iter().any(|known| known == name) {
            let mut why = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if known.is_empty() {
                why.push_str(" which is empty");
            } else {
                why.push_str(": ");
                why.push_str(&known.join(", "));
            }
            walk.push(FieldError::new(FieldErrorKind::NotFound, path, Some(name.into()), why));
        }
    }
}

/// The claims of the pod around a container.
fn claim_names(frame: &Frame<'_>) -> Vec<String> {
    frame.up(2).map(|pod| claims_of(pod.value)).unwrap_or_default()
}

fn claims_of(pod: &Value) -> Vec<String> {
    let names = list(pod, "resourceClaims").iter().map(|claim| text(claim, "name").to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

fn pod_resources(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let pod = frame.value;
    if has(at.value, "claims") {
        let why = "claims may not be set for Resources at pod-level";
        walk.push(FieldError::forbidden(at.place.child("claims"), why));
    }
    requirements(walk, at.value, at.place, &claims_of(pod), pod_name);
    for (name, amount) in entries(at.value, "requests") {
        let sum = aggregate(pod, name, "requests");
        if sum > quantity::of(amount) {
            let why = format!("must be greater than or equal to aggregate container requests of {}", sum);
            walk.push(FieldError::invalid(at.place.child("requests").key(name), quantity::text(amount).into(), why));
        }
    }
    for (name, amount) in entries(at.value, "limits").filter(|(name, _)| is_huge_page(name)) {
        let sum = aggregate(pod, name, "limits");
        if sum > quantity::of(amount) {
            let why = format!("must be greater than or equal to aggregate container limits of {}", sum);
            walk.push(FieldError::invalid(at.place.child("limits").key(name), quantity::text(amount).into(), why));
        }
    }
    for (index, container) in list(pod, "containers").iter().enumerate() {
        for (name, limit) in entries(field(container, "resources"), "limits") {
            let most = field(field(at.value, "limits"), name);
            if !most.is_null() && quantity::of(limit) > quantity::of(most) {
                let path = at.place.child("containers").index(index).key(name).child("limits");
                let why = format!("must be less than or equal to pod limits of {}", quantity::text(most));
                walk.push(FieldError::invalid(path, quantity::text(limit).into(), why));
            }
        }
    }
}

/// What the containers of a pod need at most at one time: init containers run one after the other, sidecars stay.
fn aggregate(pod: &Value, name: &str, kind: &str) -> Quantity {
    let amount = |container: &Value| {
        let amount = field(container, "resources").get(kind).and_then(|amounts| amounts.get(name));
        quantity::of(amount.unwrap_or(&NULL))
    };
    let zero = quantity::of(&NULL);
    let mut sum = list(pod, "containers").iter().fold(zero, |sum, container| sum.plus(amount(container)));
    let (mut sidecars, mut most) = (zero, zero);
    for container in list(pod, "initContainers") {
        let mut needed = amount(container);
        if text(container, "restartPolicy") == "Always" {
            sum = sum.plus(needed);
            sidecars = sidecars.plus(needed);
            needed = sidecars;
        } else {
            needed = needed.plus(sidecars);
        }
        most = most.max(needed);
    }
    sum.max(most)
}

/// An ephemeral container has no resources of its own.
fn ephemeral_resources(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let resources = field(at.value, "resources");
    let is_set = |name: &&str| match field(resources, name) {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if ["limits", "requests", "claims"].iter().any(is_set) {
        let why = "cannot be set for an Ephemeral Container";
        walk.push(FieldError::forbidden(at.place.child("resources"), why));
    }
}
