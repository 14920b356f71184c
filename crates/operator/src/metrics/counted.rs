//! A client's requests, counted. In: any service that speaks HTTP, such as `kube::Client`. Out: the same service; how
//! each request ended is on the page.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use super::Metrics;

/// Counts what goes through it as `rest_client_requests_total` and `rest_client_request_duration_seconds`: until the
/// head of the answer, so a watch counts when it begins. A request that is given up before that is not counted.
#[derive(Clone)]
pub struct CountedRequests<S> {
    service: S,
    metrics: Metrics,
    host: Arc<str>,
}

impl<S> CountedRequests<S> {
    /// `host` is the API server as the label shows it: `10.0.0.1:443`.
    pub fn new(service: S, metrics: Metrics, host: &str) -> Self {
        CountedRequests { service, metrics, host: host.into() }
    }
}

/// The same client; its requests are counted.
pub(crate) fn counted(client: Client, metrics: &Metrics, host: &str) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(CountedRequests::new(Through(client), metrics.clone(), host), namespace)
}

/// A client as a service.
struct Through(Client);

impl Service<Request<Body>> for Through {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await })
    }
}

impl<S> fmt::Debug for CountedRequests<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedRequests").field("host", &self.host).finish_non_exhaustive()
    }
}

impl<S, A, B> Service<Request<A>> for CountedRequests<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let method = request.method().clone();
        let (metrics, host) = (self.metrics.clone(), self.host.clone());
        let began = Instant::now();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.requested(&method, &host, status, began.elapsed());
            answer
        })
    }
}
