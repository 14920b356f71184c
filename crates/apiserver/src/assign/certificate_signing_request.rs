//! Certificate signing requests: who asks, and when conditions were set. In: the request before and after a write. Out: the same
//! with what only the server knows.

use serde_json::{Value, json};

use crate::env::rfc3339;
use crate::subresource::Subresource;
use crate::write::WriteRequest;

/// The conditions that only an approval may add or change.
const APPROVAL: [&str; 2] = ["Approved", "Denied"];

pub(super) fn assign(write: &WriteRequest<'_>, old: Option<&Value>, new: &mut Value) {
    let Some(old) = old else { return set_requestor(write, new) };
    new["spec"] = old["spec"].clone();
    if write.subresource == Subresource::Status {
        keep_approval(old, new);
    }
    set_times(&rfc3339(write.server.env.now()), old, new);
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

/// A status keeps the approval as it is; adding or removing one is refused by validation.
fn keep_approval(old: &Value, new: &mut Value) {
    for kind in APPROVAL {
        let before = of_type(old, kind);
        if before.len() == of_type(new, kind).len() {
            let same = conditions_mut(new).filter(|condition| condition["type"] == kind);
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
