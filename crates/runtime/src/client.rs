//! What every request of an operator passes on its way to the cluster. In: a transport, gates and a meter. Out: a client.
//! The watches, the writer, the recorder and the reconciles of an operator use one such client, so nothing gets around it.
//!
//! ```text
//! gate.check → pass → transport, until the pass is revoked → retry_after → meter → gate.done
//! ```

mod retry_after;

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower_service::Service;

use retry_after::{BodyWithRetryAfter, copy_retry_after_into_status};

use crate::gate::{WriteGate, WriteOutcome, WriteRefused};
use crate::reconciler::BoxFuture;
use crate::request::RequestInfo;

type BoxError = Box<dyn StdError + Send + Sync>;

/// What goes around the transport of a client: gates that are asked before each write, and a meter that hears of each
/// request. Whatever is around it, errors of such a client know how long a busy server wants to be left alone.
///
/// ```
/// use std::sync::Arc;
/// use konverge_runtime::{ClientLayers, RequestInfo, WriteRefused};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> kube::Result<()> {
/// # let client = konverge_runtime::connect(kube::Config::new("http://127.0.0.1:8080".parse().expect("it is a URL")))?;
/// let read_only = |_: &RequestInfo| Err(WriteRefused::new("ReadOnly", "this operator only looks"));
/// let client = ClientLayers::new().gate(Arc::new(read_only)).around(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "layers do nothing until they are put around a client"]
pub struct ClientLayers {
    gates: Vec<Arc<dyn WriteGate>>,
    meter: Option<Arc<dyn RequestMeter>>,
}

/// Told about each request of a client.
pub trait RequestMeter: Send + Sync + 'static {
    /// Called after each request, with the code of the answer and how long it took; the code is none if no answer came. For
    /// a watch it is called when the response begins. It is not called for a request that its caller gives up before that.
    fn requested(&self, method: &Method, code: Option<u16>, took: Duration);
}

impl ClientLayers {
    /// No gate and no meter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks this gate before each write. Several are asked in the order they were added, and the first that refuses ends
    /// it.
    pub fn gate(mut self, gate: Arc<dyn WriteGate>) -> Self {
        self.gates.push(gate);
        self
    }

    /// Tells this meter about each request.
    pub fn meter(mut self, meter: Arc<dyn RequestMeter>) -> Self {
        self.meter = Some(meter);
        self
    }

    /// The same client with these layers.
    pub fn around(self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        self.over(ClientService(client), &namespace)
    }

    /// A client over a transport, such as an API server in the same process.
    pub fn over<S, B>(self, transport: S, default_namespace: &str) -> Client
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let layers = Arc::new(self);
        Client::new(Layered { transport, layers }, default_namespace)
    }
}

/// A transport with layers around it.
#[derive(Clone)]
struct Layered<S> {
    transport: S,
    layers: Arc<ClientLayers>,
}

impl<S, B> Service<Request<Body>> for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<BodyWithRetryAfter<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.transport.poll_ready(cx).map_err(Into::into)
    }

    /// Everything happens when the answer is awaited, on the task of the caller: a gate that panics ends one reconcile,
    /// and not the task that all users of the client share.
    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready, not its clone.
        let next = self.transport.clone();
        let mut transport = std::mem::replace(&mut self.transport, next);
        let layers = self.layers.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let mut write = match layers.gates.is_empty() {
                true => None,
                false => PassedWrite::begin(&layers, RequestInfo::of(&parts))?,
            };
            if let Some(write) = &mut write {
                parts.headers.extend(write.headers.drain(..));
            }
            let (method, began) = (parts.method.clone(), Instant::now());
            // Not before it is polled: some transports send as soon as they are called.
            let answer = async move { transport.call(Request::from_parts(parts, body)).await.map_err(Into::into) };
            let answer = match &mut write {
                Some(write) => write.unless_revoked(answer).await,
                None => answer.await,
            };
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            if let (Some(write), Some(code)) = (&mut write, code) {
                write.outcome = WriteOutcome::Answered(code);
            }
            if let Some(meter) = &layers.meter {
                meter.requested(&method, code, began.elapsed());
            }
            copy_retry_after_into_status(answer?).await
        })
    }
}

/// A write that was let pass. Its gates are told how it ended when this is dropped: also if its caller gave it up.
struct PassedWrite<'a> {
    passed: Vec<&'a dyn WriteGate>,
    /// What the gates' passes say: headers of the request, and when it is not to be waited for any longer.
    headers: Vec<(HeaderName, HeaderValue)>,
    revoked: FuturesUnordered<BoxFuture<WriteRefused>>,
    request: RequestInfo,
    outcome: WriteOutcome,
}

impl<'a> PassedWrite<'a> {
    /// Asks the gates; there is nothing to ask about a read.
    fn begin(layers: &'a ClientLayers, request: RequestInfo) -> Result<Option<Self>, WriteRefused> {
        if !request.writes() {
            return Ok(None);
        }
        let (passed, headers, revoked) = (Vec::new(), Vec::new(), FuturesUnordered::new());
        let mut write = Self { passed, headers, revoked, request, outcome: WriteOutcome::Refused };
        for gate in &layers.gates {
            let pass = gate.check(&write.request)?;
            write.passed.push(&**gate);
            write.headers.extend(pass.header);
            write.revoked.extend(pass.revoked);
        }
        Ok(Some(write))
    }

    /// The answer, if it comes before one of the passes is revoked. A pass that is revoked already sends nothing.
    async fn unless_revoked<T>(&mut self, answer: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
        if let Some(why) = self.revoked.next().now_or_never().flatten() {
            return Err(why.into());
        }
        self.outcome = WriteOutcome::Unanswered;
        if self.revoked.is_empty() {
            return answer.await;
        }
        tokio::select! {
            // The request may not be sent when it is polled first: it may wait for a connection.
            biased;
            Some(why) = self.revoked.next() => Err(Revoked(why).into()),
            answer = answer => answer,
        }
    }
}

/// Nobody waits for the answer to a write any longer.
#[derive(Debug, thiserror::Error)]
#[error("{0}; no answer came before, so it is not known whether the server did it")]
struct Revoked(WriteRefused);

impl Drop for PassedWrite<'_> {
    fn drop(&mut self) {
        for gate in &self.passed {
            gate.done(&self.request, self.outcome);
        }
    }
}

/// A client as a transport.
#[derive(Clone)]
struct ClientService(Client);

impl Service<Request<Body>> for ClientService {
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

#[cfg(test)]
mod tests;
