//! A server that costs next to nothing: it serves lists and watches as bytes that were made beforehand, and never looks
//! into them. In: objects. Out: an address. What is changed while it runs is pushed to whoever watches. It is not a
//! Kubernetes API server: it knows streamed lists, watches, and two commands of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use konverge_serve::{BindOptions, Listener, RequestBody, Server};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;

use crate::void::Void;

/// Where widgets are listed.
pub const WIDGETS: &str = "/apis/bench.konverge.dev/v1/widgets";
/// Where Pods are listed.
pub const PODS: &str = "/api/v1/pods";
/// Where ConfigMaps are listed; one comes with every turn.
const CONFIG_MAPS: &str = "/api/v1/configmaps";
/// Makes a ConfigMap.
const TURN: &str = "/turn";
/// Before a path: ends its watches with 410, so that all has to be listed again; the next list has one object more.
const EXPIRE: &str = "/expire";

/// How many lines are sent in one piece.
const LINES: usize = 32;
/// How many changes may wait for a slow watcher. One that loses some never sees them, and voids its run.
const WAITING: usize = 65_536;

/// A running server.
pub struct Replay {
    shelves: Shelves,
    url: String,
    _server: Server,
    /// Last, so that the server still has it when it is dropped.
    _runtime: Runtime,
}

/// Its service. Clones are the same.
#[derive(Clone)]
struct Shelves(Arc<Inner>);

struct Inner {
    shelves: HashMap<&'static str, Shelf>,
    turns: AtomicUsize,
    /// Requests that it does not know.
    strange: AtomicUsize,
}

/// What is served under one path.
struct Shelf {
    whole: Mutex<Arc<[Bytes]>>,
    /// The same for clients that ask for metadata only.
    partial: Mutex<Arc<[Bytes]>>,
    live: broadcast::Sender<Push>,
    /// Whether the next list has one object more, by which its reader knows that it was the next.
    late: AtomicBool,
}

#[derive(Clone)]
enum Push {
    Line(Bytes),
    Expired,
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Replay {
    /// Starts one, on a thread of its own.
    pub fn start() -> Result<Self, Void> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shelves = [WIDGETS, PODS, CONFIG_MAPS].into_iter().map(|path| (path, Shelf::new())).collect();
        let inner = Inner { shelves, turns: AtomicUsize::new(0), strange: AtomicUsize::new(0) };
        let shelves = Shelves(Arc::new(inner));
        let _inside = runtime.enter();
        let listener = Listener::bind(BindOptions::default()).map_err(|error| Void::new(error.to_string()))?;
        let url = listener.url();
        let server = listener.serve(shelves.clone());
        drop(_inside);
        Ok(Self { shelves, url, _server: server, _runtime: runtime })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Puts these objects under a path, in place of what was there.
    pub fn fill(&self, path: &str, objects: impl Iterator<Item = Value>) {
        if let Some(shelf) = self.shelves.0.shelves.get(path) {
            *shelf.whole.lock().expect(UNBROKEN) = pieces(objects);
        }
    }

    /// The same for clients that ask for metadata only.
    pub fn fill_metadata(&self, path: &str, objects: impl Iterator<Item = Value>) {
        let partial = |mut object: Value| {
            let metadata = object["metadata"].take();
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
        };
        if let Some(shelf) = self.shelves.0.shelves.get(path) {
            *shelf.partial.lock().expect(UNBROKEN) = pieces(objects.map(partial));
        }
    }

    /// Tells whoever watches a path that an object changed.
    pub fn change(&self, path: &str, object: &Value) {
        self.shelves.push(path, Push::Line(line("MODIFIED", object)));
    }

    /// Voids the run if somebody asked for what is not here.
    pub fn check(&self) -> Result<(), Void> {
        crate::void::expect("requests the replay server does not know", self.shelves.0.strange.load(Relaxed), 0)
    }
}

/// Nobody panics while they hold one of these locks.
const UNBROKEN: &str = "the lock is not poisoned";

/// Asks the server to make a ConfigMap.
pub async fn turn(client: &Client) -> kube::Result<()> {
    command(client, TURN).await
}

/// Asks the server to let the watches of a path expire.
pub async fn expire(client: &Client, path: &str) -> kube::Result<()> {
    command(client, &format!("{EXPIRE}{path}")).await
}

async fn command(client: &Client, path: &str) -> kube::Result<()> {
    let request = Request::post(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

/// The first object under another name.
fn late(pieces: &[Bytes]) -> Option<Bytes> {
    let text = std::str::from_utf8(pieces.first()?).ok()?;
    Some(format!("{}\n", text.lines().next()?.replacen("-000000\"", "-late\"", 1)).into())
}

/// A list as it is sent.
fn pieces(objects: impl Iterator<Item = Value>) -> Arc<[Bytes]> {
    let (mut pieces, mut open) = (Vec::new(), Vec::new());
    for (at, object) in objects.enumerate() {
        open.extend_from_slice(&line("ADDED", &object));
        if at % LINES == LINES - 1 {
            pieces.push(std::mem::take(&mut open).into());
        }
    }
    pieces.push(open.into());
    pieces.into()
}

impl Shelf {
    fn new() -> Self {
        Self {
            whole: Mutex::default(),
            partial: Mutex::default(),
            live: broadcast::Sender::new(WAITING),
            late: AtomicBool::new(false),
        }
    }

    fn watch(&self, request: &Request<RequestBody>) -> Answer {
        let live = self.live.subscribe();
        let accept = request.headers().get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let shelf =
            if accept.unwrap_or_default().contains("PartialObjectMetadata") { &self.partial } else { &self.whole };
        let pieces = shelf.lock().expect(UNBROKEN).clone();
        let listed = match request.uri().query().unwrap_or_default().contains("sendInitialEvents=true") {
            true => {
                let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": {
                    "resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}});
                let late = self.late.swap(false, Relaxed).then(|| late(&pieces)).flatten();
                let pieces = (0..pieces.len()).map(move |at| pieces[at].clone()).filter(|piece| !piece.is_empty());
                stream::iter(pieces.chain(late).chain([line("BOOKMARK", &end)])).boxed()
            }
            false => stream::empty().boxed(),
        };
        let live = stream::unfold(Some(live), |live| async move {
            let mut live = live?;
            match live.recv().await {
                Ok(Push::Line(line)) => Some((line, Some(live))),
                Ok(Push::Expired) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "too old resource version", "code": 410, "reason": "Expired"});
                    Some((line("ERROR", &status), None))
                }
                Err(_) => None,
            }
        });
        let frames = listed.chain(live).map(|bytes| Ok(Frame::data(bytes)));
        Response::new(UnsyncBoxBody::new(StreamBody::new(frames)))
    }
}

