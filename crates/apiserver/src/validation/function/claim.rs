//! Claims of persistent volumes: their access modes, their size, and where their data comes from.

use konverge_core::{FieldError, FieldPath, NameRule, check_label_key, check_name};
use serde_json::Value;

use super::super::quantity;
use super::super::walk::{Frame, Target, Walk, same};
use super::resources::{check_amount, is_native};
use super::{Function, field, has, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "access-modes" => access_modes,
        "claim-storage" => storage,
        "data-source" => data_source,
        "basic-amount" => basic_amount,
        "claim-resize-statuses" => resize_statuses,
        "claim-allocated" => allocated,
        _ => return None,
    })
}

fn access_modes(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let modes: Vec<&str> = at.value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let others = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"];
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(|mode| others.contains(mode)) {
        let why = "may not use ReadWriteOncePod with other access modes";
        walk.push(FieldError::forbidden(at.place.path(), why));
    }
}

fn storage(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.path().key("storage");
    let amount = field(field(at.value, "requests"), "storage");
    if amount.is_null() {
        return walk.push(FieldError::required(path, ""));
    }
    let size = quantity::of(amount);
    if size.is_negative() || size.is_zero() {
        walk.push(FieldError::invalid(path, quantity::text(amount).into(), "must be greater than zero"));
    }
}

fn data_source(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let (source, reference) = (field(at.value, "dataSource"), field(at.value, "dataSourceRef"));
    for (name, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if source.is_null() {
            continue;
        }
        let path = at.place.child(name);
        for field in ["name", "kind"] {
            if text(source, field).is_empty() {
                walk.push(FieldError::required(path.child(field), ""));
            }
        }
        let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
        if group.is_empty() {
            if kind != "PersistentVolumeClaim" {
                let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                walk.push(FieldError::invalid(path.clone(), kind.into(), why));
            }
        } else {
            for why in check_name(group, NameRule::Subdomain, false) {
                walk.push(FieldError::invalid(path.child("apiGroup"), group.into(), why));
            }
        }
    }
    let equal = ["apiGroup", "kind", "name"].iter().all(|name| same(field(source, name), field(reference, name)));
    if !source.is_null() && !reference.is_null() && !has(reference, "namespace") && !equal {
        // A cluster shows its own struct for the path here.
        walk.push(FieldError::invalid(at.place.path(), serde_json::json!({}), "must match dataSourceRef"));
    }
}

fn basic_amount(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    check_basic_amount(walk, at.value, &at.place.path());
}

fn check_basic_amount(walk: &mut Walk<'_>, amount: &Value, path: &FieldPath) -> bool {
    let amount = i64::try_from(quantity::of(amount).value()).unwrap_or(i64::MAX);
    if amount < 0 {
        walk.push(FieldError::invalid(path.clone(), amount.into(), "must be a valid resource quantity"));
    }
    amount >= 0
}

/// The name of a resource that a claim can grow in.
fn check_resource_key(walk: &mut Walk<'_>, name: &str, path: &FieldPath) -> bool {
    let problems = check_label_key(name);
    for why in &problems {
        walk.push(FieldError::invalid(path.clone(), name.into(), why.clone()));
    }
    let is_known = name == "storage" || !is_native(name);
    if problems.is_empty() && !is_known {
        walk.push(FieldError::not_supported(path.clone(), name.into(), ["storage"]));
    }
    problems.is_empty() && is_known
}

fn resize_statuses(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    const KNOWN: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    for (name, status) in at.value.as_object().into_iter().flatten() {
        check_resource_key(walk, name, &at.place.path());
        if !KNOWN.iter().any(|known| status == known) {
            walk.push(FieldError::not_supported(at.place.path(), name.as_str().into(), KNOWN));
        }
    }
}

fn allocated(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    for (name, amount) in at.value.as_object().into_iter().flatten() {
        let path = at.place.path();
        if check_resource_key(walk, name, &path) && check_basic_amount(walk, amount, &path.key(name)) {
            check_amount(walk, "storage", amount, &path.key(name));
        }
    }
}
