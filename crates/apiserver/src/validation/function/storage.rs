//! Storage: the size and the source of volumes, parameters of classes, and what an update of a claim may change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use konverge_core::{FieldError, FieldPath, check_label_key};

use super::super::quantity;
use super::super::walk::{Frame, Target, Walk, same};
use super::{Function, copy, field, has, list, text};
use crate::assign;

/// The most that the parameters of a class may take.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn named(name: &str) -> Option<Function> {
    Some(match name {
        "volume-capacity" => capacity,
        "volume-source-update" => source_update,
        "claim-update" => claim_update,
        "provisioner" => provisioner,
        "topologies" => topologies,
        "parameters" => parameters,
        "required-parameters" => required_parameters,
        "csi-drivers-update" => csi_drivers_update,
        "non-negative-quantity" => non_negative,
        "positive-quantity" => positive,
        _ => return None,
    })
}

/// Refuses a term that is there twice, and one that says nothing, which Kubernetes takes for a repetition as well.
fn topologies(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let mut seen: Vec<BTreeMap<&str, BTreeSet<&str>>> = vec![BTreeMap::new()];
    for (index, term) in at.value.as_array().into_iter().flatten().enumerate() {
        let values = |requirement| list(requirement, "values").iter().filter_map(Value::as_str).collect();
        let requirements = list(term, "matchLabelExpressions").iter();
        let term = requirements.map(|requirement| (text(requirement, "key"), values(requirement))).collect();
        if seen.contains(&term) {
            let path = at.place.path().index(index).child("matchLabelExpressions");
            walk.push(FieldError::duplicate(path, "".into()));
        }
        seen.push(term);
    }
}

fn capacity(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let path = at.place.path();
    let count = at.value.as_object().map_or(0, |entries| entries.len());
    if count == 0 {
        walk.push(FieldError::required(path.clone(), ""));
    }
    if !has(at.value, "storage") || count > 1 {
        walk.push(FieldError::not_supported(path.clone(), at.value.clone(), ["storage"]));
    }
    for (name, amount) in at.value.as_object().into_iter().flatten() {
        let size = quantity::of(amount);
        let path = path.key(name);
        if size.value() < 0 {
            let why = "must be a valid resource quantity";
            walk.push(FieldError::invalid(path.clone(), i64::try_from(size.value()).unwrap_or(i64::MIN).into(), why));
        }
        if size.is_negative() || size.is_zero() {
            walk.push(FieldError::invalid(path, quantity::text(amount).into(), "must be greater than zero"));
        }
    }
}

/// Fields of a volume that do not say where it comes from.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn source_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let source = |spec: &Value| {
        let fields = spec.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| !NO_SOURCE.contains(&name.as_str()));
        Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let (before, mut after) = (source(old), source(at.value));
    let secret = "controllerExpandSecretRef";
    if has(&before, "csi") && !has(field(&before, "csi"), secret) && has(&after, "csi") {
        copy(&Value::Null, &mut after["csi"], secret);
    }
    if !same(&before, &after) {
        // A cluster adds the difference of its own structs here.
        let path = FieldPath::new("spec").child("persistentvolumesource");
        walk.push(FieldError::forbidden(path, "spec.persistentvolumesource is immutable after creation"));
    }
}

