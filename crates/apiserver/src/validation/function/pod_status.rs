//! The status of a pod: its addresses, and containers that do not come back once they have ended.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, FieldPath};

use super::super::address;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, entries, field, list, number, pod_update, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "pod-annotations-update" => annotations_update,
        "pod-container-states" => container_states,
        "pod-addresses" => addresses,
        "pod-claim-status" => claim_status,
        "allocated-resource" => allocated_resource,
        "extended-resource-request" => extended_resource_request,
        _ => return None,
    })
}

fn annotations_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if let Some(old) = at.old {
        pod_update::annotations(walk, old, at.value);
    }
}

/// A container that has ended runs again only if its restart policy says so; an ephemeral one never does.
fn container_states(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let spec = field(old, "spec");
    let restarts_all = ["initContainers", "containers"].iter().flat_map(|name| list(spec, name)).any(|container| {
        list(container, "restartPolicyRules").iter().any(|rule| text(rule, "action") == "RestartAllContainers")
    });
    for (statuses, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        if restarts_all && containers.is_some() {
            continue;
        }
        let mut after: HashMap<&str, &Value> = HashMap::new();
        for status in list(field(at.value, "status"), statuses) {
            after.entry(text(status, "name")).or_insert(status);
        }
        let by_name: HashMap<&str, &Value> = containers
            .into_iter()
            .flat_map(|name| list(spec, name))
            .map(|container| (text(container, "name"), container))
            .collect();
        for (index, before) in list(field(old, "status"), statuses).iter().enumerate() {
            let ended = field(field(before, "state"), "terminated");
            let name = text(before, "name");
            let runs = after.get(name).is_some_and(|now| field(field(now, "state"), "terminated").is_null());
            let may = |container: &&Value| should_restart(container, spec, number(ended, "exitCode"));
            if !ended.is_null() && runs && !by_name.get(name).is_some_and(may) {
                let path = FieldPath::new("status").child(statuses).index(index).child("state");
                walk.push(FieldError::forbidden(path, "may not be transitioned to non-terminated state"));
            }
        }
    }
}

/// Whether a container starts again after it has ended with this code: its rules decide first, then its own policy, then
/// that of its pod.
fn should_restart(container: &Value, spec: &Value, code: i64) -> bool {
    let by_policy = |policy: &str| match policy {
        "OnFailure" => code != 0,
        policy => policy != "Never",
    };
    let own = text(container, "restartPolicy");
    if own.is_empty() {
        return by_policy(text(spec, "restartPolicy"));
    }
    let matches = |rule: &&Value| {
        let codes = field(rule, "exitCodes");
        let listed = list(codes, "values").iter().any(|value| value.as_i64() == Some(code));
        match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    let rule = list(container, "restartPolicyRules").iter().find(matches);
    let restarts = rule.is_some_and(|rule| ["Restart", "RestartAllContainers"].contains(&text(rule, "action")));
    restarts || by_policy(own)
}

fn addresses(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    for (name, one) in [("podIPs", ""), ("hostIPs", "hostIP")] {
        let path = FieldPath::new("status").child(name);
        let texts = |status: &Value| -> Vec<String> {
            list(status, name).iter().map(|item| text(item, "ip").to_owned()).collect()
        };
        let now = texts(at.value);
        // An address that was there before may stay, whatever it is.
        let before: HashSet<String> = at.old.map(texts).unwrap_or_default().into_iter().collect();
        if let Some(first) = now.first().filter(|first| !one.is_empty() && **first != text(at.value, one)) {
            let why = format!("must be equal to `{one}`");
            walk.push(FieldError::invalid(path.index(0).child("ip"), first.as_str().into(), why));
        }
        for (index, ip) in now.iter().enumerate().filter(|(_, ip)| !before.contains(*ip)) {
            for why in address::check_ip(ip) {
                walk.push(FieldError::invalid(path.index(index), ip.as_str().into(), why));
            }
        }
        if now.len() < 2 {
            continue;
        }
        let dual = address::is_dual_stack(&now.iter().map(String::as_str).collect::<Vec<_>>());
        if dual.is_none() {
            let bad = now.iter().position(|ip| address::parse_sloppy(ip).is_none()).unwrap_or_default();
            let why = format!("failed to check for dual stack with error:invalid IP[{bad}]: {}", now[bad]);
            walk.push(FieldError::new(FieldErrorKind::Internal, path.clone(), None, why));
        }
        if dual != Some(true) || now.len() > 2 {
            let why = "may specify no more than one IP for each IP family";
            walk.push(FieldError::invalid(path, field(at.value, name).clone(), why));
        }
    }
}

fn claim_status(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let claims = list(field(walk.object, "spec"), "resourceClaims");
    if !claims.iter().any(|claim| text(claim, "name") == at.value) {
        walk.invalid(at.place, at.value.clone(), "must match the name of an entry in `spec.resourceClaims`");
    }
}

/// A resource whose health a container's status reports is one that the container asks for.
fn allocated_resource(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    let Some(status) = frame.up(1) else { return };
    let spec = field(walk.object, "spec");
    let mut containers = ["containers", "initContainers"].iter().flat_map(|name| list(spec, name));
    let Some(container) = containers.find(|container| text(container, "name") == text(status.value, "name")) else {
        return;
    };
    let resources = field(container, "resources");
    let (found, why) = if name.starts_with("claim:") {
        let claimed = |claim: &Value| match text(claim, "request") {
            "" => format!("claim:{}", text(claim, "name")),
            request => format!("claim:{}/{request}", text(claim, "name")),
        };
        let why = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                   'claim:<claimName>' if request is empty";
        (list(resources, "claims").iter().any(|claim| claimed(claim) == name), why)
    } else {
        let found = entries(resources, "requests").any(|(resource, _)| resource == name);
        (found, "must match one of the container's resource requests")
    };
    if !found {
        walk.invalid(at.place, name, why);
    }
}

fn extended_resource_request(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let spec = field(walk.object, "spec");
    let mut containers = ["containers", "initContainers"].iter().flat_map(|name| list(spec, name));
    let name = text(at.value, "containerName");
    let Some(container) = containers.find(|container| text(container, "name") == name) else {
        let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
        return walk.push(FieldError::invalid(at.place.child("containerName"), name.into(), why));
    };
    let resource = text(at.value, "resourceName");
    if !entries(field(container, "resources"), "requests").any(|(requested, _)| requested == resource) {
        let why = "must match the extended resource name of an entry in spec.initContainers.resources.requests or \
                   spec.containers.resources.requests";
        walk.push(FieldError::invalid(at.place.child("resourceName"), resource.into(), why));
    }
}
