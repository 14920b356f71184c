//! The spine: from an HTTP request to its answer. In: any request. Out: always an answer; every failure is a `Status`.
//!
//! ```text
//! who asks → parse → audit → impersonate → authorize → which resource → body → is there a slot? → get | list | watch | create | update | patch | delete → render
//! ```

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use tower_service::Service;

use konverge_core::Status;

use crate::audit::Ending;
use crate::authorize::{Asked, authorize};
use crate::body::{self, Body};
use crate::context::{AUDIT_ID, RequestContext};
use crate::handler::{Handler, ObjectRequest};
use crate::impersonate::{ImpersonatedUser, impersonated};
use crate::in_flight::{RequestKind, too_many_requests, with_slot};
use crate::metrics::RequestLabels;
use crate::request::{self, Endpoint, ObjectPath, Query};
use crate::resource::Resource;
use crate::response::{encode_failure, failure, failure_of, internal_error, no_such_resource, not_found_page, warn};
use crate::server::{ActingAs, ApiServer, Server};
use crate::user::{self, MASTERS};
use crate::{crd, documents, work};

/// How often a request is processed again because the definition of its kind has changed meanwhile.
const MAX_CHANGES: usize = 8;

impl<B> Service<Request<B>> for ApiServer
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
        let server = self.0.clone();
        Box::pin(async move { Ok(serve(server, request).await) })
    }
}

impl<B> Service<Request<B>> for ActingAs
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.user.clone());
        self.server.call(request)
    }
}

/// Answers one request. A panic fails this request alone.
async fn serve<B>(server: Arc<Server>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let began = Instant::now();
    let (mut parts, body) = request.into_parts();
    let query = Arc::new(Query::parse(parts.uri.query()));
    let limit = server.workers.limits().timeout;
    let mut context = RequestContext::of_request(&mut parts, &query, began + limit, &*server.env);
    let parts = Arc::new(parts);
    let endpoint = request::endpoint(parts.uri.path());
    let kind = RequestKind::of(&parts.method, &endpoint, &query);
    context.audit = server.audit.as_ref().and_then(|auditor| {
        let asked = Asked::new(&parts, &endpoint, &query);
        auditor.begin(&parts, &asked.by(&context.user), Some(&context.user), &context.audit_id)
    });
    let ending = Ending::new(context.audit.as_ref(), kind == RequestKind::LongRunning);
    let request = ParsedRequest { context, parts, query, endpoint, kind, began, known: AtomicBool::new(false) };
    // A watch answers at once and then goes on; every other request has to be answered in time.
    // Pinned, as it is large, and whatever wraps it would move it.
    let answer = std::pin::pin!(answer(&server, &request, body));
    let answer = tokio::time::timeout(limit, answer);
    let (response, ending) = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(Ok(response))) => (response, ending),
        Ok(Ok(Err(status))) => (failure(&status), ending),
        Ok(Err(_)) => (failure(&work::timed_out()), ending),
        Err(payload) => {
            let (audit_id, path) = (&*request.context.audit_id, request.parts.uri.path());
            tracing::error!(audit_id, method = %request.parts.method, path, "a request ended in a panic");
            ending.panicked(panic_text(&*payload)).await;
            let status = Status::internal("the request ended in a panic; the server's log has more");
            (failure(&status), Ending::new(None, false))
        }
    };
    let response = request.counted(&server, request.context.finished(&request.parts, response));
    ending.answered(response).await
}

/// What a panic says.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

impl ApiServer {
    /// Answers a request that [`authenticate`](Self::authenticate) has refused: with this failure, which the audit log has, too.
    pub async fn refuse(&self, mut parts: Parts, refused: &Status) -> Response<Body> {
        let (server, query) = (&self.0, Query::parse(parts.uri.query()));
        let mut context = RequestContext::of_request(&mut parts, &query, Instant::now(), &*server.env);
        context.audit = server.audit.as_ref().and_then(|auditor| {
            let endpoint = request::endpoint(parts.uri.path());
            // Nobody knows who asks, so that rules about users do not match.
            let (asked, nobody) = (Asked::new(&parts, &endpoint, &query), user::anonymous());
            auditor.begin(&parts, &asked.by(&nobody), None, &context.audit_id)
        });
        let response = context.finished(&parts, failure(refused));
        if let Some(audit) = &context.audit {
            audit.unauthorized().await;
        }
        response
    }
}

impl RequestContext {
    /// An answer with what every answer has, in the encoding that its client reads. The audit log is told of a failure.
    fn finished(&self, parts: &Parts, response: Response<Body>) -> Response<Body> {
        if let (Some(audit), Some(status)) = (&self.audit, failure_of(&response)) {
            audit.answers_status(status, status.code);
        }
        let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let mut response = encode_failure(response, accept);
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let audit_id = HeaderValue::try_from(&*self.audit_id).expect("it came in a header, or is a uuid");
        headers.insert(AUDIT_ID.clone(), audit_id);
        response
    }
}

/// What the head of a request says.
struct ParsedRequest {
    context: RequestContext,
    parts: Arc<Parts>,
    query: Arc<Query>,
    endpoint: Endpoint,
    kind: RequestKind,
    began: Instant,
    /// Whether the server has what the request is about. Only then is it counted: a client can name things without end.
    known: AtomicBool,
}

