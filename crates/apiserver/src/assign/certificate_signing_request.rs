//! Certificate signing requests: who asks, and when conditions were set. In: the request before and after a write. Out: the same
//! with what only the server knows, or the refusal of a change that this endpoint must not make.

use serde_json::{Value, json};

use konverge_core::{FieldError, FieldPath, Status};

use crate::env::rfc3339;
use crate::meta;
use crate::subresource::Subresource;
use crate::write::WriteRequest;

/// The conditions that nobody takes back; only an approval may add or change the first two.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) fn assign(write: &WriteRequest<'_>, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
    let Some(old) = old else {
        set_requestor(write, new);
        return Ok(());
    };
    new["spec"] = old["spec"].clone();
    if write.subresource == Subresource::Status {
        keep_approval(old, new);
    }
    set_times(&rfc3339(write.server.env.now()), old, new);
    let errors = errors(write.subresource, old, new);
    if errors.is_empty() { Ok(()) } else { Err(write.invalid(meta::text(new, "name"), &errors)) }
}

/// Whoever creates the request asks for the certificate.
fn set_requestor(write: &WriteRequest<'_>, new: &mut Value) {
    let user = &write.context.user;
    let Some(spec) = new["spec"].as_object_mut() else { return };
    let fields = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, empty) in fields {
        if empty {
            spec.remove(field);
        } else {
            spec.insert(field.to_owned(), value);
        }
    }
}

fn of_type<'v>(object: &'v Value, kind: &str) -> Vec<&'v Value> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == kind).collect()
}

fn conditions_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object
        .get_mut("status")
        .and_then(|status| status.get_mut("conditions"))
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// A status keeps the approval as it is; adding or removing one is an error.
fn keep_approval(old: &Value, new: &mut Value) {
    for kind in &FINAL[..2] {
        let before = of_type(old, kind);
        if before.len() == of_type(new, kind).len() {
            let same = conditions_mut(new).filter(|condition| condition["type"] == **kind);
            same.zip(before).for_each(|(condition, before)| *condition = before.clone());
        }
    }
}

fn set_times(now: &str, old: &Value, new: &mut Value) {
    for condition in conditions_mut(new) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.into();
        }
        if condition["lastTransitionTime"].is_null() {
            let kind = condition["type"].as_str().unwrap_or_default();
            let same = of_type(old, kind).into_iter().find(|before| before["status"] == condition["status"]);
            let since = same.and_then(|before| before["lastTransitionTime"].as_str()).unwrap_or(now);
            condition["lastTransitionTime"] = since.into();
        }
    }
}

fn errors(subresource: Subresource, old: &Value, new: &Value) -> Vec<FieldError> {
    let path = |field: &str| FieldPath::new("status").child(field);
    let mut errors = condition_errors(&path("conditions"), old, new);
    let forbidden = |why: String| FieldError::forbidden(path("conditions"), why);
    for kind in FINAL {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            errors.push(forbidden(format!("updates may not remove a condition of type {kind:?}")));
        }
    }
    let added = FINAL[..2].iter().filter(|kind| of_type(new, kind).len() > of_type(old, kind).len());
    if subresource != Subresource::Approval {
        errors.extend(added.map(|kind| forbidden(format!("updates may not add a condition of type {kind:?}"))));
    }
    let certificate = |object: &Value| object["status"]["certificate"].as_str().unwrap_or_default().to_owned();
    let why = match (certificate(old), certificate(new)) {
        (before, after) if before == after => return errors,
        _ if subresource != Subresource::Status => "updates may not set certificate content",
        (before, _) if before.is_empty() => return errors,
        _ => "updates may not modify existing certificate content",
    };
    errors.push(FieldError::forbidden(path("certificate"), why));
    errors
}

fn condition_errors(path: &FieldPath, old: &Value, new: &Value) -> Vec<FieldError> {
    let both = |object: &Value| FINAL[..2].iter().all(|kind| !of_type(object, kind).is_empty());
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (at, condition) in new["status"]["conditions"].as_array().into_iter().flatten().enumerate() {
        let (kind, status) =
            (condition["type"].as_str().unwrap_or_default(), condition["status"].as_str().unwrap_or_default());
        let here = |field: &str| path.clone().index(at).child(field);
        if kind.is_empty() {
            errors.push(FieldError::required(here("type"), ""));
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match status {
            "" => errors.push(FieldError::required(here("status"), "")),
            status if !allowed.contains(&status) => {
                errors.push(FieldError::not_supported(here("status"), status.into(), allowed.iter().copied()));
            }
            _ => {}
        }
        let other = FINAL[..2].iter().find(|other| **other != kind).filter(|_| FINAL[..2].contains(&kind));
        if other.is_some_and(|other| seen.contains(other)) && !both(old) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(path.clone(), kind.into(), why));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(here("type"), kind.into()));
        }
        seen.push(kind);
    }
    errors
}
