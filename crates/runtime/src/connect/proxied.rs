//! Connections through the proxy of a kubeconfig (`proxy-url`). In: clients of kube, which know how to use a proxy. Out:
//! their responses, marked as possibly half open, because a proxy may keep a connection open whose other half is gone.
//! kube's pool keeps idle connections for long, so watches have a client of their own and close their connections.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, header};
use kube::client::Body;
use kube::{Client, Result};
use tower_service::Service;

use super::{MayBeHalfOpen, is_watch};

#[derive(Clone)]
pub(super) struct Proxied {
    pub requests: Client,
    /// Opens a new connection for each watch.
    pub watches: Client,
}

impl Service<Request<Body>> for Proxied {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let client = if is_watch(&request) {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            self.watches.clone()
        } else {
            self.requests.clone()
        };
        Box::pin(async move {
            let mut response = client.send(request).await?;
            response.extensions_mut().insert(MayBeHalfOpen);
            Ok(response)
        })
    }
}