impl ParsedRequest {
    /// Counts the request in the metrics: now, or when its answer ends if it runs long.
    fn counted(&self, server: &Server, response: Response<Body>) -> Response<Body> {
        let labels = match &self.endpoint {
            Endpoint::Objects(target) if self.known.load(Relaxed) => {
                RequestLabels::of(&self.parts, target, &self.query)
            }
            Endpoint::Health { probe, check: None } => RequestLabels::of_probe(probe),
            _ => return response,
        };
        let code = response.status();
        if self.kind == RequestKind::LongRunning && (code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS) {
            let running = server.metrics.running(labels, code.as_u16(), self.began);
            return response.map(|body| body.guarded(running));
        }
        server.metrics.answered(labels, code.as_u16(), self.began.elapsed());
        response
    }
}

async fn answer<B>(server: &Arc<Server>, request: &ParsedRequest, body: B) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let ParsedRequest { context, parts, query, endpoint, kind, .. } = request;
    let audit = context.audit.as_deref();
    if let Some(audit) = audit
        && !audit.received().await
    {
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        return Ok(internal_error(uri, "failed to store audit event"));
    }
    let asked = Asked::new(parts, endpoint, query);
    let context = &match impersonated(&*server.authorizer, &context.user, &parts.headers, &asked).await? {
        None => context.clone(),
        Some(ImpersonatedUser { user, constraint }) => {
            let user = Arc::new(user);
            if let Some(audit) = audit {
                audit.impersonated(&user, constraint);
            }
            context.with_user(user)
        }
    };
    let allowed = authorize(&*server.authorizer, &context.user, &asked, audit).await;
    if is_known(server, endpoint) {
        server.rights.note(&asked.by(&context.user), allowed.is_ok());
    }
    allowed?;
    let enter = |body| server.in_flight.enter(*kind, &context.user, body, Instant::now());
    match endpoint {
        Endpoint::Objects(target) => {
            let Some(mut resource) = find(server, target) else { return not_served(server, target) };
            if let Some(audit) = audit.filter(|_| resource.deprecation.is_some()) {
                audit.is_deprecated();
            }
            let subresource = target.subresource.as_deref();
            request.known.store(subresource.is_none_or(|name| resource.subresource(name).is_some()), Relaxed);
            let master = context.user.groups.iter().any(|group| group == MASTERS);
            let mut room = if master { server.bodies_of_masters.body() } else { server.bodies.body() };
            let body = if request::writes(&parts.method) { body::read(body, &mut room).await? } else { Bytes::new() };
            let Some(slot) = enter(body.len()) else { return Ok(too_many_requests()) };
            let slot = Arc::new(slot);
            let (context, parts) = (context.clone(), parts.clone());
            let request = ObjectRequest { context, parts, target: target.clone(), query: query.clone(), body };
            let request = Arc::new(request);
            let mut changes = 0;
            loop {
                let handler = Arc::new(Handler::new(server, &resource, &request));
                let answer = server.workers.run(move |budget| {
                    let handler = handler.clone();
                    async move { handler.handle(&budget).await }
                });
                let answer = with_slot(Some(slot.clone()), answer).await;
                // Nothing is committed through a resource that is no longer what the definition of its kind says.
                if changes < MAX_CHANGES && answer.as_ref().is_err_and(crd::is_outdated) {
                    changes += 1;
                    crd::catch_up(server);
                    match find(server, &request.target) {
                        Some(current) => resource = current,
                        None => return not_served(server, &request.target),
                    }
                    continue;
                }
                let mut response = answer.unwrap_or_else(|status| failure(&status));
                warn(&mut response, resource.deprecation.iter().map(|text| &**text));
                return Ok(response);
            }
        }
        Endpoint::Unknown => Ok(not_found_page()),
        document => {
            let Some(_slot) = enter(0) else { return Ok(too_many_requests()) };
            documents::answer(server, parts, document).await
        }
    }
}

/// Whether the server has what a path names.
fn is_known(server: &Server, endpoint: &Endpoint) -> bool {
    match endpoint {
        Endpoint::Objects(target) => {
            let found = server.registry.find(&target.group, &target.version, &target.resource);
            let subresource = target.subresource.as_deref();
            found.is_some_and(|resource| subresource.is_none_or(|name| resource.subresource(name).is_some()))
        }
        Endpoint::Unknown => false,
        _ => true,
    }
}

/// The resource that a path names. A client that has seen a definition in the store must find its kind served.
fn find(server: &Server, target: &ObjectPath) -> Option<Arc<Resource>> {
    let find = || server.registry.find(&target.group, &target.version, &target.resource);
    let found = find().or_else(|| {
        crd::catch_up(server);
        find()
    });
    found.filter(|resource| resource.namespaced || target.namespace.is_none())
}

/// Built-in groups answer with a `Status` for a resource that they do not have; for other groups there is no page.
fn not_served(server: &Server, target: &ObjectPath) -> Result<Response<Body>, Status> {
    let known = server.registry.builds_in(&target.group);
    if known { Err(no_such_resource()) } else { Ok(not_found_page()) }
}
