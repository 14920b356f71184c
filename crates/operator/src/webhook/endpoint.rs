//! One webhook at its path. In: the body of a request. Out: the answer, whatever the user's function does: it may fail, panic
//! or take too long. Each review is counted, and what went wrong is logged once.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::StatusCode;
use konverge_core::ObjectKey;
use konverge_runtime::panic_message;

use super::AnyWebhook;
use super::admission::{Cluster, Remarks};
use super::options::FailurePolicy;
use super::request::{self, AdmissionRequest};
use super::verdict::{self, Verdict};
use crate::metrics::WebhookMetrics;

pub(crate) struct Endpoint {
    webhook: Arc<dyn AnyWebhook>,
    cluster: Arc<Cluster>,
    meter: WebhookMetrics,
}

/// What is sent back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub code: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
    /// Why the request is no review, if it is none.
    pub refused: Option<String>,
}

/// What a webhook function made of a request.
pub(crate) struct Reviewed {
    pub verdict: Verdict,
    pub remarks: Remarks,
}

impl Answer {
    pub(super) fn review(review: impl Into<Bytes>) -> Self {
        Self { code: StatusCode::OK, content_type: "application/json", body: review.into(), refused: None }
    }

    pub(super) fn text(code: StatusCode, text: &str) -> Self {
        let body = format!("{text}\n").into();
        Self { code, content_type: "text/plain; charset=utf-8", body, refused: None }
    }

    /// To a request that is no review.
    pub(super) fn refusal(code: StatusCode, why: String) -> Self {
        Self { refused: Some(why.clone()), ..Self::text(code, &why) }
    }
}

impl Endpoint {
    pub(crate) fn new(webhook: Arc<dyn AnyWebhook>, cluster: Arc<Cluster>, meter: WebhookMetrics) -> Self {
        Self { webhook, cluster, meter }
    }

    pub(crate) fn path(&self) -> String {
        self.webhook.spec().path()
    }

    pub(super) fn meter(&self) -> &WebhookMetrics {
        &self.meter
    }

    /// Answers a body. Never fails, and never takes much longer than the API server waits.
    pub(crate) async fn answer(&self, body: &[u8]) -> Answer {
        let request = match request::parse(body) {
            Ok(request) => request,
            Err(why) => return Answer::refusal(StatusCode::BAD_REQUEST, why),
        };
        let (uid, operation) = (request.uid.clone(), request.operation);
        let about = ObjectKey::new(Some(request.namespace.as_str()).filter(|name| !name.is_empty()), &request.name);
        let Reviewed { verdict, remarks } = self.review(request).await;
        self.meter.reviewed(operation.as_str(), verdict.word());
        let name = || self.webhook.spec().name();
        match &verdict {
            Verdict::Failed(why) | Verdict::Unreadable(why) => {
                tracing::error!(webhook = name(), operation = operation.as_str(), object = %about, uid, why, "a webhook failed");
                // The API server follows the failure policy only if it gets no AdmissionReview.
                if self.webhook.spec().options.failure_policy == FailurePolicy::Ignore {
                    return Answer::text(StatusCode::INTERNAL_SERVER_ERROR, why);
                }
            }
            Verdict::Denied(status) => {
                let why = &status.message;
                tracing::debug!(webhook = name(), operation = operation.as_str(), object = %about, uid, why, "denied");
            }
            Verdict::Allowed | Verdict::Patched(_) | Verdict::LeftToSchema => {}
        }
        match verdict::review(&uid, &verdict, &remarks) {
            Ok(review) => Answer::review(review),
            Err(why) => {
                Answer::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("the answer cannot be written: {why}"))
            }
        }
    }

    /// The verdict of the user's function, or that there is none.
    pub(crate) async fn review(&self, request: AdmissionRequest) -> Reviewed {
        let limit = before(self.webhook.spec().options.timeout);
        // What a panic leaves half done is the request, which is dropped.
        let review = AssertUnwindSafe(self.webhook.review(request, self.cluster.clone())).catch_unwind();
        match tokio::time::timeout(limit, review).await {
            Ok(Ok(reviewed)) => reviewed,
            Ok(Err(panic)) => failed(panicked(&*panic)),
            Err(_) => failed(format!("the webhook took longer than {limit:?}")),
        }
    }
}

/// A little before the API server gives up, so that the client reads what happened and not only that nothing came.
fn before(timeout: Duration) -> Duration {
    timeout - (timeout / 20).max(Duration::from_millis(100))
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    format!("the webhook panicked: {}", panic_message(panic))
}

fn failed(why: String) -> Reviewed {
    Reviewed { verdict: Verdict::Failed(why), remarks: Remarks::default() }
}
