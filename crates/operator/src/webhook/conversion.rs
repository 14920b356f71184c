//! The conversion webhook: one endpoint for all kinds with several versions. In: a ConversionReview with any number of objects.
//! Out: all of them in the version that is asked for, or one sentence that names the object that could not be converted. A
//! conversion that panics costs its review, and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::configuration::{Registration, client_config};
use super::endpoint::Answer;
use crate::metrics::WebhookMetrics;
use crate::versions::{Versions, called};

/// Where conversions are served.
pub(crate) const PATH: &str = "/convert";

/// The only version that is spoken. API servers have it since Kubernetes 1.16.
const API_VERSION: &str = "apiextensions.k8s.io/v1";

const KIND: &str = "ConversionReview";

/// A larger review is converted on a thread of its own, because conversions do not await anything and others do.
const AT_ONCE: usize = 64 << 10;

/// All kinds that are converted.
#[derive(Clone)]
pub(crate) struct Conversions {
    kinds: Arc<[Versions]>,
    meter: WebhookMetrics,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<ConversionRequest>,
}

#[derive(Deserialize)]
struct ConversionRequest {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(default)]
    objects: Vec<Value>,
}

impl Conversions {
    pub(crate) fn new(kinds: Vec<Versions>, meter: WebhookMetrics) -> Self {
        Self { kinds: kinds.into(), meter }
    }

    pub(super) fn meter(&self) -> &WebhookMetrics {
        &self.meter
    }

    /// Answers a body. Never fails.
    pub(super) async fn answer(&self, body: Bytes) -> Answer {
        if body.len() <= AT_ONCE {
            return self.convert(&body);
        }
        let conversions = self.clone();
        let converted = tokio::task::spawn_blocking(move || conversions.convert(&body)).await;
        converted.unwrap_or_else(|error| Answer::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
    }

    fn convert(&self, body: &[u8]) -> Answer {
        let ConversionRequest { uid, desired, objects } = match parse(body) {
            Ok(request) => request,
            Err(why) => return Answer::refusal(StatusCode::BAD_REQUEST, why),
        };
        let converted: Result<Vec<Value>, String> =
            objects.into_iter().map(|object| convert(&self.kinds, object, &desired)).collect();
        let response = match converted {
            Ok(objects) => {
                self.meter.reviewed("CONVERT", "converted");
                json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}})
            }
            Err(why) => {
                self.meter.reviewed("CONVERT", "failed");
                tracing::error!(desired, uid, why, "a conversion failed");
                json!({"uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": why}})
            }
        };
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "response": response});
        Answer::review(review.to_string())
    }
}

/// One object in another version. The error names the object.
pub(crate) fn convert(kinds: &[Versions], object: Value, desired: &str) -> Result<Value, String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text("apiVersion").split('/').next().unwrap_or_default().to_owned(), text("kind"));
    let is_kind = |versions: &&Versions| {
        let api = versions.resource();
        (api.group.as_str(), api.kind.as_str()) == (group.as_str(), kind.as_str())
    };
    let called = called(&object);
    let Some(versions) = kinds.iter().find(is_kind) else {
        return Err(format!(
            "{called} cannot be converted: this operator has no versions of {kind:?} in the group {group:?}"
        ));
    };
    versions.convert(object, desired).map_err(|why| format!("{called} cannot be converted to {desired}: {why}"))
}

fn parse(body: &[u8]) -> Result<ConversionRequest, String> {
    let review: ConversionReview =
        serde_json::from_slice(body).map_err(|error| format!("the body is no {KIND}: {error}"))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(format!(
            "the body is {:?} of {:?}, and this webhook takes {KIND} of {API_VERSION}",
            review.kind, review.api_version
        ));
    }
    let request = review.request.ok_or_else(|| format!("the {KIND} has no request"))?;
    if request.uid.is_empty() {
        return Err(format!("the request of the {KIND} has no uid"));
    }
    Ok(request)
}

/// How API servers convert: `spec.conversion` of a CRD.
pub(crate) fn strategy(registration: &Registration<'_>) -> Value {
    json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config(PATH, registration)},
    })
}
