//! One request and its response. The service gets a body that gives up on a peer that stops sending; hyper gets a body
//! that counts the request as in flight until it is gone, counts its bytes until they are sent, and hands out small
//! slices so that it shows when nobody reads. Neither looks at the bytes.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use crate::activity::{Activity, InFlight, Timer};
use crate::certificates::Presented;
use crate::counters::{Counters, count};
use crate::limits::Limits;
use crate::streams::{Held, StreamActivity};
use crate::unread::{Charge, Unread};
use crate::upgrade::{self, ClientMessages, Input};
use crate::websocket::{self, Handshake, Refused};

/// Largest piece of a response given to an HTTP/2 stream at once: one DATA frame.
const SLICE: usize = 16 << 10;

/// The same on HTTP/1.1, where nothing limits a piece but what hyper copies it into.
const HTTP1_SLICE: usize = 64 << 10;

/// The largest rest of a request's body that is read and forgotten, so that the connection can be kept and clients that send
/// everything before they read get their answer. kube-apiserver reads 3 MB before it refuses a body, and Go drains 256 KB.
const DRAIN_BYTES: usize = 4 << 20;

/// How long the answer waits for that rest.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// What requests carry of the client of their connection.
pub(crate) struct Client {
    /// The certificate that it presented.
    pub certificate: Option<Presented>,
    /// Where it is, if the service wants to know.
    pub address: Option<SocketAddr>,
}

/// Hands hyper's requests to the service of one connection.
pub(crate) struct Exchange<S, B> {
    pub service: S,
    pub client: Client,
    pub activity: Arc<Activity>,
    pub limits: Arc<Limits>,
    pub counters: Arc<Counters>,
    /// Where the connection finds what it is to become after the last answer.
    pub upgrade: Arc<Mutex<Option<Upgrade<B>>>>,
}

/// A connection that stops speaking HTTP.
pub(crate) struct Upgrade<B> {
    pub io: OnUpgrade,
    pub protocol: Protocol,
    pub messages: ResponseBody<B>,
    /// Where what the client sends goes, if the service reads it.
    pub input: Option<Input>,
}

/// What it speaks instead.
pub(crate) enum Protocol {
    WebSocket(websocket::Kind),
    /// What the service and its client agreed on.
    Other,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Exchange<S, B>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        count(&self.counters.requests);
        let in_flight = self.activity.request();
        let unread = self.activity.unread();
        if let Some(why) = bad_host(&request) {
            return Box::pin(std::future::ready(Ok(refusal(StatusCode::BAD_REQUEST, why, in_flight, unread))));
        }
        let handshake = match Handshake::from_request(&request) {
            None => None,
            Some(Ok(handshake)) => Some(handshake),
            Some(Err(refused)) => {
                let (code, why) = refused.words();
                let mut response = refusal(code, why, in_flight, unread);
                if refused == Refused::Version {
                    response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                }
                return Box::pin(std::future::ready(Ok(response)));
            }
        };
        let asked = upgrade::is_requested(&request).then(|| {
            let (messages, sender) = ClientMessages::new();
            request.extensions_mut().insert(messages.clone());
            (hyper::upgrade::on(&mut request), messages, sender, self.upgrade.clone())
        });
        if let Some(certificate) = &self.client.certificate {
            request.extensions_mut().insert(certificate.examine(SystemTime::now()));
        }
        if let Some(address) = self.client.address {
            request.extensions_mut().insert(address);
        }
        let rest = Arc::new(Mutex::new(Rest::Taken));
        let http1 = request.version() < Version::HTTP_2;
        let head = request.method() == Method::HEAD;
        let probe = self.limits.is_probe(request.uri().path());
        let expects = request.headers().contains_key(header::EXPECT);
        let request = request.map(|incoming| RequestBody {
            incoming: Some(incoming),
            rest: rest.clone(),
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
            // An answer that is made at once is in memory before anybody can wait for it to be read.
            if !probe {
                unread.room().await;
            }
            let mut response = service.call(request).await?;
            let made = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
            let ready = (made > 0).then(|| unread.charge(made));
            // Over HTTP/2 only the stream ends early.
            if !drained(&rest, expects).await && http1 {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // Asked for here, where hyper works on the stream; `call` runs in the connection's task.
            let stream = StreamActivity::current();
            let slice = if stream.is_some() { SLICE } else { HTTP1_SLICE };
            // Over HTTP/2 a body is an error of the protocol where there must be none; over HTTP/1 hyper leaves it out itself.
            let bodiless =
                !http1 && (head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED));
            if bodiless
                && head
                && let Some(length) = response.body().size_hint().exact()
            {
                response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
            }
            let mut response = response.map(|inner| ResponseBody {
                inner: (!bodiless).then(|| Box::pin(inner)),
                rest: Bytes::new(),
                ready,
                room: None,
                unread: unread.clone(),
                probe,
                slice,
                unasked: stream.as_ref().map(|stream| stream.hold(Instant::now())),
                stream,
                _in_flight: Some(in_flight),
            });
            if response.status() == StatusCode::SWITCHING_PROTOCOLS
                && let Some((io, client, sender, upgrade)) = asked
            {
                let protocol = match handshake {
                    Some(handshake) => Protocol::WebSocket(handshake.answer(response.headers_mut())),
                    None => {
                        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                        Protocol::Other
                    }
                };
                let input = client.is_taken().then(|| Input::new(sender));
                let (head, mut messages) = response.into_parts();
                // A piece is a message, whatever its length.
                messages.slice = usize::MAX;
                *upgrade.lock() = Some(Upgrade { io, protocol, messages, input });
                response = Response::from_parts(head, ResponseBody::of(Bytes::new(), None, unread));
            }
            Ok(response)
        })
    }
}

