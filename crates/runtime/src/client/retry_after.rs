//! The pause that a busy server asks for, where a reconcile can see it. In: an answer. Out: the same answer; if it is a
//! refusal with a `Retry-After`, its `Status` names the pause, too. A kube client forgets the headers of an answer, and its
//! error has only the `Status`.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use serde_json::{Value, json};

use super::BoxError;
use crate::retry::retry_after;

/// A body as it came, or one that was written anew.
pub(super) type BodyWithRetryAfter<B> = Either<B, Full<Bytes>>;

/// The answer, with the pause in its `Status` if there is one.
pub(super) async fn copy_retry_after_into_status<B>(
    answer: Response<B>,
) -> Result<Response<BodyWithRetryAfter<B>>, BoxError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let is_busy = matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let Some(pause) = retry_after(answer.headers()).filter(|_| is_busy) else { return Ok(answer.map(Either::Left)) };
    let (mut parts, body) = answer.into_parts();
    let text = body.collect().await.map_err(Into::into)?.to_bytes();
    let is_status = |status: &Value| status["kind"] == "Status";
    // Load shedding and proxies answer with plain text.
    let mut status = serde_json::from_slice(&text).ok().filter(is_status).unwrap_or_else(|| {
        let message = String::from_utf8_lossy(&text).trim().to_owned();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": parts.status.as_u16(),
        })
    });
    if !status["details"].is_object() {
        status["details"] = json!({});
    }
    status["details"]["retryAfterSeconds"] = pause.as_secs().into();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Response::from_parts(parts, Either::Right(Full::from(status.to_string()))))
}
