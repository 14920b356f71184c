//! One connection from accept to close: handshake, then requests, then the reason it ended. The service answers; this
//! file only decides when to stop waiting. It never outlives its server.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower_service::Service;

use crate::activity::{Activity, PeerWatch, Plain, Socket, Timer};
use crate::certificates::{Authorities, Certificates, ClientCa, Presented};
use crate::counters::{Counters, count};
use crate::deadlines::Verdict;
use crate::exchange::{Client, Exchange, Protocol, RequestBody, Upgrade};
use crate::limits::Limits;
use crate::streams::Streams;
use crate::unread::Unread;
use crate::{upgrade, websocket};

/// The least hyper accepts as a buffer.
const LEAST_BUFFER: usize = 8 << 10;
/// Request bytes that one HTTP/2 stream may send before the service reads them; Kubernetes' 99th percentile object.
const STREAM_WINDOW: u32 = 256 << 10;
/// The same for all streams of a connection together.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// How far a server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// No new requests; those that run may take until then.
    Draining(Instant),
    /// Everything ends now.
    Cut,
}

/// What all connections of a server share.
pub(crate) struct Shared<S> {
    pub service: S,
    /// None: plain HTTP only.
    pub tls: Option<Security>,
    pub limits: Arc<Limits>,
    pub counters: Arc<Counters>,
    /// What waits for all peers together.
    pub unread: Arc<Unread>,
    /// Whether requests carry the address of their client.
    pub client_addresses: bool,
}

/// How connections are encrypted, and how clients prove who they are.
pub(crate) struct Security {
    certificates: Certificates,
    client_ca: Option<ClientCa>,
    /// How handshakes are made, and the CAs for clients that they are made with.
    acceptor: Mutex<(TlsAcceptor, Option<Arc<Authorities>>)>,
    /// Whether clients that do not begin with a handshake are served, too.
    plain: bool,
}

impl Security {
    pub(crate) fn new(certificates: &Certificates, client_ca: Option<ClientCa>, plain: bool) -> Self {
        let authorities = client_ca.as_ref().map(ClientCa::current);
        let acceptor = TlsAcceptor::from(certificates.server_config(authorities.as_deref()));
        Security { certificates: certificates.clone(), client_ca, acceptor: Mutex::new((acceptor, authorities)), plain }
    }

    /// How the next handshake is made: with the CAs that are believed now.
    fn acceptor(&self) -> TlsAcceptor {
        let mut made = self.acceptor.lock();
        let now = self.client_ca.as_ref().map(ClientCa::current);
        if made.1.as_ref().map(Arc::as_ptr) != now.as_ref().map(Arc::as_ptr) {
            *made = (TlsAcceptor::from(self.certificates.server_config(now.as_deref())), now);
        }
        made.0.clone()
    }

    /// The client's certificate, if it presented one.
    fn client(&self, tls: &TlsStream<Socket>) -> Option<Presented> {
        Presented::new(self.client_ca.as_ref()?, tls.get_ref().1.peer_certificates()?, SystemTime::now())
    }
}

/// Counts a connection as open until dropped.
pub(crate) struct Open(Arc<Counters>);

impl Open {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        counters.open.fetch_add(1, Ordering::Relaxed);
        Open(counters)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves one connection until it ends.
pub(crate) async fn run<S, B>(
    stream: TcpStream,
    activity: Arc<Activity>,
    shared: Arc<Shared<S>>,
    mut stage: watch::Receiver<Stage>,
) where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Answers are small and asked for one at a time; waiting to fill a packet would cost 40 ms each.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the connection was gone before it began");
        return;
    }
    let address = if shared.client_addresses { stream.peer_addr().ok() } else { None };
    let (socket, peer) = Socket::new(stream, activity.clone());
    let Some(security) = &shared.tls else {
        let client = Client { certificate: None, address };
        return requests(Plain::new(socket, activity.clone()), peer, activity, client, &shared, stage).await;
    };
    let handshake = timeout(shared.limits.handshake, handshake(security, socket));
    let outcome = tokio::select! {
        outcome = handshake => outcome,
        // Nothing was asked yet, so nothing is lost.
        _ = stage.wait_for(|stage| *stage != Stage::Serving) => return,
        () = poll_fn(|cx| activity.poll_evicted(cx)) => return,
    };
    match outcome {
        Ok(Some(Opened::Tls(tls))) => {
            activity.opened();
            let client = Client { certificate: security.client(&tls), address };
            requests(Plain::new(*tls, activity.clone()), peer, activity, client, &shared, stage).await;
        }
        Ok(Some(Opened::Plain(socket))) => {
            let client = Client { certificate: None, address };
            requests(Plain::new(socket, activity.clone()), peer, activity, client, &shared, stage).await;
        }
        Ok(None) | Err(_) => count(&shared.counters.handshake_failed),
    }
}

/// A connection that is ready for requests.
enum Opened {
    Tls(Box<TlsStream<Socket>>),
    Plain(Socket),
}

