//! The pause that a server asks for, where a reconcile can see it. In: a client. Out: the same client, for reconciles. A kube
//! client forgets the headers of an answer, and a server that has too much to do says only there how long it wants to be
//! left alone; so it is written into the `Status` that becomes the error.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower_service::Service;

/// The same client; its errors know how long the server wants to be left alone.
pub(crate) fn with_retry_after(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(RetryAfter(client), namespace)
}

#[derive(Clone)]
struct RetryAfter(Client);

impl Service<Request<Body>> for RetryAfter {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let answer = client.send(request).await?;
            match pause(&answer) {
                Some(seconds) => noted(answer, seconds).await,
                None => Ok(answer),
            }
        })
    }
}

/// How many seconds a server wants to be left alone that has too much to do.
fn pause<B>(answer: &Response<B>) -> Option<u32> {
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&answer.status());
    answer.headers().get(RETRY_AFTER).filter(|_| busy)?.to_str().ok()?.trim().parse().ok()
}

/// The refusal with the pause in its `Status`, which it may not even have: load shedding answers with plain text.
async fn noted(answer: Response<Body>, seconds: u32) -> Result<Response<Body>, kube::Error> {
    let (mut parts, body) = answer.into_parts();
    let said: Bytes = body.collect().await?.to_bytes();
    let is_status = |status: &Value| status["kind"] == "Status";
    let mut status = serde_json::from_slice(&said).ok().filter(is_status).unwrap_or_else(|| {
        let message = String::from_utf8_lossy(&said).trim().to_owned();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": parts.status.as_u16(),
        })
    });
    if !status["details"].is_object() {
        status["details"] = json!({});
    }
    status["details"]["retryAfterSeconds"] = seconds.into();
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Response::from_parts(parts, Body::from(status.to_string().into_bytes())))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http_body_util::Full;
    use konverge_runtime::{Error, Retry, retry};

    use super::*;

    /// A server that answers every request like this.
    #[derive(Clone)]
    struct Says(u16, Option<&'static str>, &'static str);

    impl Service<Request<Body>> for Says {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let mut response = Response::new(Full::from(self.2));
            *response.status_mut() = StatusCode::from_u16(self.0).expect("a code");
            if let Some(seconds) = self.1 {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
            }
            std::future::ready(Ok(response))
        }
    }

    #[tokio::test]
    async fn a_pause_that_the_server_asks_for_is_kept() {
        const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"busy","reason":"TooManyRequests","details":{"name":"x","retryAfterSeconds":1},"code":429}"#;
        let hold = |seconds| Retry::Hold(Duration::from_secs(seconds));
        for (says, expect) in [
            (Says(429, Some("7"), "Too many requests, please try again later."), hold(7)),
            (Says(429, Some("7"), STATUS), hold(7)),
            (Says(429, None, STATUS), hold(1)),
            (Says(503, Some("2"), ""), hold(2)),
            (Says(503, None, "down"), Retry::Outage),
            (Says(429, Some("soon"), ""), Retry::Outage),
            (Says(404, Some("7"), "no"), Retry::Backoff),
        ] {
            let text = format!("{} {:?} {}", says.0, says.1, says.2);
            let client = with_retry_after(Client::new(says, "default"));
            let request = Request::get("/api/v1/pods").body(Vec::new()).expect("a request");
            let error = client.request::<Value>(request).await.expect_err("it is refused");
            assert_eq!(retry(&Error::from(error)), expect, "{text}");
        }
    }
}
