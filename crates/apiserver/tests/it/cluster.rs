//! A server in the process of the test, and how to send requests to it. In: method, path, headers, body. Out: code, headers
//! and JSON, or the lines of a watch. The test decides the time and the random numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower_service::Service;

use konverge_schema::{Budget, ProtobufObject};

use konverge_apiserver::{ApiServer, Body, Collector, Environment, Options, RequestLimits, Storage, UserInfo};

/// A timeout for events that must happen: longer than any of them takes.
pub(crate) const AT_MOST: Duration = Duration::from_secs(20);

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(crate) const AS_METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
pub(crate) const AS_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// A server in memory, whose time and random numbers the test decides.
pub(crate) struct Cluster {
    pub server: ApiServer,
    pub world: Arc<World>,
}

/// The time and the random numbers.
pub(crate) struct World {
    now: Mutex<Timestamp>,
    /// Given first, in this order; after that every number is another one.
    loaded: Mutex<VecDeque<u128>>,
    numbers: AtomicU64,
}

impl Environment for World {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn random(&self) -> u128 {
        if let Some(loaded) = self.loaded.lock().unwrap().pop_front() {
            return loaded;
        }
        let number = u128::from(self.numbers.fetch_add(1, Ordering::Relaxed));
        (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

impl World {
    pub(crate) fn pass(&self, time: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = now.checked_add(time).unwrap();
    }

    /// Decides the next random numbers.
    pub(crate) fn load(&self, numbers: impl IntoIterator<Item = u128>) {
        self.loaded.lock().unwrap().extend(numbers);
    }
}

impl Cluster {
    /// A server without a garbage collector, so that nothing happens by itself.
    pub(crate) async fn new() -> Self {
        Self::with(|options| options).await
    }

    /// The same with other options.
    pub(crate) async fn with(change: impl FnOnce(Options) -> Options) -> Self {
        let world = Arc::new(World {
            now: Mutex::new("2026-01-02T03:04:05Z".parse().unwrap()),
            loaded: Mutex::default(),
            numbers: AtomicU64::new(0),
        });
        let options = change(options(world.clone(), Storage::Memory));
        Self { server: ApiServer::open(options).await.unwrap(), world }
    }

    /// A server with this storage and this time, such as one that is started again.
    pub(crate) async fn open(world: Arc<World>, storage: Storage) -> Self {
        Self { server: ApiServer::open(options(world.clone(), storage)).await.unwrap(), world }
    }

    /// Stops the server, and waits until its store is closed: one of the server's own tasks may be working with it right now.
    pub(crate) async fn stop(self) {
        self.server.shutdown();
        // The store holds the sender, and lets go of it after it has unlocked its directory.
        let mut health = self.server.store().health();
        drop(self);
        let closed = async { while health.changed().await.is_ok() {} };
        tokio::time::timeout(AT_MOST, closed).await.expect("nobody uses the store any more");
    }

    /// A server that knows widgets.
    pub(crate) async fn with_widgets() -> Self {
        let cluster = Self::new().await;
        cluster.post(CRDS, &widgets()).await.expect(201);
        cluster
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(Full::new(body.into())).unwrap()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let what = format!("{method} {path}");
        Answer { what, code: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn send<B>(&self, request: Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.server.clone().call(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], Bytes::new()).await
    }

    pub(crate) async fn accept(&self, path: &str, accept: &str) -> Answer {
        self.ask("GET", path, &[("accept", accept)], Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, &[("content-type", kind)], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], Bytes::new()).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.ask("DELETE", path, &[("content-type", "application/json")], options.to_string()).await
    }

    /// Starts a watch.
    pub(crate) async fn watch(&self, path: &str) -> Lines {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Lines {
        let request = Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
        let response = self.send(request).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let frames = response.headers()["content-type"] == "application/vnd.kubernetes.protobuf;stream=watch";
        Lines { body: Box::pin(response.into_body()), buffer: Vec::new(), frames }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.server.store().revision().0
    }

    /// Compacts everything before the newest revision.
    pub(crate) fn compact(&self) {
        let store = self.server.store();
        store.compact(store.revision());
    }
}

fn options(env: Arc<World>, storage: Storage) -> Options {
    // An unoptimised build on a busy machine needs long for large bodies.
    let request_limits = RequestLimits { timeout: Duration::from_secs(600), ..RequestLimits::default() };
    Options { storage, env, collector: Collector::Elsewhere, request_limits, ..Options::default() }
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Method and path, for messages.
    pub what: String,
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The JSON of an answer that has this code.
    #[track_caller]
    pub(crate) fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}: {}", self.what, String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The object of an answer, however it is encoded.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match self.header("content-type") {
            PROTOBUF => return from_protobuf(&self.body),
            "application/yaml" => return serde_saphyr::from_slice(&self.body).unwrap(),
            _ => {}
        }
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{}: {error}: {}", self.what, text()))
    }

    /// The message of a failure that has this code and reason.
    #[track_caller]
    pub(crate) fn fails(&self, code: u16, reason: &str) -> String {
        let status = self.expect(code);
        assert_eq!(status["reason"], reason, "{}: {status}", self.what);
        self.check_failure();
        status["message"].as_str().unwrap().to_owned()
    }

