//! Tests of what a client's layers make of answers.

use std::convert::Infallible;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::error::Error;
use crate::retry::{Retry, retry};

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
        (Says(503, Some("9000"), ""), hold(120)),
        (Says(503, None, "down"), Retry::Outage),
        (Says(429, Some("soon"), ""), Retry::Outage),
        (Says(404, Some("7"), "no"), Retry::Backoff),
    ] {
        let text = format!("{} {:?} {}", says.0, says.1, says.2);
        let client = ClientLayers::new().over(says, "default");
        let request = Request::get("/api/v1/pods").body(Vec::new()).expect("a request");
        let error = client.request::<Value>(request).await.expect_err("it is refused");
        assert_eq!(retry(&Error::from(error)), expect, "{text}");
    }
}

#[derive(Default)]
struct Seen(Mutex<Vec<(Method, Option<u16>)>>);

impl RequestMeter for Seen {
    fn requested(&self, method: &Method, code: Option<u16>, _: Duration) {
        self.0.lock().push((method.clone(), code));
    }
}

/// A transport that never gets an answer.
#[derive(Clone)]
struct Broken;

impl Service<Request<Body>> for Broken {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        std::future::ready(Err("the connection is reset"))
    }
}

#[tokio::test]
async fn a_meter_hears_of_each_request() {
    let seen = Arc::new(Seen::default());
    let layers = ClientLayers::new().meter(seen.clone());
    let well = layers.clone().over(Says(200, None, "{}"), "default");
    let (busy, broken) = (layers.clone().over(Says(503, Some("1"), ""), "default"), layers.over(Broken, "default"));
    for client in [&well, &busy, &broken] {
        let request = Request::put("/api/v1/nodes/n").body(Vec::new()).expect("a request");
        let _ = client.request::<Value>(request).await;
    }
    assert_eq!(*seen.0.lock(), [(Method::PUT, Some(200)), (Method::PUT, Some(503)), (Method::PUT, None)]);
}
