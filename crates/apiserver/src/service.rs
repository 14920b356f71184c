//! The spine: from an HTTP request to its answer. In: any request. Out: always an answer; every failure is a `Status`.
//!
//! ```text
//! who asks → parse → authorize → which resource → get | list | watch | create | update | patch | delete → render
//! ```

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use tower_service::Service;

use konverge_core::Status;

use crate::authorize::authorize;
use crate::body::{self, Body};
use crate::context::{AUDIT_ID, RequestContext};
use crate::handler::{Handler, ObjectRequest};
use crate::request::{self, Endpoint, ObjectPath, Query};
use crate::resource::Resource;
use crate::response::{failure, no_such_resource, not_found_page, warn};
use crate::server::{ApiServer, Server};
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

/// Answers one request. A panic fails this request alone.
async fn serve<B>(server: Arc<Server>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let context = RequestContext::of_request(&mut parts, &query, &*server.env);
    let parts = Arc::new(parts);
    // A watch answers at once and then goes on; every other request has to be answered in time.
    let limit = server.workers.limits().timeout;
    let answer = tokio::time::timeout(limit, answer(&server, &context, &parts, query, body));
    let mut response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(Ok(Ok(response))) => response,
        Ok(Ok(Err(status))) => failure(&status),
        Ok(Err(_)) => failure(&work::timed_out()),
        Err(_) => {
            let (audit_id, path) = (&*context.audit_id, parts.uri.path());
            tracing::error!(audit_id, method = %parts.method, path, "a request ended in a panic");
            failure(&Status::internal("the request ended in a panic; the server's log has more"))
        }
    };
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    let audit_id = HeaderValue::try_from(&*context.audit_id).expect("it came in a header, or is a uuid");
    headers.insert(AUDIT_ID, audit_id);
    response
}

async fn answer<B>(
    server: &Arc<Server>,
    context: &RequestContext,
    parts: &Arc<Parts>,
    query: Query,
    body: B,
) -> Result<Response<Body>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let endpoint = request::endpoint(parts.uri.path());
    authorize(&*server.authorizer, context, parts, &endpoint, &query).await?;
    match endpoint {
        Endpoint::Objects(target) => {
            let Some(mut resource) = find(server, &target) else { return not_served(server, &target) };
            let body = if request::writes(&parts.method) { body::read(body).await? } else { Bytes::new() };
            let request = ObjectRequest { context: context.clone(), parts: parts.clone(), target, query, body };
            let request = Arc::new(request);
            let mut changes = 0;
            loop {
                let handler = Arc::new(Handler::new(server, &resource, &request));
                let answer = server.workers.run(move |budget| {
                    let handler = handler.clone();
                    async move { handler.handle(&budget).await }
                });
                let answer = answer.await;
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
        document => documents::answer(server, parts, &document),
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
    let known = server.registry.builds_in(&target.group, &target.version);
    if known { Err(no_such_resource()) } else { Ok(not_found_page()) }
}
