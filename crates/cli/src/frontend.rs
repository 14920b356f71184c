//! What a listener serves: access control, then the API server. `konverge dev` adds pages that people read with `curl` or a
//! browser. In: any request. Out: always an answer; every failure is a `Status`.
//!
//! ```text
//! access: is this client allowed? ─▶ konverge apiserver ─▶ API server
//!                                 └▶ konverge dev ─▶ /api, /apis, … ─▶ lenient ─▶ API server
//!                                                 └▶ a page: index, watch, events, leader, metrics
//! ```
//!
//! Pages read from the API server like any client and keep nothing.

mod api_client;
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

pub(crate) use index::About;

use crate::access::Access;
use query::Query;

/// The service behind a listener. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Frontend(Arc<Inner>);

struct Inner {
    access: Access,
    api: ApiServer,
    /// The pages of `konverge dev`; `konverge apiserver` has none.
    pages: Option<Pages>,
}

struct Pages {
    about: About,
    metrics: Metrics,
    /// How many clients read `/watch` now.
    watching: Gauge,
    failing: FailingChecks,
}

/// Returns the failing checks of what runs beside the server, one line each. `/readyz` and `/healthz` show them.
pub(crate) type FailingChecks = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

impl Frontend {
    /// The API server alone.
    pub(crate) fn api(access: Access, api: ApiServer) -> Self {
        Self(Arc::new(Inner { access, api, pages: None }))
    }

    /// The API server with the pages of `konverge dev`.
    pub(crate) fn dev(
        access: Access,
        api: ApiServer,
        about: About,
        metrics: Metrics,
        failing: FailingChecks,
    ) -> Result<Self, MetricError> {
        let watching = metrics.gauge("konverge_dev_watch_streams", "Clients that read /watch")?;
        Ok(Self(Arc::new(Inner { access, api, pages: Some(Pages { about, metrics, watching, failing }) })))
    }
}

impl<B> Service<Request<B>> for Frontend
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
        let frontend = self.0.clone();
        Box::pin(async move { Ok(frontend.answer(request).await.unwrap_or_else(|status| failure(&status))) })
    }
}

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.access.admit(&request)?;
        match &self.pages {
            None => Ok(api_client::send(&self.api, request).await),
            Some(pages) => pages.answer(&self.api, request).await,
        }
    }
}

impl Pages {
    async fn answer<B>(&self, api: &ApiServer, request: Request<B>) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        let page = match path.split('/').nth(1).unwrap_or_default() {
            "api" | "apis" => return Ok(lenient::forward(api, request).await),
            "openapi" | "version" | "livez" => return Ok(api_client::send(api, request).await),
            "healthz" | "readyz" => return Ok(self.check(api, request).await),
            _ => path.trim_end_matches('/').to_owned(),
        };
        if !index::PAGES.iter().any(|known| known.path.trim_end_matches('/') == page) {
            let message = format!("there is no page {page:?}; GET / lists the pages");
            return Err(Status::failure(404, "NotFound", message));
        }
        // No page reads a body.
        let (request, _) = request.into_parts();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let query = |known: &[&str]| Query::parse(path_of(&page), request.uri.query(), known);
        let head = |name| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match page.as_str() {
            "" => {
                let wanted = query(&["kind"])?;
                index::answer(api, &self.about, &wanted, head(header::ACCEPT).as_deref()).await
            }
            "/crd" => index::definition(&self.about),
            "/crds" => {
                Ok(json_page(&api_client::json(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?))
            }
            "/events" => {
                let filter = events::Filter::parse(&query(&events::PARAMETERS)?, Timestamp::now())?;
                Ok(json_page(&filter.answer(api).await?))
            }
            "/watch" => {
                let wanted = query(&["kind", "namespace"])?;
                let last = head(header::HeaderName::from_static("last-event-id"));
                let kind = watch::kind(&wanted, &self.about.definitions)?;
                watch::answer(api, &kind, &wanted, last.as_deref(), &self.watching).await
            }
            "/leader" => Ok(json_page(&self.about.leader())),
            _ => Ok(plain(200, METRICS_CONTENT_TYPE, self.metrics.page())),
        }
    }

    /// Answers `/healthz` and `/readyz`. The checks are those of the API server, unless a controller or an operator beside it
    /// fails. A single check below these paths is always one of the API server.
    async fn check<B>(&self, api: &ApiServer, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let check = request.uri().path().trim_matches('/');
        let failing = (self.failing)();
        if failing.is_empty() || check.contains('/') || !matches!(*request.method(), Method::GET | Method::HEAD) {
            return api_client::send(api, request).await;
        }
        let text = format!("{}\n{check} check failed\n", failing.join("\n"));
        plain(500, "text/plain; charset=utf-8", text)
    }
}

/// The path of a page as clients write it.
fn path_of(page: &str) -> &str {
    if page.is_empty() { "/" } else { page }
}

/// JSON with line breaks, because people read it, too.
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

/// A `Status` as a response.
pub(crate) fn failure(status: &Status) -> Response<Body> {
    let text = serde_json::to_string(status).unwrap_or_else(|_| json!({"kind": "Status"}).to_string());
    let mut response = plain(status.code, "application/json", text);
    if status.code == 401 {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests;
