//! Pods: fields that depend on the pod as a whole, and annotations that a cluster reads.

use std::collections::HashMap;

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind, FieldPath, check_label_key, check_label_value};

use super::super::format;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, field, has, list, pod_resize, pod_update, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "pod-annotations" => annotations,
        "pod-update" => pod_update::check,
        "ephemeral-containers-update" => pod_update::check_ephemeral_containers,
        "pod-resize" => pod_resize::check,
        "dns-config" => dns_config,
        "toleration" => |walk, at, _| toleration(walk, at.value, &at.place.path()),
        "host-process" => host_process,
        "volume-devices-of-user-namespaces" => volume_devices_of_user_namespaces,
        "pod-os" => os,
        "file-key-volumes" => file_key_volumes,
        "share-process-namespace" => share_process_namespace,
        "host-sysctl" => host_sysctl,
        _ => return None,
    })
}

/// Init containers, containers and ephemeral containers, each with its path, in the order of a cluster.
pub(super) fn containers<'v>(pod: &'v Value, path: &FieldPath) -> Vec<(&'v Value, FieldPath)> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.iter().flat_map(|name| {
        list(pod, name).iter().enumerate().map(|(index, container)| (container, path.child(name).index(index)))
    });
    all.collect()
}

fn annotations(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let spec = field(frame.value, "spec");
    let path = at.place.path();
    let mirror = "kubernetes.io/config.mirror";
    if has(at.value, mirror) && text(spec, "nodeName").is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        walk.push(FieldError::invalid(path.key(mirror), field(at.value, mirror).clone(), why));
    }
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    if let Some(given) = field(at.value, cost).as_str() {
        let digits = given.strip_prefix('-').unwrap_or(given);
        let plain = !digits.starts_with('0') || given == "0";
        if !plain || given.starts_with('+') || given.parse::<i32>().is_err() {
            walk.push(FieldError::invalid(path.key(cost), given.into(), "must be a 32bit integer"));
        }
    }
    for (key, value) in at.value.as_object().into_iter().flatten() {
        let profile = value.as_str().unwrap_or_default();
        let is_seccomp = key == "seccomp.security.alpha.kubernetes.io/pod"
            || key.starts_with("container.seccomp.security.alpha.kubernetes.io/");
        if is_seccomp {
            seccomp(walk, profile, &path.child(key));
        }
        if let Some(name) = key.strip_prefix("container.apparmor.security.beta.kubernetes.io/") {
            if !containers(spec, &FieldPath::root()).iter().any(|(container, _)| text(container, "name") == name) {
                walk.push(FieldError::invalid(path.key(key), name.into(), "container not found"));
            }
            let known = ["", "runtime/default", "unconfined"].contains(&profile) || profile.starts_with("localhost/");
            if !known {
                let why = format!("invalid AppArmor profile name: {profile:?}");
                walk.push(FieldError::invalid(path.key(key), profile.into(), why));
            }
        }
    }
}

fn seccomp(walk: &mut Walk<'_>, profile: &str, path: &FieldPath) {
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    let problems = match profile.strip_prefix("localhost/") {
        Some(file) => format::named("relative-path").map(|check| check(file)).unwrap_or_default(),
        None => vec!["must be a valid seccomp profile".to_owned()],
    };
    let shown = profile.strip_prefix("localhost/").unwrap_or(profile);
    for why in problems {
        walk.push(FieldError::invalid(path.clone(), shown.into(), why));
    }
}

