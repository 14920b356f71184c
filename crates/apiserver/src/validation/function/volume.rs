//! Volumes: names that depend on other names, and options that belong to others.

use serde_json::Value;

use konverge_core::{FieldError, NameRule, check_name};

use super::super::quantity;
use super::super::walk::{Frame, Target, Walk, is_zero};
use super::{Function, field, has, list, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "size-limit" => size_limit,
        "volume-names" => volume_names,
        "no-slash" => no_slash,
        "host-ports-list" => host_ports_list,
        "reserved-option" => reserved_option,
        "template-metadata" => template_metadata,
        _ => return None,
    })
}

fn size_limit(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if quantity::of(at.value).is_negative() {
        walk.push(FieldError::forbidden(at.place.path(), "SizeLimit field must be a valid resource quantity"));
    }
}

/// Names that a volume makes together with others: of an iSCSI session, and of the claim of an ephemeral volume.
fn volume_names(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let name = text(at.value, "name");
    let iscsi = field(at.value, "iscsi");
    if has(iscsi, "initiatorName") && name.len() + 1 + text(iscsi, "targetPortal").len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        walk.push(FieldError::invalid(at.place.child("name"), name.into(), why));
    }
    if text(walk.object, "kind") != "Pod" {
        return;
    }
    let pod = text(field(walk.object, "metadata"), "name");
    if has(at.value, "ephemeral") && !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for why in check_name(&claim, NameRule::Subdomain, false) {
            let why = format!("PVC name {claim:?}: {why}");
            walk.push(FieldError::invalid(at.place.child("name"), name.into(), why));
        }
    }
    let claim = text(field(at.value, "persistentVolumeClaim"), "claimName");
    let Some(volume) = claim.strip_prefix(pod).and_then(|rest| rest.strip_prefix('-')) else { return };
    let volumes = frame.above.map(|pod| list(pod.value, "volumes")).unwrap_or_default();
    if !walk.budget.spend(volumes.len() as u64) {
        return;
    }
    if volumes.iter().any(|other| text(other, "name") == volume && has(other, "ephemeral")) {
        let why = "must not reference a PVC that gets created for an ephemeral volume";
        let path = at.place.child("persistentVolumeClaim").child("claimName");
        walk.push(FieldError::invalid(path, claim.into(), why));
    }
}

fn no_slash(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.as_str().is_some_and(|name| name.contains('/')) {
        walk.invalid(at.place, at.value.clone(), "must not contain '/'");
    }
}

fn host_ports_list(walk: &mut Walk<'_>, at: Target<'_>, frame: &Frame<'_>) {
    let registry = at.value.as_str().unwrap_or_default();
    if text(frame.value, "tenant").len() > 64 {
        return;
    }
    let is_pair = |pair: &str| match pair.rsplit_once(':') {
        Some((host, _)) if host.starts_with('[') => host.ends_with(']'),
        Some((host, _)) => !host.contains(':'),
        None => false,
    };
    for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
        walk.invalid(at.place, registry, "must be a host:port pair or multiple pairs separated by commas");
    }
}

fn reserved_option(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let key = at.value.as_str().unwrap_or_default();
    let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
    let namespace = format!(".{}", namespace.to_lowercase());
    if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
        walk.invalid(at.place, key, "kubernetes.io and k8s.io namespaces are reserved");
    }
}

/// The metadata of a template has labels and annotations only.
fn template_metadata(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    for (name, value) in at.value.as_object().into_iter().flatten() {
        let is_bare = is_zero(value) || value.as_object().is_some_and(|map| map.is_empty()) || *value == Value::Null;
        if !["annotations", "labels"].contains(&name.as_str()) && !is_bare {
            // A cluster lowers only the first letter of its own name of the field.
            let name = if name == "uid" { "uID" } else { name };
            walk.push(FieldError::forbidden(at.place.child(name), "cannot be set"));
        }
    }
}
