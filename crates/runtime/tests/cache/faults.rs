//! A server in process with faults in front of it. A [`Plan`] says for each request what becomes of it; every request
//! and every open watch is counted. Time is tokio's, and stands still in tests.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use konverge_apiserver::{ApiServer, Collector, Options};
use konverge_runtime::{Caches, WatchSettings};
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

/// Which request this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    /// A list, or a page of one.
    List { continues: bool },
    /// A watch that begins with a list.
    Streamed,
    /// A watch.
    Watch,
    /// Anything else.
    Other,
}

/// What becomes of a request.
pub(crate) enum Verdict {
    /// The server answers.
    Pass,
    /// This answer instead.
    Answer(u16, Option<u64>),
    /// The server answers, and its answer goes through here line by line.
    Lines(Lines),
    /// No answer, ever.
    Hang,
    /// The request arrives this long later.
    Delayed(Duration),
    /// The request arrives, and its answer comes this long later.
    Answered(Duration),
    /// The connection is closed, as a server does that goes away; the request never arrived.
    Closed,
    /// The request arrives, and half of its answer comes back before the connection breaks.
    Reset,
    /// The request arrives, and half of its answer is passed off for the whole.
    Truncated,
}

/// One request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub at: Instant,
    pub asked: Asked,
    pub method: http::Method,
    pub path: String,
    /// How long it was told to wait.
    pub retry_after: Option<u64>,
}

/// What becomes of a line of a watch.
pub(crate) enum Line {
    Pass,
    Drop,
    /// This long later, and all after it, too.
    Late(Duration),
    /// Before it, this one.
    After(String),
    /// The watch ends before it, as servers end them.
    End,
    /// The connection breaks before it.
    Break,
    /// Half of it, and the watch ends.
    Half,
    /// Instead of it an error with this code, which ends the watch.
    Error(u16),
    /// Nothing comes any more, and nobody says so.
    Silence,
}

/// What becomes of each line.
type Lines = Box<dyn FnMut(Bytes) -> Line + Send>;

type Plan = Arc<dyn Fn(&Sent, usize) -> Verdict + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Faults {
    pub server: ApiServer,
    inner: Arc<Inner>,
}

struct Inner {
    plan: Mutex<Plan>,
    sent: Mutex<Log>,
    open: AtomicUsize,
    /// Turns when all open watches break.
    cuts: tokio::sync::watch::Sender<usize>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Sent>,
    counts: HashMap<Asked, usize>,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>>;

impl Faults {
    pub(crate) async fn new() -> Self {
        // Owners are made up in these tests, so nobody may collect what they own.
        let options = Options { collector: Collector::Elsewhere, ..Options::default() };
        let server = ApiServer::open(options).await.unwrap();
        let plan: Plan = Arc::new(|_, _| Verdict::Pass);
        let inner = Inner {
            plan: Mutex::new(plan),
            sent: Mutex::default(),
            open: AtomicUsize::new(0),
            cuts: Default::default(),
        };
        Self { server, inner: Arc::new(inner) }
    }

    /// From now on requests go by this plan; it is told what is asked, and how many of that came before since then.
    pub(crate) fn plan(&self, plan: impl Fn(Asked, usize) -> Verdict + Send + Sync + 'static) {
        self.plan_each(move |sent, before| plan(sent.asked, before));
    }

    /// The same for a plan that looks at the whole request.
    pub(crate) fn plan_each(&self, plan: impl Fn(&Sent, usize) -> Verdict + Send + Sync + 'static) {
        *self.inner.sent.lock() = Log::default();
        *self.inner.plan.lock() = Arc::new(plan);
    }

    /// A client that no fault touches.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.server.clone(), "default")
    }

    /// A client that every fault touches.
    pub(crate) fn faulty_client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Caches behind the faults.
    pub(crate) fn caches(&self, settings: WatchSettings) -> Caches {
        Caches::new(self.faulty_client(), settings)
    }

    /// What was asked since the plan was made.
    pub(crate) fn asked(&self) -> Vec<(Instant, Asked)> {
        self.inner.sent.lock().requests.iter().map(|sent| (sent.at, sent.asked)).collect()
    }

    /// What was sent since the plan was made.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.inner.sent.lock().requests.clone()
    }

    /// Breaks all watches that are open.
    pub(crate) fn cut_watches(&self) {
        self.inner.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many watches are open.
    pub(crate) fn open_watches(&self) -> usize {
        self.inner.open.load(Ordering::SeqCst)
    }
}

impl tower_service::Service<Request<kube::client::Body>> for Faults {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut faults = self.clone();
        async move { faults.answer(request).await }.boxed()
    }
}

