//! Nodes: their taints, their networks, and what an update may change. Events and priority classes, which are as small.

use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, FieldPath, NameRule, check_label_key, check_label_value, check_name};

use super::super::address;
use super::super::walk::{Frame, Target, Walk};
use super::resources::check_amount;
use super::{Function, entries, field, has, list, number, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "node-resources" => resources,
        "node-update" => update,
        "pod-cidrs" => pod_cidrs,
        "taint-value" => taint_value,
        "taint-unique" => taint_unique,
        "event" => event,
        "event-type" => event_type,
        "priority-class" => priority_class,
        _ => return None,
    })
}

fn resources(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let status = field(at.value, "status");
    for name in ["capacity", "allocatable"] {
        for (resource, amount) in entries(status, name) {
            let path = FieldPath::new("status").child(name).child(resource);
            check_amount(walk, resource, amount, &path);
        }
    }
}

fn pod_cidrs(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let ranges: Vec<&str> = at.value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if ranges.len() < 2 {
        return;
    }
    let addresses: Vec<&str> = ranges.iter().map(|range| range.split('/').next().unwrap_or_default()).collect();
    let dual = ranges.iter().all(|range| address::parse_cidr(range).is_some())
        && address::is_dual_stack(&addresses) == Some(true);
    if !dual || ranges.len() > 2 {
        walk.invalid(at.place, at.value.clone(), "may specify no more than one CIDR for each IP family");
    }
}

fn taint_value(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let value = at.value.as_str().unwrap_or_default();
    let problems = check_label_value(value);
    if !problems.is_empty() {
        walk.invalid(at.place, value, problems.join(";"));
    }
}

fn taint_unique(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let key = format!("{}\n{}", text(at.value, "effect"), text(at.value, "key"));
    if !frame.is_first("taints", key) {
        let why = "taints must be unique by key and effect pair";
        walk.push(FieldError::new(FieldErrorKind::Duplicate, at.place.path(), Some(at.value.clone()), why));
    }
}

fn update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let mut seen = HashSet::new();
    for (index, address) in list(field(at.value, "status"), "addresses").iter().enumerate() {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            let path = FieldPath::new("status").child("addresses").index(index);
            walk.push(FieldError::duplicate(path, address.clone()));
        }
    }
    let (before, after) = (field(old, "spec"), field(at.value, "spec"));
    let path = FieldPath::new("spec");
    let (was, is) = (list(before, "podCIDRs"), list(after, "podCIDRs"));
    let why = "node updates may not change podCIDR except from \"\" to valid";
    if !was.is_empty() {
        let changes = if was.len() == is.len() { was.iter().zip(is).filter(|(was, is)| was != is).count() } else { 1 };
        for _ in 0..changes {
            walk.push(FieldError::forbidden(path.child("podCIDRs"), why));
        }
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(after, "providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        walk.push(FieldError::forbidden(path.child("providerID"), why));
    }
    if text(before, "externalID") != text(after, "externalID") {
        walk.push(FieldError::forbidden(path.child("externalID"), "may not be updated"));
    }
}

/// An event of either group; the names of fields are those of the older one.
fn event(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let older = has(at.value, "involvedObject") || text(at.value, "apiVersion") == "v1";
    let object = field(at.value, if older { "involvedObject" } else { "regarding" });
    let controller = if older { "reportingComponent" } else { "reportingController" };
    let message = text(at.value, if older { "message" } else { "note" });
    let namespace = text(field(at.value, "metadata"), "namespace");
    let about = text(object, "namespace");
    let is_new = has(at.value, "eventTime");
    let fits = match (about, is_new) {
        ("", false) => ["", "default"].contains(&namespace),
        ("", true) => ["default", "kube-system"].contains(&namespace),
        (about, false) => about == namespace,
        (_, true) => true,
    };
    if !fits {
        let path = FieldPath::new("involvedObject").child("namespace");
        walk.push(FieldError::invalid(path, about.into(), "does not match event.namespace"));
    }
    if is_new {
        let name = text(at.value, controller);
        if name.is_empty() {
            walk.push(FieldError::required(FieldPath::new(controller), ""));
        }
        for why in check_label_key(name) {
            walk.push(FieldError::invalid(FieldPath::new(controller), name.into(), why));
        }
        for name in ["reportingInstance", "action", "reason"] {
            let value = text(at.value, name);
            if value.is_empty() {
                walk.push(FieldError::required(FieldPath::new(name), ""));
            }
            if value.len() > 128 {
                let why = "can have at most 128 characters";
                walk.push(FieldError::invalid(FieldPath::new(name), "".into(), why));
            }
        }
        if message.len() > 1024 {
            let why = "can have at most 1024 characters";
            walk.push(FieldError::invalid(FieldPath::new("message"), "".into(), why));
        }
    }
    for why in check_name(namespace, NameRule::Subdomain, false) {
        walk.push(FieldError::invalid(FieldPath::new("namespace"), namespace.into(), why));
    }
}

fn event_type(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let kind = at.value.as_str().unwrap_or_default();
    if !["Normal", "Warning"].contains(&kind) {
        walk.invalid(at.place, "", format!("has invalid value: {kind}"));
    }
}

fn priority_class(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    const SYSTEM: [(&str, i64); 2] =
        [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    let (name, value) = (text(field(at.value, "metadata"), "name"), number(at.value, "value"));
    if !name.starts_with("system-") {
        if value > 1_000_000_000 {
            let why = "maximum allowed value of a user defined priority is 1000000000";
            walk.push(FieldError::forbidden(FieldPath::new("value"), why));
        }
        return;
    }
    let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if *known != value => format!("value of {name} PriorityClass must be {known}"),
        Some(_) if field(at.value, "globalDefault") == true => {
            format!("globalDefault of {name} PriorityClass must be false")
        }
        Some(_) => return,
    };
    let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
    walk.push(FieldError::forbidden(FieldPath::new("metadata").child("name"), why));
}
