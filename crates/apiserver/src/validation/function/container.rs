//! Containers: ports, environment, handlers and their references.

use std::collections::HashSet;

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, check_label_key};

use super::super::format;
use super::super::place::Place;
use super::super::quantity;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, list, number, text};

/// Resources of a container that the downward API tells.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "port-or-name" => port_or_name,
        "host-ports" => |walk, at, _| {
            let containers = at.value.as_array().map(Vec::as_slice).unwrap_or_default();
            host_ports(walk, containers, at.place);
        },
        "init-host-ports" => |walk, at, _| {
            // A cluster looks at one init container at a time, and numbers it as the first.
            if let Place::Index(list, _) = at.place {
                host_ports(walk, std::slice::from_ref(at.value), list);
            }
        },
        "host-network-ports" => host_network_ports,
        "env-source" => env_source,
        "env-from" => env_from,
        "env-field" => |walk, at, _| field_selector(walk, at, &ENV_FIELDS),
        "volume-field" => |walk, at, _| field_selector(walk, at, &VOLUME_FIELDS),
        "env-resource" => |walk, at, _| resource_selector(walk, at, false),
        "volume-resource" => |walk, at, _| resource_selector(walk, at, true),
        "sleep" => sleep,
        "resize-policy" => resize_policy,
        "target-container" => target_container,
        "escalation-capability" => escalation_capability,
        "windows-user" => windows_user,
        _ => return None,
    })
}

fn port_or_name(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if let Some(name) = at.value.as_str() {
        for why in format::named("port-name").map(|check| check(name)).unwrap_or_default() {
            walk.invalid(at.place, name, why);
        }
        return;
    }
    let port = at.value.as_i64().unwrap_or_default();
    if !(1..=65535).contains(&port) {
        walk.invalid(at.place, port, "must be between 1 and 65535, inclusive");
    }
}

fn host_ports(walk: &mut Walk<'_>, containers: &[Value], place: &Place<'_>) {
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (at, port) in list(container, "ports").iter().enumerate() {
            let host = number(port, "hostPort");
            if host == 0 {
                continue;
            }
            let key = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert(key.clone()) {
                let path = place.path().index(index).child("ports").index(at).child("hostPort");
                walk.push(FieldError::duplicate(path, key.into()));
            }
        }
    }
}

fn host_network_ports(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let is_pod = text(walk.object, "kind") == "Pod";
    for (index, container) in at.value.as_array().into_iter().flatten().enumerate() {
        for (port_index, port) in list(container, "ports").iter().enumerate() {
            let host = number(port, "hostPort");
            if (is_pod || host != 0) && host != number(port, "containerPort") {
                let path = at.place.path().index(index).child("ports").index(port_index).child("hostPort");
                let why = "must match `containerPort` when `hostNetwork` is true";
                walk.push(FieldError::invalid(path, host.into(), why));
            }
        }
    }
}

