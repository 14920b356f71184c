//! Finalizers, added and removed so that nobody else's is lost. In: the object as it was last seen. Out: the JSON patch,
//! which fails where the object is not as it was seen, and the loop that looks again then.

use konverge_core::ObjectKey;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::Writer;
use super::config::key_of;
use super::send::{Call, JSON_PATCH, Verb};
use crate::error::WriteError;

/// What became of a finalizer.
#[derive(Clone, Debug, PartialEq)]
pub enum Finalized {
    /// It was as it should be: nothing was sent.
    Unchanged,
    /// It was added or removed; this is the object now.
    Changed(Value),
    /// The object is being deleted, so it was not added: nothing may be begun that would need it.
    Deleting(Value),
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
    Late,
    /// Send this patch.
    Patch(Value),
}

impl Writer {
    /// Adds a finalizer, unless it is there. Comes before the first side effect that it is to clean up.
    pub async fn add_finalizer(&self, api: &ApiResource, live: &Value, name: &str) -> Result<Finalized, WriteError> {
        self.finalize(api, live, |object| add(object, name)).await
    }

    /// Removes a finalizer and leaves all others. Comes after the cleanup.
    pub async fn remove_finalizer(&self, api: &ApiResource, live: &Value, name: &str) -> Result<Finalized, WriteError> {
        self.finalize(api, live, |object| remove(object, name)).await
    }

    async fn finalize(
        &self,
        api: &ApiResource,
        live: &Value,
        step: impl Fn(&Value) -> Step,
    ) -> Result<Finalized, WriteError> {
        let key = key_of(live)?;
        let uid = uid(live).to_owned();
        let mut fresh: Option<Value> = None;
        for _ in 0..ATTEMPTS {
            let patch = match (step(fresh.as_ref().unwrap_or(live)), &mut fresh) {
                (Step::Patch(patch), _) => patch,
                (Step::Done, None) => return Ok(Finalized::Unchanged),
                (Step::Done, Some(fresh)) => return Ok(Finalized::Changed(fresh.take())),
                (Step::Late, Some(fresh)) => return Ok(Finalized::Deleting(fresh.take())),
                (Step::Late, None) => return Ok(Finalized::Deleting(live.clone())),
            };
            match self.patch_object(api, &key, &patch).await {
                Ok(object) => return Ok(Finalized::Changed(object)),
                Err(WriteError::NotFound { missing: crate::error::Missing::Object, .. }) => return Ok(Finalized::Gone),
                // The test failed, or a delete came first: look again.
                Err(WriteError::Invalid { .. } | WriteError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
            match self.get(api, &key).await? {
                Some(object) if uid_matches(&object, &uid) => fresh = Some(object),
                // Another object of the same name is not the one that was meant.
                _ => return Ok(Finalized::Gone),
            }
        }
        Err(WriteError::Conflict {
            message: format!("{} {key} changed {ATTEMPTS} times while a finalizer was to be written", api.kind),
            fields: Vec::new(),
        })
    }

    async fn patch_object(&self, api: &ApiResource, key: &ObjectKey, patch: &Value) -> Result<Value, WriteError> {
        let call = Call { verb: Verb::Patch(JSON_PATCH), api, key, subresource: "", body: Some(patch) };
        Ok(self.send(call).await?.value)
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

fn uid_matches(object: &Value, expect: &str) -> bool {
    expect.is_empty() || uid(object) == expect
}

fn finalizers(object: &Value) -> &[Value] {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn add(object: &Value, name: &str) -> Step {
    let present = finalizers(object);
    if present.iter().any(|one| one == name) {
        return Step::Done;
    }
    if is_deleting(object) {
        return Step::Late;
    }
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid(object)})];
    if present.is_empty() {
        // There is no list to be tested, and not every server takes a missing field for null.
        let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        patch.push(json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        patch.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [name]}));
    } else {
        patch.push(json!({"op": "test", "path": "/metadata/finalizers", "value": present}));
        patch.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": name}));
    }
    Step::Patch(Value::Array(patch))
}

fn remove(object: &Value, name: &str) -> Step {
    let Some(at) = finalizers(object).iter().position(|one| one == name) else { return Step::Done };
    let path = format!("/metadata/finalizers/{at}");
    Step::Patch(json!([
        {"op": "test", "path": "/metadata/uid", "value": uid(object)},
        {"op": "test", "path": path, "value": name},
        {"op": "remove", "path": path},
    ]))
}

#[cfg(test)]
mod tests;