fn dns_config(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let path = at.place.path();
    let servers = list(at.value, "nameservers");
    if text(frame.value, "dnsPolicy") == "None" {
        if at.value.is_null() {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            return walk.push(FieldError::required(path, why));
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return walk.push(FieldError::required(path.child("nameservers"), why));
        }
    }
    if servers.len() > 3 {
        let shown = field(at.value, "nameservers").clone();
        walk.push(FieldError::invalid(path.child("nameservers"), shown, "must not have more than 3 nameservers"));
    }
    let check = |walk: &mut Walk<'_>, format: &str, name: &str| {
        let Some(check) = format::named(format) else { return };
        for (index, text) in list(at.value, name).iter().filter_map(Value::as_str).enumerate() {
            let shown = if name == "searches" { text.strip_suffix('.').unwrap_or(text) } else { text };
            for why in check(text) {
                walk.push(FieldError::invalid(path.child(name).index(index), shown.into(), why));
            }
        }
    };
    check(walk, "ip", "nameservers");
    let searches = list(at.value, "searches");
    let shown = field(at.value, "searches");
    if searches.len() > 32 {
        let why = "must not have more than 32 search paths";
        walk.push(FieldError::invalid(path.child("searches"), shown.clone(), why));
    }
    let length: usize = searches.iter().filter_map(Value::as_str).map(|search| search.len() + 1).sum();
    if length > 2049 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        walk.push(FieldError::invalid(path.child("searches"), shown.clone(), why));
    }
    check(walk, "dns-search", "searches");
    for (index, option) in list(at.value, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            walk.push(FieldError::required(path.child("options").index(index), "must not be empty"));
        }
    }
}

pub(super) fn toleration(walk: &mut Walk<'_>, toleration: &Value, path: &FieldPath) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let mut invalid = |name: &str, shown: &str, why: String| {
        walk.push(FieldError::invalid(path.child(name), shown.into(), why));
    };
    if key.is_empty() {
        if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            invalid("operator", operator, why.to_owned());
        }
    } else {
        check_label_key(key).into_iter().for_each(|why| invalid("key", key, why));
    }
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        invalid("effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set".to_owned());
    }
    let operators = ["Equal", "Exists", "Lt", "Gt"];
    match operator {
        "Equal" | "" => {
            let problems = check_label_value(value);
            if !problems.is_empty() {
                invalid("operator", value, problems.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                invalid("operator", value, "value must be empty when `operator` is 'Exists'".to_owned());
            }
        }
        "Lt" | "Gt" => walk.push(FieldError::not_supported(path.child("operator"), operator.into(), operators)),
        other => {
            walk.push(FieldError::not_supported(path.child("operator"), other.into(), ["Equal", "Exists"]));
        }
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        walk.push(FieldError::not_supported(path.child("effect"), effect.into(), effects));
    }
}

fn host_process(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let flag = |holder: &Value| {
        let options = field(field(holder, "securityContext"), "windowsOptions");
        field(options, "hostProcess").as_bool()
    };
    let pod = flag(at.value);
    let path = at.place.path();
    let all = containers(at.value, &path);
    let mut count = 0;
    for (container, path) in &all {
        let own = flag(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let path = path.child("securityContext").child("windowsOptions").child("hostProcess");
            let why = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            walk.push(FieldError::invalid(path, own.into(), why));
        }
        count += usize::from(own.or(pod) == Some(true));
    }
    if count == 0 {
        return;
    }
    if count != all.len() {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        walk.push(FieldError::invalid(path.clone(), "".into(), why));
    }
    if field(at.value, "hostNetwork") != true {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        walk.push(FieldError::invalid(path.child("hostNetwork"), false.into(), why));
    }
}

fn volume_devices_of_user_namespaces(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    for (container, path) in containers(at.value, &at.place.path()) {
        if !list(container, "volumeDevices").is_empty() {
            walk.push(FieldError::forbidden(path.child("volumeDevices"), "when `hostUsers` is false"));
        }
    }
}

fn os(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let spec = frame.value;
    let path = frame.place.path();
    match text(at.value, "name") {
        "" => walk.push(FieldError::required(at.place.child("name"), "")),
        "linux" => linux(walk, spec, &path),
        "windows" => windows(walk, spec, &path),
        other => walk.push(FieldError::not_supported(at.place.path(), other.into(), ["linux", "windows"])),
    }
}

