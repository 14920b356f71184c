//! A server that takes very little CPU time: it serves lists and watches from bytes that were rendered before. In: objects. Out:
//! an address. Changes that come while it runs are sent to all watches. It is not a Kubernetes API server: it knows streamed
//! lists, watches, and two commands of its own.

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

use crate::invalid_run::InvalidRun;

/// The path of widgets.
pub(super) const WIDGETS: &str = "/apis/bench.konverge.dev/v1/widgets";
/// The path of Pods.
pub(super) const PODS: &str = "/api/v1/pods";
/// The path of ConfigMaps. Each call of [`WAKE`] creates one.
const CONFIG_MAPS: &str = "/api/v1/configmaps";
/// The command that creates a ConfigMap.
const WAKE: &str = "/wake";
/// The command that ends the watches of the path behind it with 410, so that clients have to list again. The next list has
/// one more object.
const EXPIRE: &str = "/expire";

/// The number of lines in a chunk of the response.
const LINES_PER_CHUNK: usize = 32;
/// How many changes are buffered for a slow watcher. A watcher that misses changes makes its run invalid.
const MAX_PENDING: usize = 65_536;

/// A running server.
pub(super) struct Replay {
    resources: ReplayService,
    url: String,
    _server: Server,
    /// The last field, so that the runtime is dropped after the server.
    _runtime: Runtime,
}

/// The service of the server. Clones share everything.
#[derive(Clone)]
struct ReplayService(Arc<Inner>);

struct Inner {
    resources: HashMap<&'static str, Resource>,
    wakes: AtomicUsize,
    /// The number of requests that the server does not know.
    unknown_requests: AtomicUsize,
}

/// The objects of one path.
struct Resource {
    whole: Mutex<Arc<[Bytes]>>,
    /// The same for clients that request only metadata.
    partial: Mutex<Arc<[Bytes]>>,
    live: broadcast::Sender<Update>,
    /// Whether the next list has one more object, which shows the client that it has read this list.
    extra: AtomicBool,
}

#[derive(Clone)]
enum Update {
    Line(Bytes),
    Expired,
}

type HttpResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Replay {
    /// Starts a server on a thread of its own.
    pub(super) fn start() -> Result<Self, InvalidRun> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let resources = [WIDGETS, PODS, CONFIG_MAPS].into_iter().map(|path| (path, Resource::new())).collect();
        let inner = Inner { resources, wakes: AtomicUsize::new(0), unknown_requests: AtomicUsize::new(0) };
        let resources = ReplayService(Arc::new(inner));
        let _inside = runtime.enter();
        let listener = Listener::bind(BindOptions::default()).map_err(|error| InvalidRun::new(error.to_string()))?;
        let url = listener.url();
        let server = listener.serve(resources.clone());
        drop(_inside);
        Ok(Self { resources, url, _server: server, _runtime: runtime })
    }

    /// The address at which it listens.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Replaces the objects of a path.
    pub(super) fn fill(&self, path: &str, objects: impl Iterator<Item = Value>) {
        if let Some(resource) = self.resources.0.resources.get(path) {
            *resource.whole.lock().expect(NOT_POISONED) = chunks(objects);
        }
    }

    /// The same for clients that request only metadata.
    pub(super) fn fill_metadata(&self, path: &str, objects: impl Iterator<Item = Value>) {
        let partial = |mut object: Value| {
            let metadata = object["metadata"].take();
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
        };
        if let Some(resource) = self.resources.0.resources.get(path) {
            *resource.partial.lock().expect(NOT_POISONED) = chunks(objects.map(partial));
        }
    }

    /// Sends a changed object to the watches of a path.
    pub(super) fn change(&self, path: &str, object: &Value) {
        self.resources.push(path, Update::Line(line("MODIFIED", object)));
    }

    /// Fails if there was a request that the server does not know.
    pub(super) fn check(&self) -> Result<(), InvalidRun> {
        crate::invalid_run::expect(
            "requests that the replay server does not know",
            self.resources.0.unknown_requests.load(Relaxed),
            0,
        )
    }
}

/// No thread panics while it holds one of these locks.
const NOT_POISONED: &str = "the lock is not poisoned";

/// Requests a new ConfigMap, which wakes all widgets.
pub(super) async fn wake_all(client: &Client) -> kube::Result<()> {
    command(client, WAKE).await
}