impl Faults {
    async fn answer(&mut self, request: Request<kube::client::Body>) -> io::Result<Answer> {
        let asked = asked(&request);
        let verdict = {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let mut sent = Sent { at: Instant::now(), asked, method, path, retry_after: None };
            let plan = self.inner.plan.lock().clone();
            let mut log = self.inner.sent.lock();
            let count = log.counts.entry(asked).or_default();
            let verdict = plan(&sent, *count);
            *count += 1;
            if let Verdict::Answer(_, retry_after) = &verdict {
                sent.retry_after = *retry_after;
            }
            log.requests.push(sent);
            verdict
        };
        let (mut late, mut cut) = (Duration::ZERO, None);
        let lines = match verdict {
            Verdict::Hang => return std::future::pending().await,
            Verdict::Answer(code, retry_after) => return Ok(refusal(code, retry_after)),
            Verdict::Closed => return Err(io::ErrorKind::ConnectionAborted.into()),
            Verdict::Pass => None,
            Verdict::Lines(lines) => Some(lines),
            Verdict::Delayed(time) => {
                tokio::time::sleep(time).await;
                None
            }
            Verdict::Answered(time) => {
                late = time;
                None
            }
            Verdict::Reset => {
                cut = Some(Err(io::ErrorKind::ConnectionReset.into()));
                None
            }
            Verdict::Truncated => {
                cut = Some(Ok(Frame::data(Bytes::new())));
                None
            }
        };
        let Ok(response) = tower_service::Service::call(&mut self.server, request).await;
        tokio::time::sleep(late).await;
        let (parts, body) = response.into_parts();
        if !matches!(asked, Asked::Streamed | Asked::Watch) {
            let body = body.map_err(|never| match never {});
            let Some(end) = cut else { return Ok(Response::from_parts(parts, body.boxed_unsync())) };
            let whole = body.collect().await?.to_bytes();
            let half = whole.slice(..whole.len() / 2);
            let body = StreamBody::new(stream::iter([Ok(Frame::data(half)), end]));
            let mut response = Response::from_parts(parts, BodyExt::boxed_unsync(body));
            response.headers_mut().remove("content-length");
            return Ok(response);
        }
        let open = OpenWatch::new(self.inner.clone());
        let lines: Lines = match cut {
            Some(Err(_)) => Box::new(|_| Line::Break),
            Some(Ok(_)) => Box::new(|_| Line::Half),
            None => lines.unwrap_or_else(|| Box::new(|_| Line::Pass)),
        };
        let body = StreamBody::new(through(body, lines, open).map(|piece| piece.map(Frame::data)));
        Ok(Response::from_parts(parts, BodyExt::boxed_unsync(body)))
    }
}

/// A small generator: the seed says it all.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(7);
        random
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// How many times something is tried: a few in every run of the tests, all of it where `KONVERGE_FULL` is set.
pub(crate) fn tries(few: usize, full: usize) -> usize {
    if std::env::var_os("KONVERGE_FULL").is_some() { full } else { few }
}

fn asked(request: &Request<kube::client::Body>) -> Asked {
    let query = request.uri().query().unwrap_or_default();
    let has = |what: &str| query.split('&').any(|pair| pair.starts_with(what));
    match () {
        () if request.method() != http::Method::GET => Asked::Other,
        () if has("sendInitialEvents=") => Asked::Streamed,
        () if has("watch=") => Asked::Watch,
        () => Asked::List { continues: has("continue=") },
    }
}

fn status(code: u16) -> String {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "this is a fault", "reason": "Fault", "code": code
    })
    .to_string()
}

fn refusal(code: u16, retry_after: Option<u64>) -> Answer {
    let mut response = Response::builder().status(StatusCode::from_u16(code).unwrap());
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let body = http_body_util::Full::new(Bytes::from(status(code))).map_err(|never| match never {});
    response.body(body.boxed_unsync()).unwrap()
}

/// Counts while it lives.
struct OpenWatch(Arc<Inner>);

impl OpenWatch {
    fn new(inner: Arc<Inner>) -> Self {
        inner.open.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What comes through a watch.
enum Piece {
    Line(Bytes),
    End,
    Cut,
}

/// Takes an answer apart into lines, and does to each what the plan says.
fn through(
    body: konverge_apiserver::Body,
    lines: Lines,
    open: OpenWatch,
) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    let pieces = body.into_data_stream().flat_map(|piece| {
        let piece = piece.unwrap_or_else(|never| match never {});
        stream::iter(piece.split_inclusive(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect::<Vec<_>>())
    });
    let mut cuts = open.0.cuts.subscribe();
    cuts.mark_unchanged();
    let cut = stream::once(async move { drop(cuts.changed().await) }).map(|()| Piece::Cut);
    let pieces = stream::select(pieces.map(Piece::Line).chain(stream::iter([Piece::End])), cut);
    let begin = (pieces.boxed(), lines, open, None::<Bytes>, false);
    stream::unfold(begin, |(mut pieces, mut lines, open, held, over)| async move {
        if over {
            return None;
        }
        if let Some(held) = held {
            return Some((Ok(held), (pieces, lines, open, None, false)));
        }
        loop {
            let line = match pieces.next().await? {
                Piece::Line(line) => line,
                Piece::End => return None,
                Piece::Cut => {
                    return Some((Err(io::ErrorKind::ConnectionReset.into()), (pieces, lines, open, None, true)));
                }
            };
            return match lines(line.clone()) {
                Line::Pass => Some((Ok(line), (pieces, lines, open, None, false))),
                Line::Drop => continue,
                Line::Late(time) => {
                    tokio::time::sleep(time).await;
                    Some((Ok(line), (pieces, lines, open, None, false)))
                }
                Line::After(first) => Some((Ok(first.into()), (pieces, lines, open, Some(line), false))),
                Line::End => None,
                Line::Half => Some((Ok(line.slice(..line.len() / 2)), (pieces, lines, open, None, true))),
                Line::Break => {
                    let broken = io::Error::from(io::ErrorKind::ConnectionReset);
                    Some((Err(broken), (pieces, lines, open, None, true)))
                }
                Line::Error(code) => {
                    let line = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(code));
                    Some((Ok(line.into()), (pieces, lines, open, None, true)))
                }
                Line::Silence => std::future::pending().await,
            };
        }
    })
}
