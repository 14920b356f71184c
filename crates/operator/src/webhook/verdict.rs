//! How a review ended, and how the API server is told. In: what a webhook function returned. Out: the verdict, and the
//! AdmissionReview that says so. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use konverge_core::{FieldError, Status};
use konverge_runtime::{Error, FieldErrors, Retry, retry};
use serde::Serialize;
use serde_json::Value;

use super::admission::Remarks;
use super::denied::Denied;
use super::request::{API_VERSION, AdmissionRequest, KIND};

/// How a review ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Allowed,
    /// Allowed with these changes, as a JSON Patch.
    Patched(Vec<Value>),
    /// Allowed, although the webhook cannot read the object: the API server judges it by its schema.
    LeftToSchema,
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
            Self::LeftToSchema => "unreadable",
            Self::Denied(_) => "denied",
            Self::Failed(_) | Self::Unreadable(_) => "failed",
        }
    }
}

/// The AdmissionReview that answers the request with this id.
pub(super) fn review(uid: &str, verdict: &Verdict, remarks: &Remarks) -> serde_json::Result<Vec<u8>> {
    let failure = |code, reason, why: &str| Some(Cow::Owned(Status::failure(code, reason, why)));
    let patch = match verdict {
        Verdict::Patched(operations) => Some(BASE64_STANDARD.encode(serde_json::to_vec(operations)?)),
        _ => None,
    };
    let response = Response {
        uid,
        allowed: matches!(verdict, Verdict::Allowed | Verdict::Patched(_) | Verdict::LeftToSchema),
        patch_type: patch.as_ref().map(|_| "JSONPatch"),
        patch,
        status: match verdict {
            Verdict::Allowed | Verdict::Patched(_) | Verdict::LeftToSchema => None,
            Verdict::Denied(status) => Some(Cow::Borrowed(&**status)),
            Verdict::Failed(why) => failure(500, "InternalError", why),
            Verdict::Unreadable(why) => failure(400, "BadRequest", why),
        },
        warnings: &remarks.warnings,
        audit_annotations: &remarks.audit,
    };
    serde_json::to_vec(&Review { api_version: API_VERSION, kind: KIND, response })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Cow<'a, Status>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}
