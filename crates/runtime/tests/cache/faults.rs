//! A server in process with faults in front of it. A [`Plan`] says for each request what becomes of it; every request
//! and every open watch is counted. Time is tokio's, and stands still in tests.

use std::convert::Infallible;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
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
pub enum Verdict {
    /// The server answers.
    Pass,
    /// This answer instead.
    Answer(u16, Option<u64>),
    /// The server answers, and its answer goes through here line by line.
    Lines(Box<dyn FnMut(Bytes) -> Line + Send>),
    /// No answer, ever.
    Hang,
}

/// What becomes of a line of a watch.
pub enum Line {
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
    /// Instead of it an error with this code, which ends the watch.
    Error(u16),
    /// Nothing comes any more, and nobody says so.
    Silence,
}

type Plan = Arc<dyn Fn(Asked, usize) -> Verdict + Send + Sync>;

#[derive(Clone)]
pub struct Faults {
    pub server: ApiServer,
    inner: Arc<Inner>,
}

struct Inner {
    plan: Mutex<Plan>,
    asked: Mutex<Vec<(Instant, Asked)>>,
    open: AtomicUsize,
}

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>>;

impl Faults {
    pub async fn new() -> Self {
        // Owners are made up in these tests, so nobody may collect what they own.
        let options = Options { collector: Collector::Elsewhere, ..Options::default() };
        let server = ApiServer::open(options).await.unwrap();
        let plan: Plan = Arc::new(|_, _| Verdict::Pass);
        let inner = Inner { plan: Mutex::new(plan), asked: Mutex::default(), open: AtomicUsize::new(0) };
        Self { server, inner: Arc::new(inner) }
    }

    /// From now on requests go by this plan; it is told what is asked, and how many of that came before since then.
    pub fn plan(&self, plan: impl Fn(Asked, usize) -> Verdict + Send + Sync + 'static) {
        self.inner.asked.lock().clear();
        *self.inner.plan.lock() = Arc::new(plan);
    }

    /// A client that no fault touches.
    pub fn client(&self) -> Client {
        Client::new(self.server.clone(), "default")
    }

    /// Caches behind the faults.
    pub fn caches(&self, settings: WatchSettings) -> Caches {
        Caches::new(Client::new(self.clone(), "default"), settings)
    }

    /// What was asked since the plan was made.
    pub fn asked(&self) -> Vec<(Instant, Asked)> {
        self.inner.asked.lock().clone()
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.inner.open.load(Ordering::SeqCst)
    }
}

impl tower_service::Service<Request<kube::client::Body>> for Faults {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut faults = self.clone();
        async move { Ok(faults.answer(request).await) }.boxed()
    }
}

impl Faults {
    async fn answer(&mut self, request: Request<kube::client::Body>) -> Answer {
        let asked = asked(&request);
        let before = {
            let mut log = self.inner.asked.lock();
            log.push((Instant::now(), asked));
            log.iter().filter(|(_, other)| *other == asked).count() - 1
        };
        let plan = self.inner.plan.lock().clone();
        let verdict = plan(asked, before);
        let lines = match verdict {
            Verdict::Hang => return std::future::pending().await,
            Verdict::Answer(code, retry_after) => return refusal(code, retry_after),
            Verdict::Pass => None,
            Verdict::Lines(lines) => Some(lines),
        };
        let response =
            tower_service::Service::call(&mut self.server, request).await.unwrap_or_else(|never| match never {});
        let (parts, body) = response.into_parts();
        if !matches!(asked, Asked::Streamed | Asked::Watch) {
            return Response::from_parts(parts, body.map_err(|never| match never {}).boxed_unsync());
        }
        let open = OpenWatch::new(self.inner.clone());
        let lines = lines.unwrap_or_else(|| Box::new(|_| Line::Pass));
        let body = StreamBody::new(through(body, lines, open).map(|piece| piece.map(Frame::data)));
        Response::from_parts(parts, BodyExt::boxed_unsync(body))
    }
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

/// Takes an answer apart into lines, and does to each what the plan says.
fn through(
    body: konverge_apiserver::Body,
    lines: Box<dyn FnMut(Bytes) -> Line + Send>,
    open: OpenWatch,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    let pieces = body.into_data_stream().flat_map(|piece| {
        let piece = piece.unwrap_or_else(|never| match never {});
        stream::iter(piece.split_inclusive(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect::<Vec<_>>())
    });
    let begin = (pieces.boxed(), lines, open, None::<Bytes>, false);
    stream::unfold(begin, |(mut pieces, mut lines, open, held, over)| async move {
        if over {
            return None;
        }
        if let Some(held) = held {
            return Some((Ok(held), (pieces, lines, open, None, false)));
        }
        loop {
            let line = pieces.next().await?;
            return match lines(line.clone()) {
                Line::Pass => Some((Ok(line), (pieces, lines, open, None, false))),
                Line::Drop => continue,
                Line::Late(time) => {
                    tokio::time::sleep(time).await;
                    Some((Ok(line), (pieces, lines, open, None, false)))
                }
                Line::After(first) => Some((Ok(first.into()), (pieces, lines, open, Some(line), false))),
                Line::End => None,
                Line::Break => {
                    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
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
