//! What may change in a pod that exists: images, a shorter deadline, more tolerations, fewer scheduling gates.

use serde_json::Value;

use konverge_core::{FieldError, FieldPath};

use super::super::walk::{Frame, Target, Walk, same};
use super::pod::toleration;
use super::{copy, field, has, list, text};

const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn check(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    annotations(walk, field(old, "metadata"), field(at.value, "metadata"));
    let (old, new) = (field(old, "spec"), field(at.value, "spec"));
    let path = FieldPath::new("spec");
    for name in ["containers", "initContainers"] {
        if !containers(walk, list(old, name), list(new, name), &path.child(name)) {
            return;
        }
    }
    if !deadline(walk, old, new, &path.child("activeDeadlineSeconds")) {
        return;
    }
    tolerations(walk, old, new, &path.child("tolerations"));
    gates(walk, list(old, "schedulingGates"), list(new, "schedulingGates"), &path.child("schedulingGates"));
    fixed(walk, old, new, &path);
}

/// Ephemeral containers are added; those that are there stay as they are.
pub(super) fn check_ephemeral_containers(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    annotations(walk, field(old, "metadata"), field(at.value, "metadata"));
    if has(field(field(old, "metadata"), "annotations"), MIRROR) {
        let why = "static pods do not support ephemeral containers";
        return walk.push(FieldError::forbidden(FieldPath::root(), why));
    }
    let containers = |pod| list(field(pod, "spec"), "ephemeralContainers");
    let path = FieldPath::new("spec").child("ephemeralContainers");
    let by_name: std::collections::HashMap<&str, &Value> =
        containers(at.value).iter().map(|container| (text(container, "name"), container)).collect();
    for before in containers(old) {
        let name = text(before, "name");
        let why = match by_name.get(name) {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            // A cluster adds the difference of its own structs here.
            Some(after) if !same(before, after) => {
                format!("existing ephemeral containers {name:?} may not be changed\n")
            }
            Some(_) => continue,
        };
        walk.push(FieldError::forbidden(path.clone(), why));
    }
}

pub(super) fn annotations(walk: &mut Walk<'_>, old: &Value, new: &Value) {
    let (old, new) = (field(old, "annotations"), field(new, "annotations"));
    let path = FieldPath::new("metadata").child("annotations");
    for (key, value) in old.as_object().into_iter().flatten() {
        if new.get(key) == Some(value) {
            continue;
        }
        if key.starts_with(APPARMOR) {
            walk.push(FieldError::forbidden(path.key(key), "may not remove or update AppArmor annotations"));
        }
        if key == MIRROR {
            walk.push(FieldError::forbidden(path.key(key), "may not remove or update mirror pod annotation"));
        }
    }
    for (key, _) in new.as_object().into_iter().flatten().filter(|(key, _)| old.get(*key).is_none()) {
        if key.starts_with(APPARMOR) {
            walk.push(FieldError::forbidden(path.key(key), "may not add AppArmor annotations"));
        }
        if key == MIRROR {
            walk.push(FieldError::forbidden(path.key(key), "may not add mirror pod annotation"));
        }
    }
}

fn containers(walk: &mut Walk<'_>, old: &[Value], new: &[Value], path: &FieldPath) -> bool {
    if old.len() != new.len() {
        walk.push(FieldError::forbidden(path.clone(), "pod updates may not add or remove containers"));
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        let image = text(container, "image");
        if image.is_empty() {
            walk.push(FieldError::required(path.index(index).child("image"), ""));
        }
        if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            walk.push(FieldError::invalid(path.index(index).child("image"), image.into(), why));
        }
    }
    true
}

/// A deadline only comes closer. `false` says that nothing else is checked.
fn deadline(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) -> bool {
    let seconds = |spec: &Value| field(spec, "activeDeadlineSeconds").as_i64();
    match (seconds(old), seconds(new)) {
        (_, Some(new)) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let why = "must be between 0 and 2147483647, inclusive";
            walk.push(FieldError::invalid(path.clone(), new.into(), why));
            false
        }
        (Some(old), Some(new)) if old < new => {
            let why = "must be less than or equal to previous value";
            walk.push(FieldError::invalid(path.clone(), new.into(), why));
            false
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            walk.push(FieldError::invalid(path.clone(), Value::Null, why));
            true
        }
        _ => true,
    }
}