fn claim_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old else { return };
    let annotation = |object: &Value| text(field(field(object, "metadata"), "annotations"), CLASS).to_owned();
    let (class_before, class_after) = (annotation(old), annotation(at.value));
    let (status, old_status) = (field(at.value, "status"), field(old, "status"));
    // A claim that was stored before the server completed its source gets it by this update.
    let mut before = field(old, "spec").clone();
    assign::complete_claim(&mut before);
    let (before, after) = (&before, field(at.value, "spec"));
    let mut fixed = after.clone();
    if text(before, "volumeName").is_empty() {
        copy(before, &mut fixed, "volumeName");
    }
    let name = field(after, "storageClassName");
    let from_annotation = !class_before.is_empty() && !has(before, "storageClassName") && name == class_before.as_str();
    if from_annotation && (class_after.is_empty() || class_after == class_before) {
        copy(before, &mut fixed, "storageClassName");
    } else {
        if class_before != class_after {
            let path = FieldPath::new("metadata").child("annotations").child(CLASS);
            walk.push(FieldError::invalid(path, class_after.as_str().into(), "field is immutable"));
        }
        let free = class_before.is_empty() || name == class_before.as_str();
        if !name.is_null() && !has(before, "storageClassName") && free {
            copy(before, &mut fixed, "storageClassName");
        }
    }
    let size = |spec: &Value| field(field(field(spec, "resources"), "requests"), "storage").clone();
    if text(status, "phase") == "Bound" {
        if fixed["resources"]["requests"].is_object() {
            fixed["resources"]["requests"]["storage"] = size(before);
        }
        copy(before, &mut fixed, "volumeAttributesClassName");
    }
    if !same(&fixed, before) {
        // A cluster adds the difference of its own structs here.
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        walk.push(FieldError::forbidden(FieldPath::new("spec"), why));
    }
    let held = field(field(old_status, "capacity"), "storage");
    if quantity::of(&size(after)) < quantity::of(&size(before)) && quantity::of(&size(after)) <= quantity::of(held) {
        let path = FieldPath::new("spec").child("resources").child("requests").child("storage");
        walk.push(FieldError::forbidden(path, "field can not be less than status.capacity"));
    }
    if !same(field(before, "volumeMode"), field(after, "volumeMode")) {
        let shown = field(after, "volumeMode").clone();
        walk.push(FieldError::invalid(FieldPath::new("volumeMode"), shown, "field is immutable"));
    }
    let (was, is) = (field(before, "volumeAttributesClassName"), field(after, "volumeAttributesClassName"));
    if was != is && has(old_status, "currentVolumeAttributesClassName") {
        let path = FieldPath::new("spec").child("volumeAttributesClassName");
        let why = match is.as_str() {
            None => "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil",
            Some("") => "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
            Some(_) => return,
        };
        walk.push(FieldError::forbidden(path, why));
    }
}

fn provisioner(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let name = at.value.as_str().unwrap_or_default().to_lowercase();
    for why in check_label_key(&name) {
        walk.invalid(at.place, name.as_str(), why);
    }
}

fn parameters(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(parameters) = at.value.as_object() else { return };
    if parameters.len() > MAX_PARAMETERS {
        return walk.push(FieldError::too_long(at.place.path(), MAX_PARAMETERS));
    }
    if parameters.contains_key("") {
        walk.invalid(at.place, "", "field can not be empty.");
    }
    let size: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_PARAMETER_BYTES {
        walk.push(FieldError::too_long(at.place.path(), MAX_PARAMETER_BYTES));
    }
}

fn required_parameters(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if at.value.as_object().is_none_or(|parameters| parameters.is_empty()) {
        walk.push(FieldError::required(at.place.path(), "must contain at least one key/value pair"));
    }
}

fn csi_drivers_update(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let Some(old) = at.old.and_then(Value::as_array) else { return };
    let known: std::collections::HashMap<&str, &Value> =
        old.iter().map(|driver| (text(driver, "name"), driver)).collect();
    for driver in at.value.as_array().into_iter().flatten() {
        let Some(before) = known.get(text(driver, "name")) else { continue };
        let mut fixed = driver.clone();
        copy(before, &mut fixed, "allocatable");
        if !same(&fixed, before) {
            walk.invalid(at.place, driver.clone(), "field is immutable");
        }
    }
}

fn non_negative(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    if quantity::of(at.value).is_negative() {
        walk.invalid(at.place, quantity::text(at.value), "must be greater than or equal to 0");
    }
}

fn positive(walk: &mut Walk<'_>, at: Target<'_>, _: &Frame<'_>) {
    let amount = quantity::of(at.value);
    if amount.is_negative() || amount.is_zero() {
        walk.invalid(at.place, quantity::text(at.value), "must be positive");
    }
}
