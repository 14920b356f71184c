//! What may change of a pod through `/resize`: the cpu and the memory of its containers and of the pod as a whole.

use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath};

use super::super::walk::{Frame, Target, Walk, same};
use super::{copy, field, has, list, text};
use crate::assign::qos_class;

const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn check(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let new = at.value;
    let path = FieldPath::new("spec");
    if has(field(field(old, "metadata"), "annotations"), MIRROR) {
        return walk.push(FieldError::forbidden(FieldPath::root(), "static pods cannot be resized"));
    }
    if text(field(field(old, "spec"), "os"), "name") == "windows" {
        return walk.push(FieldError::forbidden(FieldPath::root(), "windows pods cannot be resized"));
    }
    let before = match text(field(old, "status"), "qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if before != qos_class(new) {
        let class = text(field(new, "status"), "qosClass").into();
        let why = "Pod QOS Class may not change as a result of resizing";
        walk.push(FieldError::invalid(path.clone(), class, why));
    }
    if !is_supported(old) {
        walk.push(FieldError::forbidden(path.clone(), "Pod running on node without support for resize"));
    }
    let (old_spec, new_spec) = (field(old, "spec"), field(new, "spec"));
    pod_resources(walk, old_spec, new_spec, &path);
    if !list(field(old, "status"), "nodeAllocatableResourceClaimStatuses").is_empty() {
        let why = "pods with node allocatable resource claims cannot be resized";
        walk.push(FieldError::forbidden(path.clone(), why));
    }
    if !ordered(walk, old_spec, new_spec, &path) {
        return;
    }
    for name in ["initContainers", "containers"] {
        for (index, (old, new)) in list(old_spec, name).iter().zip(list(new_spec, name)).enumerate() {
            let path = path.child(name).index(index).child("resources");
            let (old, new) = (field(old, "resources"), field(new, "resources"));
            for (kind, why) in
                [("requests", "resource requests cannot be removed"), ("limits", "resource limits cannot be removed")]
            {
                if removed(field(old, kind), field(new, kind)) {
                    walk.push(FieldError::forbidden(path.child(kind), why));
                }
            }
        }
    }
    fixed(walk, old_spec, new_spec, &path);
}

/// Whether the node of a pod can resize it: it says so by what it tells of the first container that runs.
fn is_supported(pod: &Value) -> bool {
    let running = |status: &&Value| has(field(status, "state"), "running");
    list(field(pod, "status"), "containerStatuses").iter().find(running).is_none_or(|status| has(status, "resources"))
}

/// What the pod may use as a whole.
fn pod_resources(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) {
    let (before, after) = (field(old, "resources"), field(new, "resources"));
    let is_set = |resources: &Value| ["requests", "limits"].iter().any(|kind| !is_empty(field(resources, kind)));
    if !is_set(before) && !is_set(after) {
        return;
    }
    let path_of = path.child("resources");
    if !before.is_null() && after.is_null() {
        return walk.push(FieldError::forbidden(path_of, "pod-level resources cannot be removed"));
    }
    for (kind, why) in [
        ("requests", "pod-level resource requests cannot be removed"),
        ("limits", "pod-level resource limits cannot be removed"),
    ] {
        if !before.is_null() && removed(field(before, kind), field(after, kind)) {
            walk.push(FieldError::forbidden(path_of.child(kind), why));
        }
    }
    if !same(&masked(before, after), &masked(before, before)) {
        let why = "only cpu and memory resources are mutable at pod-level";
        walk.push(FieldError::forbidden(path.clone(), why));
    }
}

/// Whether containers are those that were there, in the same order.
fn ordered(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) -> bool {
    let mut ordered = true;
    for name in ["containers", "initContainers"] {
        let (before, after) = (list(old, name), list(new, name));
        if before.len() != after.len() {
            let why = format!("{name} may not be added or removed on resize");
            walk.push(FieldError::forbidden(path.child(name), why));
            ordered = false;
            continue;
        }
        for (index, _) in before.iter().zip(after).enumerate().filter(|(_, (a, b))| text(a, "name") != text(b, "name"))
        {
            let why = format!("{name} may not be renamed or reordered on resize");
            walk.push(FieldError::forbidden(path.child(name).index(index).child("name"), why));
            ordered = false;
        }
    }
    ordered
}

/// Everything but cpu and memory stays.
fn fixed(walk: &mut Walk<'_>, old: &Value, new: &Value, path: &FieldPath) {
    let masks = |before: &Value, after: &Value| {
        let mut container = after.clone();
        container["resources"] = masked(field(before, "resources"), field(after, "resources"));
        let mut expect = before.clone();
        expect["resources"] = without_empty(field(before, "resources"));
        !same(&container, &expect)
    };
    for (before, after) in list(old, "containers").iter().zip(list(new, "containers")) {
        if masks(before, after) {
            walk.push(FieldError::forbidden(path.clone(), "only cpu and memory resources are mutable"));
        }
    }
    for (index, (before, after)) in list(old, "initContainers").iter().zip(list(new, "initContainers")).enumerate() {
        let path = path.child("initContainers").index(index);
        if masks(before, after) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            walk.push(FieldError::forbidden(path.clone(), why));
        }
        let restarts = |policy: &&Value| text(policy, "restartPolicy") == "RestartContainer";
        let resized = text(after, "restartPolicy") != "Always" && !same(before, after);
        for _ in list(after, "resizePolicy").iter().filter(restarts).filter(|_| resized) {
            let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            walk.push(FieldError::forbidden(path.clone(), why));
        }
    }
    let mut changed = new.clone();
    for name in ["containers", "initContainers", "resources"] {
        copy(old, &mut changed, name);
    }
    if !same(&changed, old) {
        walk.push(FieldError::forbidden(path.clone(), "only cpu and memory resources are mutable"));
    }
}

/// What is asked for, with the cpu and the memory of before. Claims of devices are left out, so that a container which has
/// some cannot be resized.
fn masked(before: &Value, after: &Value) -> Value {
    let mut masked = json!({});
    for kind in ["requests", "limits"] {
        let mut amounts = field(after, kind).as_object().cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            amounts.remove(name);
            if let Some(amount) = field(before, kind).get(name) {
                amounts.insert(name.to_owned(), amount.clone());
            }
        }
        if !amounts.is_empty() {
            masked[kind] = amounts.into();
        }
    }
    masked
}

fn without_empty(resources: &Value) -> Value {
    let mut resources = resources.as_object().cloned().unwrap_or_default();
    resources.retain(|_, value| !is_empty(value));
    resources.into()
}

fn removed(before: &Value, after: &Value) -> bool {
    before.as_object().into_iter().flatten().any(|(name, _)| after.get(name).is_none())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        value => value.is_null(),
    }
}