    /// Every failure is a complete `Status`, except for the page for paths that are not served.
    #[track_caller]
    pub(crate) fn check_failure(&self) {
        let content_type = self.header("content-type");
        if self.code == 404 && content_type.starts_with("text/plain") {
            assert_eq!(self.body, "404 page not found\n", "{}", self.what);
            return;
        }
        assert!(["application/json", "application/yaml", PROTOBUF].contains(&content_type), "{}", self.what);
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{}: {status}", self.what);
        assert_eq!(status["apiVersion"], "v1", "{}: {status}", self.what);
        assert_eq!(status["status"], "Failure", "{}: {status}", self.what);
        assert_eq!(status["code"], self.code, "{}: {status}", self.what);
        assert!(status["metadata"].is_object(), "{}: {status}", self.what);
        assert!(status["message"].as_str().is_some_and(|text| !text.is_empty()), "{}: {status}", self.what);
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The texts of `Warning` headers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let all = self.headers.get_all("warning").iter();
        all.map(|value| value.to_str().unwrap().trim_start_matches("299 - ").to_owned()).collect()
    }

    /// The object's resource version.
    #[track_caller]
    pub(crate) fn version(&self) -> u64 {
        version(&self.json())
    }
}

/// A user who is written as `name@group,group`.
pub(crate) fn user(text: &str) -> UserInfo {
    let (name, groups) = text.split_once('@').unwrap_or((text, ""));
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect();
    UserInfo { groups, ..UserInfo::named(name) }
}

/// The code and the body of an answer to a user, who is written as `name@group,group`.
pub(crate) async fn ask_as(cluster: &Cluster, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).extension(user(who));
    let response = cluster.send(request.body(Full::new(body)).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// An object's resource version.
#[track_caller]
pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no version: {object}")).parse().unwrap()
}

/// The names of a list's items.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// What Go clients send and prefer to read.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The object in a body that is protobuf.
#[track_caller]
pub(crate) fn from_protobuf(body: &[u8]) -> Value {
    ProtobufObject::read(body).unwrap().decode(Budget::unlimited()).unwrap()
}

/// The event in a frame without its length: its type, and an object in a message of its own.
fn from_frame(frame: &[u8]) -> Value {
    let field = |bytes: &mut &[u8], tag: u8| -> Vec<u8> {
        assert_eq!(bytes[0], tag);
        let (mut length, mut at) = (0, 1);
        loop {
            length |= usize::from(bytes[at] & 0x7f) << (7 * (at - 1));
            at += 1;
            if bytes[at - 1] < 0x80 {
                break;
            }
        }
        let (field, rest) = bytes[at..].split_at(length);
        *bytes = rest;
        field.to_vec()
    };
    let mut rest = frame;
    let (kind, object) = (field(&mut rest, 0x0a), field(&mut rest, 0x12));
    let raw = field(&mut &object[..], 0x0a);
    json!({"type": String::from_utf8(kind).unwrap(), "object": from_protobuf(&raw)})
}

/// The events of a watch.
pub(crate) struct Lines {
    body: std::pin::Pin<Box<Body>>,
    buffer: Vec<u8>,
    /// Whether events are frames instead of lines.
    frames: bool,
}

impl Lines {
    /// The next event; nothing when the watch is over. Waits as long as that takes: for tests whose time is paused.
    pub(crate) async fn next_ever(&mut self) -> Option<Value> {
        loop {
            if self.frames {
                let length = self.buffer.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
                if let Some(frame) = length.and_then(|length| self.buffer.get(4..4 + length)) {
                    let event = from_frame(frame);
                    self.buffer.drain(..4 + frame.len());
                    return Some(event);
                }
            } else if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                None => {
                    assert!(self.buffer.is_empty(), "a watch ended within a line");
                    return None;
                }
            }
        }
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Value {
        let next = tokio::time::timeout(AT_MOST, self.next_ever()).await;
        next.expect("an event should come").expect("the watch should go on")
    }

    /// The watch ends without another event.
    pub(crate) async fn end(&mut self) {
        let next = tokio::time::timeout(AT_MOST, self.next_ever()).await;
        assert_eq!(next.expect("the watch should end"), None);
    }

    /// The next event in short: `ADDED name`.
    pub(crate) async fn next_brief(&mut self) -> String {
        brief(&self.next().await)
    }

    pub(crate) async fn next_briefs(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(self.next_brief().await);
        }
        all
    }
}

/// An event in short: `ADDED name`.
pub(crate) fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    format!("{} {name}", event["type"].as_str().unwrap())
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
        },
    })
}

pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

/// A definition with one version, status, scale, a default, printer columns and a selectable field.
pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wg"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "size": {"type": "integer", "minimum": 0, "maximum": 100},
                                "color": {"type": "string", "default": "red", "enum": ["red", "green", "blue"]},
                                "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]*$"},
                                "ports": {
                                    "type": "array", "x-kubernetes-list-type": "map",
                                    "x-kubernetes-list-map-keys": ["port"],
                                    "items": {
                                        "type": "object", "required": ["port"],
                                        "properties": {"port": {"type": "integer"}, "name": {"type": "string"}},
                                    },
                                },
                                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}},
                        },
                    },
                }},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    })
}
