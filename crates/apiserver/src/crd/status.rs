//! The status of a custom resource definition, which only the server writes. In: a definition before and after a write. Out:
//! the definition with its accepted names, its conditions and the versions that objects are stored in.

use serde_json::{Value, json};

use crate::conditions;
use crate::env::rfc3339;
use crate::meta;
use crate::resource::Resource;
use crate::server::Server;
use crate::subresource::Subresource;

use super::{CLEANUP, catch_up, is_definition, names};

/// Fills in what a definition may leave out, and what the server knows of its status without looking at other definitions.
pub(crate) fn prepare(resource: &Resource, subresource: Subresource, old: Option<&Value>, new: &mut Value) {
    if !is_definition(resource) || subresource == Subresource::Status {
        return;
    }
    let names = &mut new["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = format!("{kind}List").into();
    }
    if new["spec"]["conversion"].is_null() {
        new["spec"]["conversion"] = json!({"strategy": "None"});
    }
    if let Some(service) =
        new.pointer_mut("/spec/conversion/webhook/clientConfig/service").and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert(443.into());
    }
    let mut stored: Vec<Value> =
        old.and_then(|old| old["status"]["storedVersions"].as_array()).cloned().unwrap_or_default();
    for version in new["spec"]["versions"].as_array().into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    let before = |field: &str| old.map(|old| old["status"][field].clone()).filter(|value| !value.is_null());
    new["status"] = json!({
        "conditions": before("conditions").unwrap_or_else(|| json!([])),
        "acceptedNames": before("acceptedNames").unwrap_or_else(|| json!({"plural": "", "kind": ""})),
        "storedVersions": stored,
    });
}

/// Accepts the names that a definition asks for, if no other has them. The caller holds the lock of definitions until the
/// commit. Kubernetes has a controller for this, so webhooks see a definition before its names are accepted.
pub(crate) fn accept_names(
    server: &Server,
    resource: &Resource,
    subresource: Subresource,
    old: Option<&Value>,
    new: &mut Value,
) {
    if !is_definition(resource) || subresource == Subresource::Status {
        return;
    }
    // The registry has to know all earlier definitions. The caller holds the lock, so no other write is in progress.
    catch_up(server);
    let before = old.map(|old| &old["status"]["acceptedNames"]);
    let names::NameDecision { accepted, refused } = names::decide(&server.registry, new, before);
    let names = match &refused {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, &**message),
    };
    let now = rfc3339(server.env.now());
    let mut conditions = old.map(|old| old["status"]["conditions"].clone()).unwrap_or_default();
    set_condition(&mut conditions, "NamesAccepted", names.0, names.1, names.2, &now);
    // A kind that is served stays served under the names it has, whichever others it asks for.
    if old.and_then(|old| condition(old, "Established")) != Some("True") {
        let established = match &refused {
            None => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            Some(_) => ("False", "NotAccepted", "not all names are accepted"),
        };
        set_condition(&mut conditions, "Established", established.0, established.1, established.2, &now);
    }
    new["status"]["conditions"] = conditions;
    new["status"]["acceptedNames"] = accepted;
}

/// Marks a definition whose deletion has begun. It stays until its objects are deleted. Objects can be created until it is
/// marked, so their deletion begins afterwards.
pub(crate) fn terminate(server: &Server, resource: &Resource, definition: &mut Value) {
    if !is_definition(resource) {
        return;
    }
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|name| name == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    meta::set_finalizers(definition, &finalizers);
    let now = rfc3339(server.env.now());
    let message = "CustomResource deletion is in progress";
    let conditions = &mut definition["status"]["conditions"];
    set_condition(conditions, "Terminating", "True", "InstanceDeletionInProgress", message, &now);
}

/// The status of one condition.
pub(super) fn condition<'d>(definition: &'d Value, kind: &str) -> Option<&'d str> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// Sets one condition of a definition.
fn set_condition(conditions: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    conditions::set(conditions, json!({"type": kind, "status": status, "reason": reason, "message": message}), now);
}
