//! Cells of nodes, events and the cluster's own objects that are more than a path. In: an object. Out: text.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::cell::{at, condition, deleting, each, int, is_true, list, text};

/// `Healthy` or `Unhealthy`.
pub(super) fn component_health(component: &Value, _: Timestamp) -> Value {
    let healthy = component_condition(component);
    match healthy.map(|condition| text(condition, "status")) {
        Some("True") => "Healthy".into(),
        Some(_) => "Unhealthy".into(),
        None => "Unknown".into(),
    }
}

pub(super) fn component_message(component: &Value, _: Timestamp) -> Value {
    component_condition(component).map_or("", |condition| text(condition, "message")).into()
}

pub(super) fn component_error(component: &Value, _: Timestamp) -> Value {
    component_condition(component).map_or("", |condition| text(condition, "error")).into()
}

fn component_condition(component: &Value) -> Option<&Value> {
    list(component, "conditions").iter().find(|condition| text(condition, "type") == "Healthy")
}

/// `Ready`, `NotReady,SchedulingDisabled`, …
pub(super) fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = match condition(node, "Ready") {
        Some(condition) if text(condition, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = at(node, "spec.unschedulable").and_then(Value::as_bool) == Some(true);
    if cordoned { format!("{ready},SchedulingDisabled").into() } else { ready.into() }
}

/// The roles that labels give a node.
pub(super) fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = at(node, "metadata.labels").and_then(Value::as_object);
    let role = |(key, value): (&'_ String, &'_ Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",").into() }
}

/// The first internal address of a node.
pub(super) fn internal_ip(node: &Value, _: Timestamp) -> Value {
    node_address(node, "InternalIP")
}

/// The first external address of a node.
pub(super) fn external_ip(node: &Value, _: Timestamp) -> Value {
    node_address(node, "ExternalIP")
}

fn node_address(node: &Value, ty: &str) -> Value {
    let found = list(node, "status.addresses").iter().find(|address| text(address, "type") == ty);
    found.map_or("<none>", |address| text(address, "address")).into()
}

/// The kernel of a node, with its architecture.
pub(super) fn kernel(node: &Value, _: Timestamp) -> Value {
    let version = match text(node, "status.nodeInfo.kernelVersion") {
        "" => "<unknown>",
        version => version,
    };
    match text(node, "status.nodeInfo.architecture") {
        "" => version.into(),
        architecture => format!("{version} ({architecture})").into(),
    }
}

/// When an event was seen last. `v1` and `events.k8s.io/v1` name the same fields differently.
pub(super) fn last_seen(event: &Value, now: Timestamp) -> Value {
    let series = at(event, "series").map(|series| text(series, "lastObservedTime"));
    match (series, either(event, "lastTimestamp", "deprecatedLastTimestamp")) {
        (Some(series), _) => age::since_text(Some(series), now).into(),
        (None, "") => first_seen(event, now),
        (None, last) => age::since_text(Some(last), now).into(),
    }
}

/// When an event was seen first.
pub(super) fn first_seen(event: &Value, now: Timestamp) -> Value {
    let first = either(event, "firstTimestamp", "deprecatedFirstTimestamp");
    let first = if first.is_empty() { text(event, "eventTime") } else { first };
    age::since_text(Some(first), now).into()
}

/// How often an event was seen.
pub(super) fn event_count(event: &Value, _: Timestamp) -> Value {
    match at(event, "series") {
        Some(series) => int(series, "count").into(),
        None => int(event, "count").max(int(event, "deprecatedCount")).max(1).into(),
    }
}

