//! Volume mounts and devices of a container: each names a volume of its pod, and no path is used twice.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use konverge_core::{FieldError, FieldErrorKind};

use super::super::format;
use super::super::walk::{Frame, Target, Walk};
use super::{Function, has, list, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "volume-mounts" => volume_mounts,
        "volume-devices" => volume_devices,
        _ => return None,
    })
}

/// Names and paths, as a cluster collects them: the last entry of a name counts.
fn paths<'v>(items: &'v [Value], path: &str) -> HashMap<&'v str, &'v str> {
    items.iter().map(|item| (text(item, "name"), item.get(path).and_then(Value::as_str).unwrap_or_default())).collect()
}

fn not_found(walk: &mut Walk<'_>, path: konverge_core::FieldPath, name: &str) {
    walk.push(FieldError::new(FieldErrorKind::NotFound, path, Some(name.into()), ""));
}

/// Whether the pod has a volume of this name, or the StatefulSet around it a template for one.
fn is_volume(frame: &Frame<'_>, name: &str) -> bool {
    frame.knows("volumes", name) || frame.knows("templates", name)
}

fn check_path(walk: &mut Walk<'_>, at: Target<'_>, name: &str, value: &str) {
    // The path of the list, without the index, in a cluster as well.
    for why in format::named("relative-path").map(|check| check(value)).unwrap_or_default() {
        walk.push(FieldError::invalid(at.place.child(name), value.into(), why));
    }
}

fn volume_mounts(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let container = frame.value;
    let devices = paths(list(container, "volumeDevices"), "devicePath");
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let privileged =
        container.get("securityContext").is_some_and(|context| context.get("privileged") == Some(&true.into()));
    let mut seen = HashSet::new();
    for (index, mount) in at.value.as_array().into_iter().flatten().enumerate() {
        if !walk.budget.spend(1) {
            return;
        }
        let path = at.place.path().index(index);
        let (name, mount_path) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            walk.push(FieldError::required(path.child("name"), ""));
        }
        if !is_volume(frame, name) {
            not_found(walk, path.child("name"), name);
        }
        if mount_path.is_empty() {
            walk.push(FieldError::required(path.child("mountPath"), ""));
        }
        let mut fail = |field: &str, value: &str, why: &str| {
            walk.push(FieldError::invalid(path.child(field), value.into(), why));
        };
        if !seen.insert(mount_path) {
            fail("mountPath", mount_path, "must be unique");
        }
        if devices.contains_key(name) {
            fail("name", name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(mount_path) {
            fail("mountPath", mount_path, "must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        if !expression.is_empty() && !sub_path.is_empty() {
            check_path(walk, at, "subPath", sub_path);
            let why = "subPathExpr and subPath are mutually exclusive";
            walk.push(FieldError::invalid(path.child("subPathExpr"), expression.into(), why));
        } else if !sub_path.is_empty() {
            check_path(walk, at, "subPath", sub_path);
        }
        if !expression.is_empty() {
            check_path(walk, at, "subPathExpr", expression);
        }
        check_propagation(walk, at, mount, privileged);
        check_recursion(walk, at, mount);
    }
}

fn check_propagation(walk: &mut Walk<'_>, at: Target<'_>, mount: &Value, privileged: bool) {
    if !has(mount, "mountPropagation") {
        return;
    }
    let (path, mode) = (at.place.child("mountPropagation"), text(mount, "mountPropagation"));
    let known = ["Bidirectional", "HostToContainer", "None"];
    if !known.contains(&mode) {
        walk.push(FieldError::not_supported(path.clone(), mode.into(), known));
    }
    if mode == "Bidirectional" && !privileged {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        walk.push(FieldError::forbidden(path, why));
    }
}

fn check_recursion(walk: &mut Walk<'_>, at: Target<'_>, mount: &Value) {
    if !has(mount, "recursiveReadOnly") {
        return;
    }
    let path = at.place.child("recursiveReadOnly");
    match text(mount, "recursiveReadOnly") {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if mount.get("readOnly") != Some(&true.into()) {
                walk.push(FieldError::forbidden(path.clone(), "may only be specified when readOnly is true"));
            }
            if !matches!(text(mount, "mountPropagation"), "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                walk.push(FieldError::forbidden(path, why));
            }
        }
        other => {
            walk.push(FieldError::not_supported(path, other.into(), ["Disabled", "Enabled", "IfPossible"]));
        }
    }
}

fn volume_devices(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let mounts = paths(list(frame.value, "volumeMounts"), "mountPath");
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let volumes = frame.up(2).map(|pod| list(pod.value, "volumes")).unwrap_or_default();
    let claims: HashSet<&str> = volumes
        .iter()
        .filter(|volume| has(volume, "persistentVolumeClaim") || has(volume, "ephemeral"))
        .map(|volume| text(volume, "name"))
        .collect();
    let (mut names, mut seen) = (HashSet::new(), HashSet::new());
    for (index, device) in at.value.as_array().into_iter().flatten().enumerate() {
        if !walk.budget.spend(1) {
            return;
        }
        let path = at.place.path().index(index);
        let (name, device_path) = (text(device, "name"), text(device, "devicePath"));
        let known = is_volume(frame, name);
        let is_claim = claims.contains(name) || frame.knows("templates", name);
        if name.is_empty() {
            walk.push(FieldError::required(path.child("name"), ""));
        }
        let invalid = |walk: &mut Walk<'_>, field: &str, value: &str, why: &str| {
            walk.push(FieldError::invalid(path.child(field), value.into(), why));
        };
        if names.contains(name) {
            invalid(walk, "name", name, "must be unique");
        }
        if known && !is_claim {
            let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            invalid(walk, "name", name, why);
        }
        if !known {
            not_found(walk, path.child("name"), name);
        }
        if device_path.is_empty() {
            walk.push(FieldError::required(path.child("devicePath"), ""));
        }
        if seen.contains(device_path) {
            invalid(walk, "devicePath", device_path, "must be unique");
        }
        if device_path.split('/').any(|part| part == "..") {
            invalid(walk, "devicePath", device_path, "can not contain backsteps ('..')");
        } else {
            seen.insert(device_path);
        }
        if mounts.contains_key(name) {
            invalid(walk, "name", name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(device_path) {
            invalid(walk, "devicePath", device_path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
