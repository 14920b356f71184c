//! One request and its response. The service gets a body that gives up on a peer that stops sending; hyper gets a body
//! that counts the request as in flight until it is gone, and on HTTP/2 hands out small slices so that it shows when
//! nobody reads. Neither looks at the bytes.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower_service::Service;

use crate::counters::{Counters, count};
use crate::limits::Limits;
use crate::pulse::{InFlight, Pulse, Timer};
use crate::streams::StreamPulse;

/// Largest piece of a response given to an HTTP/2 stream at once: one DATA frame.
const SLICE: usize = 16 << 10;

/// Hands hyper's requests to the service of one connection.
#[derive(Clone)]
pub(crate) struct Exchange<S> {
    pub service: S,
    pub pulse: Arc<Pulse>,
    pub limits: Arc<Limits>,
    pub counters: Arc<Counters>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Exchange<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        count(&self.counters.requests);
        let in_flight = self.pulse.request();
        let request = request.map(|incoming| RequestBody {
            incoming,
            waiting_since: None,
            began: None,
            timer: Timer::default(),
            idle: self.limits.body_idle,
            total: self.limits.body_total,
            counters: self.counters.clone(),
        });
        let mut service = self.service.clone();
        Box::pin(async move {
            std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
            let response = service.call(request).await?;
            // Asked for here, where hyper works on the stream; `call` runs in the connection's task.
            let stream = StreamPulse::current();
            Ok(response.map(|inner| ResponseBody {
                inner: Box::pin(inner),
                rest: Bytes::new(),
                stream,
                _in_flight: in_flight,
            }))
        })
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    began: Option<Instant>,
    waiting_since: Option<Instant>,
    timer: Timer,
    idle: Duration,
    total: Duration,
    counters: Arc<Counters>,
}

/// Why a request's body ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The peer paused for too long or took too long in all. The answer is 408; the connection closes behind it.
    #[error("the request body did not arrive in time")]
    Timeout,
    /// The connection broke, or what came is not HTTP.
    #[error("the request body broke off")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) {
            this.waiting_since = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| BodyError::Broken(error.into()))));
        }
        let now = Instant::now();
        let began = *this.began.get_or_insert(now);
        let waiting_since = *this.waiting_since.get_or_insert(now);
        let at = (waiting_since + this.idle).min(began + this.total);
        while at > Instant::now() {
            ready!(this.timer.poll_at(at, cx));
        }
        count(&this.counters.body_timeout);
        Poll::Ready(Some(Err(BodyError::Timeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of a response on its way out.
#[derive(Debug)]
pub struct ResponseBody<B> {
    inner: Pin<Box<B>>,
    /// What a slice was cut from.
    rest: Bytes,
    stream: Option<Arc<StreamPulse>>,
    _in_flight: InFlight,
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let Some(stream) = &this.stream else { return this.inner.as_mut().poll_frame(cx) };
        stream.asked();
        let mut data = std::mem::take(&mut this.rest);
        if data.is_empty() {
            match ready!(this.inner.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => data = bytes,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        if data.len() > SLICE {
            this.rest = data.split_off(SLICE);
        }
        stream.handed_out(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.inner.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