/// `kind/name` of what an event is about.
pub(super) fn event_object(event: &Value, _: Timestamp) -> Value {
    let kind = either(event, "involvedObject.kind", "regarding.kind").to_lowercase();
    match either(event, "involvedObject.name", "regarding.name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

/// The part of the object an event is about.
pub(super) fn event_part(event: &Value, _: Timestamp) -> Value {
    either(event, "involvedObject.fieldPath", "regarding.fieldPath").into()
}

/// Who saw it.
pub(super) fn event_source(event: &Value, _: Timestamp) -> Value {
    let first = |paths: [&str; 4]| {
        paths.into_iter().map(|path| text(event, path)).find(|found| !found.is_empty()).unwrap_or_default()
    };
    let component =
        first(["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"]);
    match first(["source.host", "deprecatedSource.host", "reportingInstance", ""]) {
        "" => component.into(),
        instance => format!("{component}, {instance}").into(),
    }
}

/// What an event says.
pub(super) fn event_message(event: &Value, _: Timestamp) -> Value {
    either(event, "message", "note").trim().into()
}

fn either<'a>(object: &'a Value, path: &str, other: &str) -> &'a str {
    match text(object, path) {
        "" => text(object, other),
        found => found,
    }
}

/// The users a binding binds.
pub(super) fn users(binding: &Value, _: Timestamp) -> Value {
    subjects(binding, "User")
}

/// The groups a binding binds.
pub(super) fn groups(binding: &Value, _: Timestamp) -> Value {
    subjects(binding, "Group")
}

/// The service accounts a binding binds.
pub(super) fn accounts(binding: &Value, _: Timestamp) -> Value {
    subjects(binding, "ServiceAccount")
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let name = |subject: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
        _ => text(subject, "name").to_owned(),
    };
    let of_kind = list(binding, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
    of_kind.map(name).collect::<Vec<_>>().join(", ").into()
}

/// How far a CertificateSigningRequest has come.
pub(super) fn request_condition(request: &Value, _: Timestamp) -> Value {
    let has = |ty| condition(request, ty).is_some();
    let mut shown = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if !text(request, "status.certificate").is_empty() {
        shown.push_str(",Issued");
    }
    shown.into()
}

/// The lifetime a CertificateSigningRequest asks for.
pub(super) fn requested_duration(request: &Value, _: Timestamp) -> Value {
    match at(request, "spec.expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => age::human(seconds).into(),
        None => "<none>".into(),
    }
}

/// `namespace/name` of the service behind an APIService.
pub(super) fn api_service(service: &Value, _: Timestamp) -> Value {
    match at(service, "spec.service") {
        Some(reference) => format!("{}/{}", text(reference, "namespace"), text(reference, "name")).into(),
        None => "Local".into(),
    }
}

/// Whether an APIService answers, and why not.
pub(super) fn api_available(service: &Value, _: Timestamp) -> Value {
    match condition(service, "Available") {
        None => "Unknown".into(),
        Some(_) if is_true(service, "Available") => "True".into(),
        Some(condition) => format!("{} ({})", text(condition, "status"), text(condition, "reason")).into(),
    }
}

/// `apiVersion/Kind` of a policy's parameters.
pub(super) fn param_kind(policy: &Value, _: Timestamp) -> Value {
    match at(policy, "spec.paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")).into(),
        None => "<unset>".into(),
    }
}