fn tolerations(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) {
    let (old, new) = (list(old, "tolerations"), list(new, "tolerations"));
    let alike = |one: &Value, other: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|name| same(field(one, name), field(other, name)))
    };
    // Each old toleration is compared with every new one, so each comparison is paid for.
    let kept = |old: &Value| new.iter().take_while(|_| walk.budget.spend(1)).any(|new| alike(old, new));
    if !old.iter().all(kept) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        return walk.push(FieldError::forbidden(path.clone(), why));
    }
    for (index, new) in new.iter().enumerate() {
        toleration(walk, new, &path.index(index));
    }
}

fn gates(walk: &mut Walk<'_>, old: &[Value], new: &[Value], path: &FieldPath) {
    let before: std::collections::HashSet<&str> = old.iter().map(|gate| text(gate, "name")).collect();
    for (index, gate) in new.iter().enumerate() {
        let name = text(gate, "name");
        if !before.contains(name) {
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            walk.push(FieldError::forbidden(path.index(index).child("name"), why));
        }
    }
}

/// Everything else stays. A pod that waits at a gate may still be told more about its nodes.
fn fixed(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) {
    if same(old, new) {
        return;
    }
    let mut changed = new.clone();
    for name in ["containers", "initContainers"] {
        let Some(containers) = changed[name].as_array_mut() else { continue };
        for (container, before) in containers.iter_mut().zip(list(old, name)) {
            copy(before, container, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(old, &mut changed, name);
    }
    let grace = |spec: &Value| field(spec, "terminationGracePeriodSeconds").as_i64();
    if grace(old).is_some_and(|grace| grace < 0) && grace(&changed) == Some(1) {
        copy(old, &mut changed, "terminationGracePeriodSeconds");
    }
    if !list(old, "schedulingGates").is_empty() {
        gated(walk, old, &mut changed, path);
    }
    if !same(&changed, old) {
        // A cluster adds the difference of its own structs here.
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        walk.push(FieldError::forbidden(path.clone(), why));
    }
}

fn gated(walk: &mut Walk<'_>, old: &Value, new: &mut Value, path: &FieldPath) {
    let (before, after) = (field(old, "nodeSelector"), field(new, "nodeSelector"));
    if !same(before, after) {
        let kept = |(key, value): (&String, &Value)| after.get(key) == Some(value);
        if !before.as_object().into_iter().flatten().all(kept) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            walk.push(FieldError::invalid(path.child("nodeSelector"), after.clone(), why));
        }
        copy(old, new, "nodeSelector");
    }
    let node = |spec: &Value| field(field(spec, "affinity"), "nodeAffinity").clone();
    let (before, after) = (node(old), node(new));
    if same(&before, &after) {
        return;
    }
    node_affinity(walk, &before, &after, &path.child("affinity").child("nodeAffinity"));
    let others = |affinity: &Value| has(affinity, "podAffinity") || has(affinity, "podAntiAffinity");
    let (had, has_now) = (has(old, "affinity"), has(new, "affinity"));
    if has_now && !had && !others(&new["affinity"]) {
        copy(old, new, "affinity");
    } else {
        if !has_now {
            new["affinity"] = serde_json::json!({});
        }
        copy(field(old, "affinity"), &mut new["affinity"], "nodeAffinity");
    }
}

fn node_affinity(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) {
    let name = "requiredDuringSchedulingIgnoredDuringExecution";
    if !has(old, name) {
        return;
    }
    let path = path.child(name).child("nodeSelectorTerms");
    let (before, after) = (list(field(old, name), "nodeSelectorTerms"), list(field(new, name), "nodeSelectorTerms"));
    if !before.is_empty() && before.len() != after.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return walk.push(FieldError::invalid(path, field(field(new, name), "nodeSelectorTerms").clone(), why));
    }
    let grown = |old: &Value, new: &Value| {
        let lists = ["matchExpressions", "matchFields"];
        let was_empty = lists.iter().all(|name| list(old, name).is_empty());
        let is_empty = lists.iter().all(|name| list(new, name).is_empty());
        let kept = |name: &&str| {
            let (old, new) = (list(old, name), list(new, name));
            new.len() >= old.len() && old.iter().zip(new).all(|(old, new)| same(old, new))
        };
        (is_empty || !was_empty) && lists.iter().all(kept)
    };
    for (index, (old, new)) in before.iter().zip(after).enumerate() {
        if !grown(old, new) {
            let why = "only additions are allowed (no mutations or deletions)";
            walk.push(FieldError::invalid(path.index(index), new.clone(), why));
        }
    }
}
