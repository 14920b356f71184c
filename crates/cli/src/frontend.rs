//! What a listener serves: access control, then the API server, with the health of the controllers beside
//! it. `konverge dev` adds pages that people read with `curl` or a browser. In: any request. Out: always an answer; every
//! failure is a `Status`.
//!
//! ```text
//! access: is this client allowed? ─▶ /healthz, /readyz ─▶ also the controllers and operators
//!                                 ├▶ konverge apiserver ─▶ API server
//!                                 └▶ konverge dev ─▶ /api, /apis, … ─▶ lenient ─▶ API server
//!                                                 ├▶ an AdmissionReview: review
//!                                                 └▶ a page: index, watch, events, leader
//! ```
//!
//! Pages read from the API server like any client and keep nothing. Who may `get` the path of a page may read it.

mod api_client;
mod events;
mod index;
mod initial;
mod kinds;
mod leader;
mod lenient;
mod permissions;
mod query;
mod review;
mod watch;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower_service::Service;

use konverge::{Gauge, MetricError, Metrics};
use konverge_apiserver::{ApiServer, Body, UserInfo};
use konverge_core::Status;

pub(crate) use index::About;

use crate::access::Access;
use crate::authentication::{authenticate, refuse};
use crate::upgrade;
use api_client::Reader;
use query::Query;

/// The service behind a listener. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Frontend(Arc<Inner>);

struct Inner {
    access: Access,
    api: ApiServer,
    companions: Companions,
    /// The pages of `konverge dev`; `konverge apiserver` has none.
    pages: Option<Pages>,
}

/// What runs beside the API server, as `/healthz` and `/readyz` show it.
#[derive(Clone)]
pub(crate) struct Companions {
    pub metrics: Metrics,
    pub failing: FailingChecks,
}

struct Pages {
    about: About,
    /// How many clients read `/watch` now.
    watching: Gauge,
}

/// Returns the failing checks of what runs beside the server, one line each. `/readyz` and `/healthz` show them.
pub(crate) type FailingChecks = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

impl Frontend {
    /// The API server without pages.
    pub(crate) fn api(access: Access, api: ApiServer, companions: Companions) -> Self {
        Self(Arc::new(Inner { access, api, companions, pages: None }))
    }

    /// The API server with the pages of `konverge dev`.
    pub(crate) fn dev(
        access: Access,
        api: ApiServer,
        companions: Companions,
        about: About,
    ) -> Result<Self, MetricError> {
        let watching = companions.metrics.gauge("konverge_dev_watch_streams", "Clients that read /watch")?;
        Ok(Self(Arc::new(Inner { access, api, companions, pages: Some(Pages { about, watching }) })))
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
        let (head, body) = request.into_parts();
        let user = match authenticate(&self.api, &head).await {
            Ok(user) => Arc::new(user),
            Err(status) => return Ok(refuse(&self.api, head, &status).await),
        };
        let mut request = Request::from_parts(head, body);
        request.extensions_mut().insert(user.clone());
        upgrade::hand_over(&mut request);
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), &self.pages) {
            ("/healthz" | "/readyz", _) if reads => self.check(&user, request).await,
            (crate::permissions::PAGE, _) if reads => self.permissions(&user, &request.into_parts().0).await,
            (_, None) => Ok(api_client::send(&self.api, request).await),
            ("/metrics", _) => Ok(api_client::send(&self.api, request).await),
            (_, Some(pages)) => pages.answer(&self.api, user, request).await,
        }
    }

    /// Answers `/permissions`, which both commands have.
    async fn permissions(&self, user: &UserInfo, request: &Parts) -> Result<Response<Body>, Status> {
        refuse_impersonation(request)?;
        self.api.authorize_path(user, &verb(&request.method), crate::permissions::PAGE).await?;
        permissions::answer(&self.api, &Query::parse(crate::permissions::PAGE, request.uri.query(), &["user"])?)
    }

    /// Answers `/healthz` and `/readyz`. The checks are those of the API server, unless a controller or an operator beside it
    /// fails. A single check below these paths is always one of the API server.
    async fn check<B>(&self, user: &UserInfo, request: Request<B>) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let failing = (self.companions.failing)();
        if failing.is_empty() {
            return Ok(api_client::send(&self.api, request).await);
        }
        self.api.authorize_path(user, &verb(request.method()), request.uri().path()).await?;
        let check = request.uri().path().trim_matches('/');
        let text = format!("{}\n{check} check failed\n", failing.join("\n"));
        Ok(plain(500, "text/plain; charset=utf-8", text))
    }
}

impl Pages {
    async fn answer<B>(
        &self,
        api: &ApiServer,
        user: Arc<UserInfo>,
        request: Request<B>,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path();
        let page = match path.split('/').nth(1).unwrap_or_default() {
            "api" | "apis" => return Ok(lenient::forward(api, request).await),
            "openapi" | "openid" | ".well-known" | "version" | "livez" | "healthz" | "readyz" => {
                return Ok(api_client::send(api, request).await);
            }
            _ => path.trim_end_matches('/').to_owned(),
        };
        if !index::PAGES.iter().any(|known| known.path.trim_end_matches('/') == page) {
            let message = format!("there is no page {page:?}; GET / lists the pages");
            return Err(Status::failure(404, "NotFound", message));
        }
        let (request, body) = request.into_parts();
        refuse_impersonation(&request)?;
        api.authorize_path(&user, &verb(&request.method), path_of(&page)).await?;
        if let "/validate" | "/mutate" = page.as_str() {
            return review::answer(&self.about.webhooks, page == "/mutate", &request, body).await;
        }
        // No other page reads a body.
        drop(body);
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let api = &Reader::new(api, user);
        let query = |known: &[&str]| Query::parse(path_of(&page), request.uri.query(), known);
        let head = |name| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match page.as_str() {
            "" => {
                let wanted = query(&["kind"])?;
                index::answer(api, &self.about, &wanted, head(header::ACCEPT).as_deref()).await
            }
            "/crd" => index::definition(&self.about),
            "/crds" => Ok(json_page(&api.json("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await?)),
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
            _ => Ok(json_page(&leader::page(api, &self.about).await?)),
        }
    }
}

/// The verb of a request about a path, as Kubernetes has it.
fn verb(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// Pages are read as oneself: only the API knows who may pass for whom.
fn refuse_impersonation(request: &Parts) -> Result<(), Status> {
    if request.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        let why = "pages cannot be read as another user; ask the API instead, or leave the Impersonate headers out";
        return Err(Status::failure(403, "Forbidden", why));
    }
    Ok(())
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
    plain(status.code, "application/json", text)
}

#[cfg(test)]
mod tests;
