//! AdmissionReviews. In: a request in the version that a webhook is for; what the webhook answered. Out: the bytes to send; what the
//! answer says, or why it is no valid answer, in kube-apiserver's words. Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use konverge_core::{Status, drop_nulls};

use super::{Answer, Failure, Remarks, Webhook, WebhookType};
use crate::admission::versioned::Versioned;
use crate::json_patch::drop_null_value;

/// The version of AdmissionReview that a webhook speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1beta1,
}

#[derive(Serialize)]
struct Review<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    request: Request<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    #[serde(flatten)]
    fields: Map<String, Value>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    patch: Option<PatchBytes>,
    patch_type: Option<String>,
    audit_annotations: Option<Map<String, Value>>,
    warnings: Option<Vec<String>>,
}

/// The bytes of a patch: as base64, or as numbers. Go reads both, and kube's types of reviews write numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum PatchBytes {
    Base64(String),
    Numbers(Vec<u8>),
}

impl PatchBytes {
    fn is_empty(&self) -> bool {
        match self {
            Self::Base64(text) => text.is_empty(),
            Self::Numbers(bytes) => bytes.is_empty(),
        }
    }
}

impl ReviewVersion {
    /// The first version of the list that this server speaks.
    pub(super) fn first_known(versions: &Value) -> Option<Self> {
        versions.as_array()?.iter().find_map(|version| match version.as_str()? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    /// The bytes to send.
    pub(super) fn request(self, uid: &str, request: &Value, versioned: &Versioned<'_>) -> Vec<u8> {
        let mut fields = request.as_object().cloned().unwrap_or_default();
        fields.remove("uid");
        let (object, old_object) = (versioned.object.as_deref(), versioned.old.as_deref());
        let request = Request { uid, fields, object, old_object };
        let review = Review { kind: "AdmissionReview", api_version: self.api_version(), request };
        serde_json::to_vec(&review).expect("writing to memory does not fail")
    }

    /// What an answer says.
    pub(super) fn response(self, uid: &str, review: &Value, webhook: &Webhook) -> Result<Answer, Failure> {
        let invalid =
            |why: String| Failure::Call { why: format!("received invalid webhook response: {why}"), code: 503 };
        let Response { uid: received, allowed, status, patch, patch_type, audit_annotations, warnings } =
            match &review["response"] {
                Value::Null => return Err(invalid("webhook response was absent".to_owned())),
                response => serde_json::from_value(without_nulls(response))
                    .map_err(|why| Failure::Call { why: format!("failed to call webhook: {why}"), code: 503 })?,
            };
        let mutating = webhook.ty == WebhookType::Mutating;
        let has_patch = patch.as_ref().is_some_and(|patch| !patch.is_empty());
        if self == Self::V1 {
            check_v1(uid, &received, review, mutating, has_patch, patch_type.as_deref()).map_err(invalid)?;
        }
        let text = |(key, value): (String, Value)| (key, value.as_str().unwrap_or_default().to_owned());
        let remarks = Remarks {
            warnings: warnings.unwrap_or_default(),
            annotations: audit_annotations.unwrap_or_default().into_iter().map(text).collect(),
        };
        let patch = match (allowed, patch) {
            (false, _) => Err(Failure::Rejected(rejection(&webhook.name, status))),
            (true, Some(patch)) if mutating && has_patch => {
                // Earlier versions never looked at the type of the patch.
                let patch_type = patch_type.filter(|_| self == Self::V1).unwrap_or_else(|| "JSONPatch".to_owned());
                operations(patch, &patch_type)
            }
            _ => Ok(Vec::new()),
        };
        Ok(Answer { remarks, patch })
    }
}

/// An answer without the fields that are null, which are the same as absent ones. Its code fits into an HTTP answer.
fn without_nulls(response: &Value) -> Value {
    let mut response = response.clone();
    if let Some(code) = response.pointer_mut("/status/code")
        && let Some(given) = code.as_i64().filter(|given| i32::try_from(*given).is_ok())
    {
        *code = given.clamp(0, 999).into();
    }
    drop_nulls(&mut response);
    response
}

/// The rules for answers of version v1.
fn check_v1(
    uid: &str,
    received: &str,
    review: &Value,
    mutating: bool,
    has_patch: bool,
    patch_type: Option<&str>,
) -> Result<(), String> {
    if received != uid {
        return Err(format!("expected response.uid={uid:?}, got {received:?}"));
    }
    let text = |field: &str| review[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let slash = if version.contains('/') { "" } else { "/" };
        let expected = "admission.k8s.io/v1, Kind=AdmissionReview";
        return Err(format!("expected webhook response of {expected}, got {slash}{version}, Kind={kind}"));
    }
    match (mutating, has_patch, patch_type) {
        (true, true, None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, false, Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, true, Some("")) => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
        (false, true, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, false, Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
        _ => Ok(()),
    }
}

fn operations(patch: PatchBytes, patch_type: &str) -> Result<Vec<Value>, Failure> {
    let undecodable = |why: String| Failure::Call {
        why: format!("received undecodable patch in webhook response: {why}"),
        code: 503,
    };
    let bytes = match patch {
        PatchBytes::Base64(text) => BASE64_STANDARD.decode(text).map_err(|why| Failure::Call {
            why: format!("failed to call webhook: illegal base64 data: {why}"),
            code: 503,
        })?,
        PatchBytes::Numbers(bytes) => bytes,
    };
    let mut operations: Vec<Map<String, Value>> =
        serde_json::from_slice(&bytes).map_err(|why| undecodable(why.to_string()))?;
    operations.iter_mut().for_each(drop_null_value);
    if !operations.is_empty() && patch_type != "JSONPatch" {
        return Err(Failure::Call { why: format!("unsupported patch type {patch_type:?}"), code: 400 });
    }
    Ok(operations.into_iter().map(Value::Object).collect())
}

/// The refusal of a webhook, as the client sees it.
fn rejection(webhook: &str, status: Option<Status>) -> Status {
    let denied = format!("admission webhook {webhook:?} denied the request");
    let mut status = status.unwrap_or_else(|| Status::failure(0, "", ""));
    // A refusal never looks like a success.
    status.code = status.code.max(400);
    if matches!(&*status.status, "" | "Success") {
        status.status = "Failure".to_owned();
    }
    status.message = match (&*status.message, &*status.reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    status
}

#[cfg(test)]
mod tests;
