//! Claims of persistent volumes: their access modes, their size, and where their data comes from.

use konverge_core::{FieldError, NameRule, check_name};
use serde_json::Value;

use super::super::quantity::{self, Quantity};
use super::super::walk::{Frame, Target, Walk, same};
use super::{Function, field, has, text};

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "access-modes" => access_modes,
        "claim-storage" => storage,
        "data-source" => data_source,
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
    let size = Quantity::of(amount);
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
