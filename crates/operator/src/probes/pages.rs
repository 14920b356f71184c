//! Which page answers a request. In: a method, a path and a query. Out: metrics, liveness, readiness, who leads, or that there is
//! no such page. Bodies of requests are never read.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::Full;
use konverge_serve::RequestBody;
use tower_service::Service;

use super::health::{Health, Probe};
use super::leader_page::LeaderPage;
use crate::metrics::{METRICS_CONTENT_TYPE, Metrics};

/// What is to be had at one address.
#[derive(Clone)]
pub(super) struct Pages(Arc<Vec<Page>>);

pub(super) struct Page {
    pub path: String,
    pub content: Content,
}

pub(super) enum Content {
    Metrics(Metrics),
    Probe(Probe, Health),
    Leader(LeaderPage),
}

impl Pages {
    pub(super) fn new(pages: Vec<Page>) -> Pages {
        Pages(Arc::new(pages))
    }

    pub(super) fn answer(&self, method: &Method, path: &str, query: &str) -> Response<Full<Bytes>> {
        // A path with something behind it asks one check.
        let found = self.0.iter().find_map(|page| {
            let rest = path.strip_prefix(page.path.as_str())?;
            let is_probe = matches!(page.content, Content::Probe(..));
            (rest.is_empty() || is_probe && rest.starts_with('/')).then(|| (page, rest.trim_matches('/')))
        });
        let Some((page, only)) = found else {
            let known: Vec<&str> = self.0.iter().map(|page| page.path.as_str()).collect();
            return text(StatusCode::NOT_FOUND, format!("there is no such page; there is {}\n", known.join(", ")));
        };
        if ![Method::GET, Method::HEAD].contains(method) {
            let response = text(StatusCode::METHOD_NOT_ALLOWED, "this page can only be read: use GET\n".into());
            return with(response, ALLOW, "GET, HEAD");
        }
        match &page.content {
            Content::Metrics(metrics) => with(text(StatusCode::OK, metrics.page()), CONTENT_TYPE, METRICS_CONTENT_TYPE),
            Content::Probe(probe, health) => {
                let answer = health.answer(*probe, page.path.trim_start_matches('/'), only, query);
                let status = match (answer.found, answer.passed) {
                    (false, _) => StatusCode::NOT_FOUND,
                    (true, true) => StatusCode::OK,
                    (true, false) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                text(status, answer.text)
            }
            Content::Leader(leader) => {
                let page = leader.json();
                with(text(StatusCode::OK, format!("{page}\n")), CONTENT_TYPE, "application/json")
            }
        }
    }
}

impl Service<Request<RequestBody>> for Pages {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let uri = request.uri();
        ready(Ok(self.answer(request.method(), uri.path(), uri.query().unwrap_or_default())))
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let response = with(response, CONTENT_TYPE, "text/plain; charset=utf-8");
    let response = with(response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    with(response, CACHE_CONTROL, "no-store")
}

fn with(mut response: Response<Full<Bytes>>, name: HeaderName, value: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(name, http::HeaderValue::from_static(value));
    response
}
