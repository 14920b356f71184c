//! `POST /validate` and `/mutate`: AdmissionReviews that a developer sends by hand. In: a review. Out: what the webhooks of the
//! operators at work answer, by the code that serves API servers; all of them together, as one review.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use konverge::testing::{TestWebhook, TestWebhooks};
use konverge::webhook::Operation;
use serde_json::{Value, json};

use konverge_apiserver::Body;
use konverge_core::Status;

use super::json_page;

/// The largest review, as for the operator's own listener.
const MOST_BYTES: usize = 7 << 20;

/// Answers a review by the webhooks that an API server would call for it.
pub(super) async fn answer<B>(
    operators: &[Arc<TestWebhooks>],
    is_mutating: bool,
    request: &Parts,
    body: B,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut review = read(request, body).await?;
    let uid = review["request"]["uid"].as_str().unwrap_or_default().to_owned();
    let (mut warnings, mut patch): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for operator in operators {
        for webhook in called_for(operator, &review, is_mutating)? {
            let answer = operator.review(&webhook.path, &review).await;
            let mut answer = answer.map_err(|error| bad_request(&error.to_string()))?;
            warnings.extend(answer["response"]["warnings"].as_array_mut().into_iter().flat_map(std::mem::take));
            if answer["response"]["allowed"] != true {
                set_warnings(&mut answer, warnings);
                return Ok(json_page(&answer));
            }
            if let Some(changes) = answer["response"]["patch"].as_str() {
                patch.extend(apply(&mut review["request"]["object"], changes).map_err(|why| bad_request(&why))?);
            }
        }
    }
    let mut answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": true},
    });
    if !patch.is_empty() {
        answer["response"]["patchType"] = "JSONPatch".into();
        answer["response"]["patch"] = BASE64_STANDARD.encode(Value::from(patch).to_string()).into();
    }
    set_warnings(&mut answer, warnings);
    Ok(json_page(&answer))
}

async fn read<B>(request: &Parts, body: B) -> Result<Value, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if request.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let content_type = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        let why = "a review is sent as application/json: curl --json @review.json";
        return Err(Status::failure(415, "UnsupportedMediaType", why));
    }
    let body = Limited::new(body, MOST_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Status::failure(413, "RequestEntityTooLarge", format!("the review has more than {MOST_BYTES} bytes"))
        } else {
            bad_request(&format!("the review cannot be read: {error}"))
        }
    })?;
    let review: Value = serde_json::from_slice(&body.to_bytes())
        .map_err(|error| bad_request(&format!("the body is no JSON: {error}")))?;
    if review["apiVersion"] != "admission.k8s.io/v1" || review["kind"] != "AdmissionReview" {
        return Err(bad_request("the body is no AdmissionReview of admission.k8s.io/v1"));
    }
    match review["request"]["uid"].as_str() {
        None | Some("") => Err(bad_request("the AdmissionReview has no request with a uid")),
        Some(_) => Ok(review),
    }
}

/// The webhooks of one operator that are about the object of a review.
fn called_for(operator: &TestWebhooks, review: &Value, is_mutating: bool) -> Result<Vec<TestWebhook>, Status> {
    let request = &review["request"];
    let operation = match request["operation"].as_str().unwrap_or_default() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        "CONNECT" => Operation::Connect,
        other => {
            let why = format!("the operation of a review is CREATE, UPDATE, DELETE or CONNECT, and not {other:?}");
            return Err(bad_request(&why));
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&request["resource"]["group"]), text(&request["resource"]["resource"]));
    if plural.is_empty() {
        return Err(bad_request("the AdmissionReview has no request.resource"));
    }
    let mut called = operator.called_for(&group, &plural, &text(&request["subResource"]), operation);
    called.retain(|webhook| webhook.is_mutating == is_mutating);
    Ok(called)
}

/// Applies the patch of a webhook, and returns its operations.
pub(super) fn apply(object: &mut Value, patch: &str) -> Result<Vec<Value>, String> {
    let patch = BASE64_STANDARD.decode(patch).map_err(|error| error.to_string())?;
    let parsed: json_patch::Patch = serde_json::from_slice(&patch).map_err(|error| error.to_string())?;
    json_patch::patch(object, &parsed).map_err(|error| error.to_string())?;
    serde_json::from_slice(&patch).map_err(|error| error.to_string())
}

fn set_warnings(answer: &mut Value, warnings: Vec<Value>) {
    if !warnings.is_empty() {
        answer["response"]["warnings"] = warnings.into();
    }
}

fn bad_request(why: &str) -> Status {
    Status::failure(400, "BadRequest", why)
}