/// None: the peer does not speak TLS, or not as we do.
async fn handshake(security: &Security, mut socket: Socket) -> Option<Opened> {
    let mut first = [0; 1];
    // Every request of HTTP/1.1 and HTTP/2 begins with a capital letter, and no TLS handshake does.
    if let Ok(1) = socket.stream().peek(&mut first).await
        && first[0].is_ascii_uppercase()
    {
        if security.plain {
            return Some(Opened::Plain(socket));
        }
        // Someone typed http:// for https://. Reading first, as closing with unread bytes would drop the answer.
        let _ = socket.stream().try_read(&mut [0; 4096]);
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n\
            This port speaks HTTPS; use https:// in the address.\n";
        let _ = socket.write_all(answer).await;
        return None;
    }
    let accepted = security.acceptor().accept(socket).await;
    let tls = accepted.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed")).ok()?;
    Some(Opened::Tls(Box::new(tls)))
}

async fn requests<T, S, B>(
    io: Plain<T>,
    peer: PeerWatch,
    activity: Arc<Activity>,
    client: Client,
    shared: &Shared<S>,
    stage: watch::Receiver<Stage>,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let streams = Streams::new(shared.limits.clone(), shared.counters.clone(), activity.clone());
    let guard = streams.guard();
    drive(io, peer, activity, client, shared, stage, streams).await;
    guard.end().await;
}

async fn drive<T, S, B>(
    io: Plain<T>,
    peer: PeerWatch,
    activity: Arc<Activity>,
    client: Client,
    shared: &Shared<S>,
    mut stage: watch::Receiver<Stage>,
    streams: Streams,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Shared { service, limits, counters, .. } = shared;
    let builder = builder(limits, streams);
    let upgrade = Arc::new(Mutex::new(None));
    let exchange = Exchange {
        service: service.clone(),
        client,
        activity: activity.clone(),
        limits: limits.clone(),
        counters: counters.clone(),
        upgrade: upgrade.clone(),
    };
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), exchange));
    let mut timer = Timer::default();
    let mut closing = false;
    let mut left = pin!(peer.left());
    let mut has_left = false;
    loop {
        // In this order: whether time is up is asked after the connection had its turn.
        let verdict = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "a connection ended early");
                }
                break;
            }
            changed = stage.changed() => {
                if changed.is_err() || *stage.borrow_and_update() == Stage::Cut {
                    return;
                }
                Verdict::Idle
            }
            () = left.as_mut(), if !has_left => {
                has_left = true;
                activity.peer_left();
                continue;
            }
            verdict = poll_fn(|cx| activity.poll_due(&mut timer, cx)) => verdict,
        };
        match verdict {
            Verdict::Idle if !closing => {
                closing = true;
                connection.as_mut().graceful_shutdown();
                activity.closing();
                continue;
            }
            Verdict::Idle | Verdict::PeerLeft => {}
            Verdict::Header => count(&counters.header_timeout),
            Verdict::WriteStall => {
                count(&counters.write_stalled);
                activity.reset_on_close();
            }
            Verdict::Flood => {
                count(&counters.flooded);
                activity.reset_on_close();
            }
        }
        tracing::debug!(reason = ?verdict, "closed a connection");
        return;
    }
    let upgrade = upgrade.lock().take();
    if let Some(upgrade) = upgrade {
        converse(upgrade, &activity, limits, counters, stage).await;
    }
}

/// The rest of a connection that stopped speaking HTTP.
async fn converse<B>(
    upgrade: Upgrade<B>,
    activity: &Activity,
    limits: &Limits,
    counters: &Counters,
    mut stage: watch::Receiver<Stage>,
) where
    B: Body<Data = Bytes> + Send + 'static,
{
    let Upgrade { io, protocol, messages, input } = upgrade;
    let Ok(io) = io.await else { return };
    let io = TokioIo::new(io);
    let messages = pin!(messages);
    let session = async {
        match (protocol, input) {
            (Protocol::WebSocket(kind), input) => websocket::serve(io, messages, kind, input, limits).await,
            (Protocol::Other, Some(input)) => {
                upgrade::serve(io, messages, input, limits.write_stall).await;
                websocket::End::Done
            }
            // A service that reads nothing of its client has nothing to agree on with it.
            (Protocol::Other, None) => websocket::End::Done,
        }
    };
    let mut timer = Timer::default();
    tokio::select! {
        biased;
        end = session => {
            if end == websocket::End::Flood {
                count(&counters.flooded);
                activity.reset_on_close();
            }
            tracing::debug!(?end, "an upgraded connection ended");
        }
        // Whoever stops the service ends its messages; what goes on after that is cut.
        _ = stage.wait_for(|stage| *stage == Stage::Cut) => {}
        verdict = poll_fn(|cx| activity.poll_due(&mut timer, cx)) => {
            // The request runs as long as the session, so that only this can be due.
            if verdict == Verdict::WriteStall {
                count(&counters.write_stalled);
                activity.reset_on_close();
            }
            tracing::debug!(reason = ?verdict, "closed an upgraded connection");
        }
    }
}

fn builder(limits: &Limits, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper's own timeout also runs on kept connections, where it would end them long before a client's pool does.
        .header_read_timeout(None)
        .max_headers(limits.header_count)
        .max_buf_size(limits.header_bytes.max(LEAST_BUFFER));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(limits.pending_resets)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(limits.stream_buffer)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(limits.ping_after)
        .keep_alive_timeout(limits.ping_answer);
    builder
}