/// Requests that the watches of a path expire.
pub(super) async fn expire(client: &Client, path: &str) -> kube::Result<()> {
    command(client, &format!("{EXPIRE}{path}")).await
}

async fn command(client: &Client, path: &str) -> kube::Result<()> {
    let request = Request::post(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}

/// The first object with another name.
fn extra(chunks: &[Bytes]) -> Option<Bytes> {
    let text = std::str::from_utf8(chunks.first()?).ok()?;
    Some(format!("{}\n", text.lines().next()?.replacen("-000000\"", "-extra\"", 1)).into())
}

/// A list in the chunks in which it is sent.
fn chunks(objects: impl Iterator<Item = Value>) -> Arc<[Bytes]> {
    let (mut chunks, mut open) = (Vec::new(), Vec::new());
    for (at, object) in objects.enumerate() {
        open.extend_from_slice(&line("ADDED", &object));
        if at % LINES_PER_CHUNK == LINES_PER_CHUNK - 1 {
            chunks.push(std::mem::take(&mut open).into());
        }
    }
    chunks.push(open.into());
    chunks.into()
}

impl Resource {
    fn new() -> Self {
        Self {
            whole: Mutex::default(),
            partial: Mutex::default(),
            live: broadcast::Sender::new(MAX_PENDING),
            extra: AtomicBool::new(false),
        }
    }

    fn watch(&self, request: &Request<RequestBody>) -> HttpResponse {
        let live = self.live.subscribe();
        let accept = request.headers().get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let resource =
            if accept.unwrap_or_default().contains("PartialObjectMetadata") { &self.partial } else { &self.whole };
        let chunks = resource.lock().expect(NOT_POISONED).clone();
        let listed = match request.uri().query().unwrap_or_default().contains("sendInitialEvents=true") {
            true => {
                let end = json!({"kind": "Bookmark", "apiVersion": "v1", "metadata": {
                    "resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}});
                let extra = self.extra.swap(false, Relaxed).then(|| extra(&chunks)).flatten();
                let chunks = (0..chunks.len()).map(move |at| chunks[at].clone()).filter(|chunk| !chunk.is_empty());
                stream::iter(chunks.chain(extra).chain([line("BOOKMARK", &end)])).boxed()
            }
            false => stream::empty().boxed(),
        };
        let live = stream::unfold(Some(live), |live| async move {
            let mut live = live?;
            match live.recv().await {
                Ok(Update::Line(line)) => Some((line, Some(live))),
                Ok(Update::Expired) => {
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

impl ReplayService {
    fn respond(&self, request: &Request<RequestBody>) -> HttpResponse {
        let path = request.uri().path();
        match (request.method(), self.0.resources.get(path)) {
            (&Method::GET, Some(resource)) if request.uri().query().unwrap_or_default().contains("watch=true") => {
                resource.watch(request)
            }
            (&Method::POST, None) if path == WAKE => self.wake_all(),
            (&Method::POST, None) if path.starts_with(EXPIRE) => self.expire(&path[EXPIRE.len()..]),
            _ => {
                eprintln!("the replay server does not know {} {}", request.method(), request.uri());
                self.0.unknown_requests.fetch_add(1, Relaxed);
                plain(StatusCode::NOT_FOUND)
            }
        }
    }

    fn wake_all(&self) -> HttpResponse {
        let number = self.0.wakes.fetch_add(1, Relaxed);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": format!("storm-{number}"), "namespace": "default", "resourceVersion": (number + 2).to_string(),
            "uid": format!("d3f708c5-6e41-4fb0-a192-{number:012}")}});
        self.push(CONFIG_MAPS, Update::Line(line("ADDED", &object)));
        plain(StatusCode::OK)
    }

    fn expire(&self, path: &str) -> HttpResponse {
        let Some(resource) = self.0.resources.get(path) else { return plain(StatusCode::NOT_FOUND) };
        resource.extra.store(true, Relaxed);
        self.push(path, Update::Expired);
        plain(StatusCode::OK)
    }

    fn push(&self, path: &str, update: Update) {
        if let Some(resource) = self.0.resources.get(path) {
            // An error means that there are no watches.
            let _ = resource.live.send(update);
        }
    }
}

fn plain(status: StatusCode) -> HttpResponse {
    let body = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}")))]);
    let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(body)));
    *response.status_mut() = status;
    response
}

impl tower_service::Service<Request<RequestBody>> for ReplayService {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let response = self.respond(&request);
        Box::pin(async move { Ok(response) })
    }
}
