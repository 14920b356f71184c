//! The way to a cluster through a proxy that somebody configured. In: clients of kube, which know how to speak to it. Out:
//! their answers, marked: a proxy is what keeps a connection open whose other half is gone. kube keeps idle connections for
//! as long as it likes, so watches have a client of their own and leave none behind.

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
    /// Each takes a connection of its own.
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
            let mut answer = client.send(request).await?;
            answer.extensions_mut().insert(MayBeHalfOpen);
            Ok(answer)
        })
    }
}