fn env_source(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let count = sources.iter().filter(|name| has(at.value, name)).count();
    let value = frame.above.map(|variable| text(variable.value, "value")).unwrap_or_default();
    if count == 0 {
        let why =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        walk.invalid(at.place, "", why);
    } else if !value.is_empty() {
        walk.invalid(at.place, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        walk.invalid(at.place, "", "may not have more than one field specified at a time");
    }
}

/// Errors stand at the list, in a cluster as well.
fn env_from(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Place::Index(list, _) = at.place else { return };
    match (has(at.value, "configMapRef"), has(at.value, "secretRef")) {
        (false, false) => walk.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
        (true, true) => walk.invalid(list, "", "may not have more than one field specified at a time"),
        _ => {}
    }
}

fn field_selector(walk: &mut Walk<'_>, at: Target<'_>, known: &[&str]) {
    let (version, path) = (text(at.value, "apiVersion"), text(at.value, "fieldPath"));
    if version.is_empty() {
        return walk.push(FieldError::required(at.place.child("apiVersion"), ""));
    }
    if path.is_empty() {
        return walk.push(FieldError::required(at.place.child("fieldPath"), ""));
    }
    let cannot = |why: String| {
        let why = format!("error converting fieldPath: {why}");
        FieldError::invalid(at.place.child("fieldPath"), path.into(), why)
    };
    if version != "v1" {
        return walk.push(cannot(format!("unsupported pod version: {version}")));
    }
    if let Some((map, key)) = path.split_once("['").and_then(|(map, rest)| Some((map, rest.strip_suffix("']")?))) {
        let problems = match map {
            "metadata.annotations" => check_label_key(&key.to_lowercase()),
            "metadata.labels" => check_label_key(key),
            _ => return walk.push(cannot(format!("field label does not support subscript: {path}"))),
        };
        let shown = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
        return problems.into_iter().for_each(|why| walk.invalid(at.place, shown.as_str(), why));
    }
    let convertible = ENV_FIELDS.contains(&path)
        || VOLUME_FIELDS.contains(&path)
        || ["spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host"].contains(&path);
    if !convertible {
        return walk.push(cannot(format!("field label not supported: {path}")));
    }
    let path = if path == "spec.host" { "spec.nodeName" } else { path };
    if !known.contains(&path) {
        let error = FieldError::not_supported(at.place.child("fieldPath"), path.into(), known.iter().copied());
        walk.push(error);
    }
}

fn resource_selector(walk: &mut Walk<'_>, at: Target<'_>, volume: bool) {
    let resource = text(at.value, "resource");
    let is_page = ["requests.hugepages-", "limits.hugepages-"].iter().any(|start| resource.starts_with(start));
    if volume && text(at.value, "containerName").is_empty() {
        walk.push(FieldError::required(at.place.child("containerName"), ""));
    } else if resource.is_empty() {
        walk.push(FieldError::required(at.place.child("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !is_page {
        walk.push(FieldError::not_supported(at.place.child("resource"), resource.into(), RESOURCES));
    }
    let divisor = field(at.value, "divisor");
    if quantity::of(divisor).is_zero() {
        return;
    }
    let divisor = quantity::text(divisor);
    let is_size =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"].contains(&divisor.as_str());
    let sizes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let why = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") if !["1m", "1"].contains(&divisor.as_str()) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_owned()
        }
        Some("memory") if !is_size => format!("only divisor's values {sizes} memory resource"),
        Some("ephemeral-storage") if !is_size => {
            format!("only divisor's values {sizes} local ephemeral storage resource")
        }
        _ if is_page && !is_size => format!("only divisor's values {sizes} hugepages resource"),
        _ => return,
    };
    walk.push(FieldError::invalid(at.place.child("divisor"), resource.into(), why));
}

fn sleep(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    // The handler, the lifecycle, the container, the pod.
    let grace = frame.up(3).map(|pod| field(pod.value, "terminationGracePeriodSeconds")).and_then(Value::as_i64);
    let seconds = number(at.value, "seconds");
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        walk.invalid(at.place, seconds, why);
    }
}

/// Errors stand at the list, in a cluster as well.
fn resize_policy(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Place::Index(list_place, index) = at.place else { return };
    let (resource, policy) = (text(at.value, "resourceName"), text(at.value, "restartPolicy"));
    let earlier = frame.above.map(|container| list(container.value, "resizePolicy")).unwrap_or_default();
    // Two resources can be resized, so a third policy repeats one of the first two.
    if earlier.iter().take((*index).min(3)).any(|policy| text(policy, "resourceName") == resource) {
        walk.push(FieldError::duplicate(at.place.path(), resource.into()));
    }
    let path = list_place.path();
    let mut check = |value: &str, known: [&str; 2]| match value {
        "" => walk.push(FieldError::required(path.clone(), "")),
        value if !known.contains(&value) => walk.push(FieldError::not_supported(path.clone(), value.into(), known)),
        _ => {}
    };
    check(resource, ["cpu", "memory"]);
    check(policy, ["NotRequired", "RestartContainer"]);
    let pod = frame.up(3).map(|pod| text(pod.value, "restartPolicy")).unwrap_or_default();
    if pod == "Never" && policy != "NotRequired" {
        let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
        walk.push(FieldError::invalid(path, policy.into(), why));
    }
}

fn target_container(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    let Some(pod) = frame.above.filter(|_| !name.is_empty()) else { return };
    let named = |kind: &&str| list(pod.value, kind).iter().any(|container| text(container, "name") == name);
    if !["containers", "initContainers"].iter().any(named) {
        walk.push(FieldError::new(FieldErrorKind::NotFound, at.place.path(), Some(name.into()), ""));
    }
}

fn escalation_capability(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    for capability in list(field(at.value, "capabilities"), "add") {
        if capability == "CAP_SYS_ADMIN" {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            walk.invalid(at.place, at.value.clone(), why);
        }
    }
}

fn windows_user(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default();
    let mut fail = |why: &str| walk.invalid(at.place, name, why);
    if name.is_empty() {
        return fail("runAsUserName cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return fail("runAsUserName cannot contain control characters");
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return fail("runAsUserName cannot contain more than one backslash"),
    };
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            fail("runAsUserName's Domain length must be under 256 characters");
        }
        let netbios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !netbios && !domain.split('.').all(is_label) {
            fail("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        fail("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        fail("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        fail("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        fail("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

/// A file of the downward API, as the table says it for volumes of their own.
pub(super) fn check_file(walk: &mut Walk<'_>, file: &Value, place: &Place<'_>) {
    let path = text(file, "path");
    if path.is_empty() {
        walk.push(FieldError::required(place.child("path"), ""));
    }
    for why in format::named("local-path").map(|check| check(path)).unwrap_or_default() {
        walk.push(FieldError::invalid(place.child("path"), path.into(), why));
    }
    let (field_ref, resource_ref) = (field(file, "fieldRef"), field(file, "resourceFieldRef"));
    if !field_ref.is_null() {
        let at = Place::Field(place, "fieldRef");
        field_selector(walk, Target { value: field_ref, old: None, place: &at }, &VOLUME_FIELDS);
        if !resource_ref.is_null() {
            walk.invalid(place, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
        }
    } else if !resource_ref.is_null() {
        let at = Place::Field(place, "resourceFieldRef");
        resource_selector(walk, Target { value: resource_ref, old: None, place: &at }, true);
    } else {
        walk.push(FieldError::required(place.path(), "one of fieldRef and resourceFieldRef is required"));
    }
    if has(file, "mode") && !(0..=0o777).contains(&number(file, "mode")) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        walk.push(FieldError::invalid(place.child("mode"), number(file, "mode").into(), why));
    }
}
