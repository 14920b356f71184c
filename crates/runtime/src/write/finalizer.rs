//! Finalizers, added and removed so that nobody else's is lost. In: the object as it was last seen. Out: the JSON patch,
//! which fails where the object is not as it was seen, and the loop that looks again then.

use std::sync::Arc;

use kube::core::ApiResource;
use serde_json::{Value, json};

use super::Writer;
use super::send::{Call, JSON_PATCH, Operation};
use crate::error::{Missing, WriteError};
use crate::object::Object;

/// What became of a finalizer.
#[derive(Clone, Debug, PartialEq)]
pub enum Finalized {
    /// It was as it should be: nothing was sent.
    Unchanged,
    /// It was added or removed; this is the object now.
    Changed(Arc<Object>),
    /// The object is being deleted, so it was not added: nothing may be begun that would need it.
    Deleting(Arc<Object>),
    /// The object is gone.
    Gone,
}

/// How often a patch is tried on an object that changes all the time.
const ATTEMPTS: usize = 5;

/// What to do to reach a state.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Nothing.
    Done,
    /// It cannot be reached: the object is being deleted.
    ObjectIsTerminating,
    /// Send this patch.
    Patch(Value),
}

impl Writer {
    /// Adds a finalizer, unless it is there. Comes before the first side effect that it is to clean up.
    pub async fn add_finalizer(
        &self,
        api: &ApiResource,
        live: &Arc<Object>,
        name: &str,
    ) -> Result<Finalized, WriteError> {
        self.finalize(api, live, |object| add(object, name)).await
    }

    /// Removes a finalizer and leaves all others. Comes after the cleanup.
    pub async fn remove_finalizer(
        &self,
        api: &ApiResource,
        live: &Arc<Object>,
        name: &str,
    ) -> Result<Finalized, WriteError> {
        self.finalize(api, live, |object| remove(object, name)).await
    }

    async fn finalize(
        &self,
        api: &ApiResource,
        live: &Arc<Object>,
        step: impl Fn(&Object) -> Step,
    ) -> Result<Finalized, WriteError> {
        let key = live.key();
        let mut fresh: Option<Arc<Object>> = None;
        for _ in 0..ATTEMPTS {
            let seen = fresh.as_ref().unwrap_or(live).clone();
            let patch = match (step(&seen), fresh) {
                (Step::Patch(patch), _) => patch,
                (Step::Done, None) => return Ok(Finalized::Unchanged),
                (Step::Done, Some(fresh)) => return Ok(Finalized::Changed(fresh)),
                (Step::ObjectIsTerminating, fresh) => {
                    return Ok(Finalized::Deleting(fresh.unwrap_or_else(|| live.clone())));
                }
            };
            let operation = Operation::Patch(JSON_PATCH);
            let refused =
                match self.write(Call { operation, api, key: &key, subresource: "", body: Some(&patch) }).await {
                    Ok(object) => return Ok(Finalized::Changed(object)),
                    Err(WriteError::NotFound { missing: Missing::Object, .. }) => return Ok(Finalized::Gone),
                    // The test failed, or a delete came first: look again.
                    Err(refused @ (WriteError::Invalid { .. } | WriteError::Conflict { .. })) => refused,
                    Err(error) => return Err(error),
                };
            fresh = match self.get_object(api, &key).await? {
                Some(object) if live.uid().is_empty() || object.uid() == live.uid() => {
                    let moved = object.resource_version() != seen.resource_version();
                    if !moved && matches!(refused, WriteError::Invalid { .. }) {
                        // It is as it was seen, so it is the finalizer that the server does not like.
                        return Err(refused);
                    }
                    Some(object)
                }
                // Another object of the same name is not the one that was meant.
                _ => return Ok(Finalized::Gone),
            };
        }
        Err(WriteError::Conflict {
            message: format!("{} {key} changed {ATTEMPTS} times while a finalizer was to be written", api.kind),
            fields: Vec::new(),
        })
    }
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// The uid of an object; empty if it was not read from a server.
pub(crate) fn uid(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

fn add(object: &Object, name: &str) -> Step {
    let present: Vec<_> = object.finalizers().collect();
    if present.iter().any(|one| one == name) {
        return Step::Done;
    }
    if object.is_terminating() {
        return Step::ObjectIsTerminating;
    }
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": object.uid()})];
    if present.is_empty() {
        // There is no list to be tested, and not every server takes a missing field for null.
        let version = object.resource_version();
        patch.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        patch.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [name]}));
    } else {
        patch.push(json!({"op": "test", "path": "/metadata/finalizers", "value": present}));
        patch.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": name}));
    }
    Step::Patch(Value::Array(patch))
}

fn remove(object: &Object, name: &str) -> Step {
    let Some(at) = object.finalizers().position(|one| one == name) else { return Step::Done };
    let path = format!("/metadata/finalizers/{at}");
    Step::Patch(json!([
        {"op": "test", "path": "/metadata/uid", "value": object.uid()},
        {"op": "test", "path": path, "value": name},
        {"op": "remove", "path": path},
    ]))
}

#[cfg(test)]
mod tests;