fn linux(walk: &mut Walk<'_>, spec: &Value, path: &FieldPath) {
    let why = "windows options cannot be set for a linux pod";
    let holders = std::iter::once((spec, path.clone())).chain(containers(spec, path));
    for (holder, path) in holders {
        if has(field(holder, "securityContext"), "windowsOptions") {
            walk.push(FieldError::forbidden(path.child("securityContext").child("windowsOptions"), why));
        }
    }
}

fn windows(walk: &mut Walk<'_>, spec: &Value, path: &FieldPath) {
    const POD: [(&str, bool); 15] = [
        ("appArmorProfile", true),
        ("seLinuxOptions", true),
        ("hostUsers", false),
        ("hostPID", false),
        ("hostIPC", false),
        ("seccompProfile", true),
        ("fsGroup", true),
        ("fsGroupChangePolicy", true),
        ("sysctls", true),
        ("shareProcessNamespace", false),
        ("runAsUser", true),
        ("runAsGroup", true),
        ("supplementalGroups", true),
        ("supplementalGroupsPolicy", true),
        ("seLinuxChangePolicy", true),
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let why = "cannot be set for a windows pod";
    let is_set = |value: &Value, name: &str| match (name, value) {
        ("hostPID" | "hostIPC", value) => value == true,
        (_, Value::Array(items)) => !items.is_empty(),
        (_, value) => !value.is_null(),
    };
    for (name, inside) in POD {
        let (holder, path) = match inside {
            true => (field(spec, "securityContext"), path.child("securityContext")),
            false => (spec, path.clone()),
        };
        if is_set(field(holder, name), name) {
            walk.push(FieldError::forbidden(path.child(name), why));
        }
    }
    for (container, path) in containers(spec, path) {
        for name in CONTAINER.into_iter().filter(|name| has(field(container, "securityContext"), name)) {
            walk.push(FieldError::forbidden(path.child("securityContext").child(name), why));
        }
    }
}

fn file_key_volumes(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let mut volumes: Option<HashMap<&str, &Value>> = None;
    for (container, path) in containers(at.value, &at.place.path()) {
        for (index, variable) in list(container, "env").iter().enumerate() {
            let reference = field(field(variable, "valueFrom"), "fileKeyRef");
            if reference.is_null() {
                continue;
            }
            let volumes = volumes.get_or_insert_with(|| {
                list(at.value, "volumes").iter().map(|volume| (text(volume, "name"), volume)).collect()
            });
            let name = text(reference, "volumeName");
            let path = path.child("env").index(index).child("valueFrom").child("fileKeyRef").child("volumeName");
            match volumes.get(name) {
                None => walk.push(FieldError::new(FieldErrorKind::NotFound, path, Some(name.into()), "")),
                Some(volume) if !has(volume, "emptyDir") => {
                    let why = "referenced volume must be of type emptyDir";
                    walk.push(FieldError::invalid(path, name.into(), why));
                }
                Some(_) => {}
            }
        }
    }
}

fn share_process_namespace(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Some(pod) = frame.above else { return };
    if field(pod.value, "shareProcessNamespace") == true && field(pod.value, "hostPID") == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        walk.push(FieldError::invalid(at.place.child("shareProcessNamespace"), true.into(), why));
    }
}

fn host_sysctl(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let Some(pod) = frame.up(2) else { return };
    let name = at.value.as_str().unwrap_or_default().replace('/', ".");
    let is_ipc =
        ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|start| name.starts_with(start)) || name == "kernel.sem";
    if name.starts_with("net.") && field(pod.value, "hostNetwork") == true {
        walk.invalid(at.place, at.value.clone(), "may not be specified when 'hostNetwork' is true");
    } else if is_ipc && field(pod.value, "hostIPC") == true {
        walk.invalid(at.place, at.value.clone(), "may not be specified when 'hostIPC' is true");
    }
}
