//! How a review ended, and how the API server is told. In: what a webhook function returned. Out: the verdict, and the
//! AdmissionReview that says so. Pure.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use konverge_core::{FieldError, Status};
use konverge_runtime::{Error, FieldErrors, Retry, retry};
use serde_json::{Map, Value, json};

use super::admission::Remarks;
use super::denied::Denied;
use super::request::{API_VERSION, AdmissionRequest, KIND};

/// How a review ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Allowed,
    /// Allowed with these changes, as a JSON Patch.
    Patched(Vec<Value>),
    Denied(Box<Status>),
    /// The webhook could not decide, and this is why. What becomes of the request, the failure policy says.
    Failed(String),
    /// The object is none that the webhook can read, and this is why. The failure policy is about it, too.
    Unreadable(String),
}

impl Verdict {
    /// What an error of a webhook function means for the request. What no retry can mend is a refusal. Anything else, such as
    /// a read that failed, says nothing about the object.
    pub(super) fn of_error(error: &Error, request: &AdmissionRequest) -> Self {
        if let Some(Denied(status)) = error.find::<Denied>() {
            return Self::Denied(Box::new(status.clone()));
        }
        if let Some(errors) = error.find::<FieldErrors>() {
            let (kind, errors) = (&request.kind, errors.iter().cloned().collect::<Vec<FieldError>>());
            return Self::Denied(Box::new(Status::invalid(&kind.group, &kind.kind, &request.name, &errors)));
        }
        match retry(error) {
            Retry::UntilChanged => Self::Denied(Box::new(Denied::new(format!("{error:#}")).0)),
            _ => Self::Failed(format!("{error:#}")),
        }
    }

    /// One word for metrics.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched(_) => "patched",
            Self::Denied(_) => "denied",
            Self::Failed(_) | Self::Unreadable(_) => "failed",
        }
    }
}

/// The AdmissionReview that answers the request with this id.
pub(super) fn review(uid: &str, verdict: &Verdict, remarks: &Remarks) -> Value {
    let mut response = Map::new();
    response.insert("uid".into(), uid.into());
    response.insert("allowed".into(), matches!(verdict, Verdict::Allowed | Verdict::Patched(_)).into());
    match verdict {
        Verdict::Allowed => {}
        Verdict::Patched(operations) => {
            let patch = Value::from(operations.clone()).to_string();
            response.insert("patchType".into(), "JSONPatch".into());
            response.insert("patch".into(), BASE64_STANDARD.encode(patch).into());
        }
        Verdict::Denied(status) => drop(response.insert("status".into(), json!(status))),
        Verdict::Failed(why) => {
            drop(response.insert("status".into(), json!(Status::failure(500, "InternalError", why))))
        }
        Verdict::Unreadable(why) => {
            drop(response.insert("status".into(), json!(Status::failure(400, "BadRequest", why))))
        }
    }
    if !remarks.warnings.is_empty() {
        response.insert("warnings".into(), json!(remarks.warnings));
    }
    if !remarks.audit.is_empty() {
        response.insert("auditAnnotations".into(), json!(remarks.audit));
    }
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
}