impl Shelves {
    fn answer(&self, request: &Request<RequestBody>) -> Answer {
        let path = request.uri().path();
        match (request.method(), self.0.shelves.get(path)) {
            (&Method::GET, Some(shelf)) if request.uri().query().unwrap_or_default().contains("watch=true") => {
                shelf.watch(request)
            }
            (&Method::POST, None) if path == TURN => self.turn(),
            (&Method::POST, None) if path.starts_with(EXPIRE) => self.expire(&path[EXPIRE.len()..]),
            _ => {
                eprintln!("the replay server does not know {} {}", request.method(), request.uri());
                self.0.strange.fetch_add(1, Relaxed);
                plain(StatusCode::NOT_FOUND)
            }
        }
    }

    fn turn(&self) -> Answer {
        let turn = self.0.turns.fetch_add(1, Relaxed);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("storm-{turn}"), "namespace": "default", "resourceVersion": (turn + 2).to_string(),
            "uid": format!("d3f708c5-6e41-4fb0-a192-{turn:012}")}});
        self.push(CONFIG_MAPS, Push::Line(line("ADDED", &object)));
        plain(StatusCode::OK)
    }

    fn expire(&self, path: &str) -> Answer {
        let Some(shelf) = self.0.shelves.get(path) else { return plain(StatusCode::NOT_FOUND) };
        shelf.late.store(true, Relaxed);
        self.push(path, Push::Expired);
        plain(StatusCode::OK)
    }

    fn push(&self, path: &str, push: Push) {
        if let Some(shelf) = self.0.shelves.get(path) {
            // That nobody watches is no error.
            let _ = shelf.live.send(push);
        }
    }
}

fn plain(status: StatusCode) -> Answer {
    let body = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}")))]);
    let mut answer = Response::new(UnsyncBoxBody::new(StreamBody::new(body)));
    *answer.status_mut() = status;
    answer
}

impl tower_service::Service<Request<RequestBody>> for Shelves {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let answer = self.answer(&request);
        Box::pin(async move { Ok(answer) })
    }
}