/// `namespace/name` of a policy binding's parameters.
pub(super) fn param_ref(binding: &Value, _: Timestamp) -> Value {
    let Some(reference) = at(binding, "spec.paramRef") else { return "<unset>".into() };
    match (text(reference, "namespace"), text(reference, "name")) {
        (_, "") => at(reference, "selector").map_or_else(|| "<unset>".into(), |all| all.to_string().into()),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

/// How far a ResourceClaim has come.
pub(super) fn claim_state(claim: &Value, _: Timestamp) -> Value {
    let allocated = at(claim, "status.allocation").is_some();
    let mut states = Vec::new();
    if deleting(claim) {
        states.push("deleted");
    } else if !allocated {
        states.push("pending");
    }
    if allocated {
        states.push("allocated");
        if !each(claim, "status.reservedFor", "uid").is_empty() {
            states.push("reserved");
        }
    }
    states.join(",").into()
}

/// Whether the priority level a FlowSchema names is missing.
pub(super) fn dangling(schema: &Value, _: Timestamp) -> Value {
    condition(schema, "Dangling").map_or("?", |condition| text(condition, "status")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(cell: fn(&Value, Timestamp) -> Value, object: Value, expect: impl Into<Value>) {
        assert_eq!(cell(&object, "2024-05-01T00:00:00Z".parse().unwrap()), expect.into());
    }

    #[test]
    fn nodes() {
        let node = |status: &str, cordoned: bool| json!({"spec": {"unschedulable": cordoned}, "status": {"conditions": [{"type": "Ready", "status": status}]}});
        check(node_status, node("True", false), "Ready");
        check(node_status, node("Unknown", true), "NotReady,SchedulingDisabled");
        check(node_status, json!({}), "Unknown");
        let labels =
            json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "", "kubernetes.io/role": "edge"});
        check(node_roles, json!({"metadata": {"labels": labels}}), "edge,worker");
        check(node_roles, json!({}), "<none>");
        let addresses = json!([{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "10.0.0.1"}]);
        check(internal_ip, json!({"status": {"addresses": addresses}}), "10.0.0.1");
        check(external_ip, json!({"status": {"addresses": addresses}}), "<none>");
        check(
            kernel,
            json!({"status": {"nodeInfo": {"kernelVersion": "6.1", "architecture": "arm64"}}}),
            "6.1 (arm64)",
        );
        check(kernel, json!({}), "<unknown>");
    }

    #[test]
    fn events() {
        let old = json!({
            "firstTimestamp": "2024-04-30T23:00:00Z", "lastTimestamp": "2024-04-30T23:59:00Z", "count": 4,
            "involvedObject": {"kind": "Pod", "name": "a", "fieldPath": "spec"},
            "source": {"component": "kubelet", "host": "n1"}, "message": " hi \n",
        });
        check(last_seen, old.clone(), "60s");
        check(first_seen, old.clone(), "60m");
        check(event_count, old.clone(), 4);
        check(event_object, old.clone(), "pod/a");
        check(event_part, old.clone(), "spec");
        check(event_source, old.clone(), "kubelet, n1");
        check(event_message, old, "hi");
        let new = json!({
            "eventTime": "2024-04-30T23:50:00.000000Z", "note": "hi", "regarding": {"kind": "Node"},
            "reportingController": "sched", "reportingInstance": "s-1",
        });
        check(last_seen, new.clone(), "10m");
        check(first_seen, new.clone(), "10m");
        check(event_count, new.clone(), 1);
        check(event_object, new.clone(), "node");
        check(event_source, new.clone(), "sched, s-1");
        check(event_message, new, "hi");
        let series = json!({"series": {"count": 9, "lastObservedTime": "2024-04-30T23:59:58Z"}, "count": 1});
        check(last_seen, series.clone(), "2s");
        check(event_count, series, 9);
        check(last_seen, json!({}), "<unknown>");
    }

    #[test]
    fn policies() {
        let binding = json!({"subjects": [
            {"kind": "User", "name": "a"}, {"kind": "User", "name": "b"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
        ]});
        check(users, binding.clone(), "a, b");
        check(groups, binding.clone(), "g");
        check(accounts, binding, "n/s");
        let request = |types: &[&str], certificate: &str| {
            let conditions: Vec<Value> = types.iter().map(|ty| json!({"type": ty})).collect();
            json!({"status": {"conditions": conditions, "certificate": certificate}})
        };
        check(request_condition, request(&[], ""), "Pending");
        check(request_condition, request(&["Approved"], "c"), "Approved,Issued");
        check(request_condition, request(&["Approved", "Denied", "Failed"], ""), "Denied,Failed");
        check(requested_duration, json!({"spec": {"expirationSeconds": 86400}}), "24h");
        check(api_service, json!({}), "Local");
        let failing = json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]);
        check(api_available, json!({"status": {"conditions": failing}}), "False (MissingEndpoints)");
        check(param_kind, json!({"spec": {"paramKind": {"apiVersion": "b.io/v1", "kind": "P"}}}), "b.io/v1/P");
        check(param_ref, json!({"spec": {"paramRef": {"name": "p"}}}), "*/p");
        check(param_ref, json!({}), "<unset>");
        check(claim_state, json!({}), "pending");
        check(claim_state, json!({"status": {"allocation": {}, "reservedFor": [{"uid": "1"}]}}), "allocated,reserved");
        check(dangling, json!({}), "?");
    }
}
