//! The four patch formats. In: a patch and an object. Out: the object after it, or why it cannot be.
//! Server-side apply is the fifth and has a road of its own in `change`.

use json_patch::{Patch as JsonPatch, PatchErrorKind};
use serde_json::Value;

use konverge_core::Status;
use konverge_schema::{merge_patch, strategic_merge_patch};

use crate::decode;
use crate::resource::Resource;

/// The most operations one JSON patch may have: what kube-apiserver accepts.
const MAX_OPERATIONS: usize = 10_000;

/// The largest object a patch may grow to: copy operations can double it again and again.
const MAX_PATCHED_BYTES: usize = 6 * 1024 * 1024;

/// A patch that was read.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902
    Json(JsonPatch),
    /// RFC 7386
    Merge(Value),
    /// Kubernetes' own, driven by the schema.
    Strategic(Value),
}

impl Patch {
    /// Reads RFC 6902.
    pub fn json(body: &[u8]) -> Result<Self, Status> {
        let value = decode::json(body)?.value;
        let operations = value.as_array().map(Vec::len);
        if let Some(operations) = operations.filter(|operations| *operations > MAX_OPERATIONS) {
            return Err(Status::too_large(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {operations}"
            )));
        }
        serde_json::from_value(value)
            .map(Self::Json)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    }

    /// Reads RFC 7386.
    pub fn merge(body: &[u8]) -> Result<Self, Status> {
        object(body).map(Self::Merge)
    }

    /// Reads a strategic merge patch.
    pub fn strategic(body: &[u8]) -> Result<Self, Status> {
        object(body).map(Self::Strategic)
    }

    /// The object after the patch.
    pub fn apply(&self, resource: &Resource, current: &Value) -> Result<Value, Status> {
        let mut object = current.clone();
        match self {
            Self::Json(patch) => {
                apply_json(patch, &mut object)?;
                decode::check_depth(&object)?;
            }
            Self::Merge(patch) => merge_patch(&mut object, patch),
            Self::Strategic(patch) => {
                let schema = &resource.schema;
                object = strategic_merge_patch(&schema.arena, schema.root, object, patch.clone())
                    .map_err(|error| error.status())?;
            }
        }
        Ok(object)
    }
}

fn object(body: &[u8]) -> Result<Value, Status> {
    let value = decode::yaml(body)?.value;
    if !value.is_object() {
        return Err(Status::bad_request("a merge patch must be a JSON object"));
    }
    Ok(value)
}

/// Applies one operation at a time, so that a patch that copies its own copies is stopped before it is large.
fn apply_json(patch: &JsonPatch, object: &mut Value) -> Result<(), Status> {
    let mut budget = MAX_PATCHED_BYTES;
    for operation in &patch.0 {
        if let json_patch::PatchOperation::Copy(copy) = operation {
            let size = object.pointer(copy.from.as_str()).map_or(0, size_of);
            budget = budget.checked_sub(size).ok_or_else(|| {
                Status::too_large(format!("the patch copies more than {MAX_PATCHED_BYTES} bytes; send a smaller one"))
            })?;
        }
        // Clients test for absence by testing for null.
        if let json_patch::PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|error| {
            let why = match &error.kind {
                PatchErrorKind::TestFailed => format!("testing path {} failed", error.path),
                kind => format!("{} at {}", kind, error.path),
            };
            let message = "the server rejected our request due to an error in our request";
            Status::failure(422, "Invalid", message).with_cause("UnexpectedServerResponse", &why, "patch")
        })?;
    }
    Ok(())
}

/// About how many bytes a value takes as JSON.
fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size_of).sum::<usize>() + items.len() + 2,
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size_of(value) + 4).sum::<usize>() + 2,
        _ => 8,
    }
}