/// Why a request is refused for its Host header, in the words of Go's server. Of two hosts, a proxy between client and server
/// may take another one than the server.
fn bad_host<B>(request: &Request<B>) -> Option<&'static str> {
    match request.headers().get_all(header::HOST).iter().count() {
        0 if request.version() == Version::HTTP_11 && request.method() != Method::CONNECT => {
            Some("400 Bad Request: missing required Host header")
        }
        0 | 1 => None,
        _ => Some("400 Bad Request: too many Host headers"),
    }
}

fn refusal<B>(
    code: StatusCode,
    why: &'static str,
    in_flight: InFlight,
    unread: Arc<Unread>,
) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::of(Bytes::from_static(why.as_bytes()), Some(in_flight), unread));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What the service left of a request's body.
enum Rest {
    /// Nothing, or the service still reads.
    Taken,
    /// This.
    Left(Incoming),
    /// Nothing that will come in time.
    Lost,
}

/// Reads and forgets a small rest of a body, so that the next request can follow it; otherwise the connection has to be
/// closed, and the client is to be told.
async fn drained(rest: &Mutex<Rest>, expects: bool) -> bool {
    let left = std::mem::replace(&mut *rest.lock(), Rest::Taken);
    let mut incoming = match left {
        Rest::Taken => return true,
        Rest::Lost => return false,
        // Reading would ask a client that waits to be asked to send what nobody wants.
        Rest::Left(_) if expects => return false,
        Rest::Left(incoming) => incoming,
    };
    if incoming.size_hint().lower() > DRAIN_BYTES as u64 {
        return false;
    }
    let mut read = 0;
    let all = std::future::poll_fn(|cx| {
        loop {
            match ready!(Pin::new(&mut incoming).poll_frame(cx)) {
                None => return Poll::Ready(true),
                Some(Err(_)) => return Poll::Ready(false),
                Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
            }
            if read > DRAIN_BYTES {
                return Poll::Ready(false);
            }
        }
    });
    timeout(DRAIN_TIME, all).await.unwrap_or(false)
}

/// The body of a request.
pub struct RequestBody {
    /// There until this is dropped.
    incoming: Option<Incoming>,
    rest: Arc<Mutex<Rest>>,
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
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(incoming).poll_frame(cx) {
            this.waiting_since = None;
            if frame.is_none() {
                this.incoming = None;
            }
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
        this.incoming = None;
        *this.rest.lock() = Rest::Lost;
        Poll::Ready(Some(Err(BodyError::Timeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take()
            && !incoming.is_end_stream()
        {
            *self.rest.lock() = Rest::Left(incoming);
        }
    }
}

impl std::fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBody").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

/// The body of a response on its way out.
pub struct ResponseBody<B> {
    /// None for what the listener itself answers.
    inner: Option<Pin<Box<B>>>,
    /// What a slice was cut from.
    rest: Bytes,
    /// Counts what was there before the first piece was asked for.
    ready: Option<Charge>,
    /// Waits for room for the next piece.
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    unread: Arc<Unread>,
    /// Never waits for room.
    probe: bool,
    /// The largest piece that is handed out.
    slice: usize,
    stream: Option<Arc<StreamActivity>>,
    /// There while hyper does not ask for more, as the peer takes nothing.
    unasked: Option<Held>,
    _in_flight: Option<InFlight>,
}

impl<B> ResponseBody<B> {
    /// What the listener itself answers.
    fn of(text: Bytes, in_flight: Option<InFlight>, unread: Arc<Unread>) -> Self {
        Self {
            inner: None,
            rest: text,
            ready: None,
            room: None,
            unread,
            probe: false,
            slice: HTTP1_SLICE,
            stream: None,
            unasked: None,
            _in_flight: in_flight,
        }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        this.unasked = None;
        let mut data = std::mem::take(&mut this.rest);
        if data.is_empty() {
            let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
            // What is ready is in memory, whether it is handed out or not. There is nearly always room, and then this costs
            // nothing: a watch comes here with every event.
            if this.ready.is_none() && !this.probe && (this.room.is_some() || !this.unread.has_room()) {
                let unread = &this.unread;
                let room = this.room.get_or_insert_with(|| {
                    let unread = unread.clone();
                    Box::pin(async move { unread.room().await })
                });
                ready!(room.as_mut().poll(cx));
                this.room = None;
            }
            let frame = ready!(inner.as_mut().poll_frame(cx));
            this.ready = None;
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => data = this.unread.counted(bytes),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        if data.len() > this.slice {
            this.rest = data.split_off(this.slice);
        }
        if let Some(stream) = &this.stream {
            let now = Instant::now();
            this.unasked = Some(stream.hold(now));
            data = stream.watched(data, now);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), |inner| inner.size_hint());
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl<B> std::fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}
