//! What `konverge dev` serves: the API server, and around it pages that one reads with `curl` or a browser. In: any
//! request. Out: always an answer; every failure is a `Status`.
//!
//! ```text
//! guard: may this client ask at all? ─▶ /api, /apis, … ─▶ lenient ─▶ API server
//!                                    └▶ a page: index, watch, events, leader, metrics
//! ```
//!
//! Pages read what they show through the API server like any client; they keep nothing.

mod ask;
mod events;
mod index;
mod initial;
mod kinds;
mod lenient;
mod query;
mod watch;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower_service::Service;

use konverge::{Gauge, METRICS_CONTENT_TYPE, MetricError, Metrics};
use konverge_apiserver::{ApiServer, Body};
use konverge_core::Status;

pub use index::About;

use crate::guard::Guard;
use query::Query;

/// The surface of one server. Clones are the same.
#[derive(Clone)]
pub struct Surface(Arc<Inner>);

struct Inner {
    api: ApiServer,
    guard: Guard,
    about: About,
    metrics: Metrics,
    /// How many read `/watch` at this moment.
    watching: Gauge,
    /// What is wrong with what runs beside the server, if anything is.
    ailing: Ailing,
}

/// Asked by `/readyz`: what is wrong, one line each.
pub type Ailing = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

impl Surface {
    pub fn new(
        api: ApiServer,
        guard: Guard,
        about: About,
        metrics: Metrics,
        ailing: Ailing,
    ) -> Result<Self, MetricError> {
        let watching = metrics.gauge("konverge_dev_watch_streams", "Clients that read /watch")?;
        Ok(Self(Arc::new(Inner { api, guard, about, metrics, watching, ailing })))
    }
}

impl<B> Service<Request<B>> for Surface
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let surface = self.0.clone();
        Box::pin(async move { Ok(surface.answer(request).await.unwrap_or_else(|status| failure(&status))) })
    }
}

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.guard.admit(&request)?;
        let path = request.uri().path();
        let page = match path.split('/').nth(1).unwrap_or_default() {
            "api" | "apis" => return Ok(lenient::forward(&self.api, request).await),
            "openapi" | "version" | "healthz" | "livez" => return Ok(ask::send(&self.api, request).await),
            // Its checks are the API server's, unless something beside it ails.
            "readyz" if (self.ailing)().is_empty() => return Ok(ask::send(&self.api, request).await),
            _ => path.trim_end_matches('/').to_owned(),
        };
        if !index::PAGES.iter().any(|known| known.path.trim_end_matches('/') == page) {
            let message = format!("there is no page {page:?}; GET / tells what there is");
            return Err(Status::failure(404, "NotFound", message));
        }
        // No page has a use for a body.
        let (request, _) = request.into_parts();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let query = |known: &[&str]| Query::parse(path_of(&page), request.uri.query(), known);
        let head = |name| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match page.as_str() {
            "" => {
                let wanted = query(&["kind"])?;
                index::answer(&self.api, &self.about, &wanted, head(header::ACCEPT).as_deref()).await
            }
            "/readyz" => {
                Ok(plain(500, "text/plain; charset=utf-8", (self.ailing)().join("\n") + "\nreadyz check failed\n"))
            }
            "/crd" => index::definition(&self.about),
            "/crds" => {
                Ok(json_page(&ask::json(&self.api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?))
            }
            "/events" => {
                let filter = events::Filter::parse(&query(&events::PARAMETERS)?, Timestamp::now())?;
                Ok(json_page(&filter.answer(&self.api).await?))
            }
            "/watch" => {
                let wanted = query(&["kind", "namespace"])?;
                let last = head(header::HeaderName::from_static("last-event-id"));
                let kind = watch::kind(&wanted, &self.about.definitions)?;
                watch::answer(&self.api, &kind, &wanted, last.as_deref(), &self.watching).await
            }
            "/leader" => Ok(json_page(&self.about.leader())),
            _ => Ok(plain(200, METRICS_CONTENT_TYPE, self.metrics.page())),
        }
    }
}

/// A page as it is called.
fn path_of(page: &str) -> &str {
    if page.is_empty() { "/" } else { page }
}

/// JSON that people read too.
fn json_page(value: &Value) -> Response<Body> {
    plain(200, "application/json", format!("{value:#}\n"))
}

fn plain(code: u16, content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    answer_of(code, content_type, Body::full(text))
}

fn answer_of(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let builder = Response::builder().status(code).header(header::CONTENT_TYPE, content_type);
    let builder = builder.header(header::CACHE_CONTROL, "no-store").header(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    builder.body(body).expect("a known code and content type make a response")
}

/// A refusal as an answer.
pub fn failure(status: &Status) -> Response<Body> {
    let text = serde_json::to_string(status).unwrap_or_else(|_| json!({"kind": "Status"}).to_string());
    let mut response = plain(status.code, "application/json", text);
    if status.code == 401 {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests;
