//! An API server with a wire in front of it that keeps a log and breaks on command.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use konverge_apiserver::{ApiServer, Options};
use konverge_core::ObjectKey;
use konverge_runtime::{FieldManager, Mode, Object, StatusUpdate, WriteError, Writer, WriterOptions};
use kube::Client;
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tower_service::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What happens to one request.
pub(crate) enum Fault {
    /// It is answered with this code, headers and body, and never arrives.
    Answer(u16, &'static [(&'static str, &'static str)], Value),
    /// It never arrives and nobody says so.
    Hang,
    /// There is nobody at the other end.
    Refused,
    /// The connection breaks after the server has done it.
    ResetAfter,
    /// Half of the answer arrives.
    Truncated,
    /// Something else happens first.
    After(Box<dyn FnOnce(Client) -> BoxFuture<()> + Send>),
}

/// One request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub body: Value,
}

#[derive(Default)]
struct Wire {
    log: Vec<Sent>,
    faults: VecDeque<Fault>,
}

/// A server, a writer that goes over the wire, and a client that does not.
pub(crate) struct Cluster {
    pub server: ApiServer,
    /// For somebody else.
    pub client: Client,
    pub writer: Writer,
    wire: Arc<Mutex<Wire>>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::open(Options::default()).await.expect("memory can be opened");
        let wire = Arc::new(Mutex::new(Wire::default()));
        let client = Client::new(server.clone(), "default");
        let cluster = Self { writer: writer_over(&server, &wire, WriterOptions::default()), server, client, wire };
        cluster.install_webapp().await;
        cluster
    }

    /// A client whose requests are logged and may break.
    pub(crate) fn wired_client(&self) -> Client {
        Client::new(Wired { server: self.server.clone(), wire: self.wire.clone() }, "default")
    }

    /// A writer as it is after a restart: the same name, no memory.
    pub(crate) fn writer_with(&self, options: WriterOptions) -> Writer {
        writer_over(&self.server, &self.wire, options)
    }

    /// A writer that waits no longer than this.
    pub(crate) fn hasty_writer(&self, timeout: Duration) -> Writer {
        self.writer_with(WriterOptions { timeout })
    }

    /// The next requests break in this order.
    pub(crate) fn break_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.wire.lock().unwrap().faults.extend(faults);
    }

    /// What was sent since the last look.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let wire = &mut *self.wire.lock().unwrap();
        assert!(wire.faults.is_empty(), "a fault was never met");
        std::mem::take(&mut wire.log)
    }

    /// The methods of what was sent since the last look: `PATCH PATCH GET`.
    pub(crate) fn methods(&self) -> String {
        self.sent().iter().map(|sent| sent.method.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// The object as the server has it, as a cache keeps it: without managedFields.
    pub(crate) async fn see(&self, api: &ApiResource, name: &str) -> Option<Value> {
        let key = key(api, name);
        let other = Writer::new(self.client.clone(), FieldManager::new("reader"), WriterOptions::default());
        let mut object = other.get(api, &key).await.expect("the server answers")?;
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        Some(object)
    }

    /// Somebody else patches an object.
    pub(crate) async fn meddle(&self, api: &ApiResource, name: &str, patch: Value) -> Value {
        meddle(self.client.clone(), api.clone(), name.to_owned(), patch).await
    }

    /// Somebody else creates an object.
    pub(crate) async fn create(&self, api: &ApiResource, object: Value) -> Value {
        let other = Writer::new(self.client.clone(), FieldManager::new("somebody"), WriterOptions::default());
        other.create(api, &object).await.expect("it can be created")
    }

    async fn install_webapp(&self) {
        let schema = webapp_schema();
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "webapps.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "WebApp", "plural": "webapps", "singular": "webapp", "listKind": "WebAppList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        self.create(&kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), crd).await;
    }
}

/// Somebody else patches an object.
pub(crate) async fn meddle(client: Client, api: ApiResource, name: String, patch: Value) -> Value {
    let other = Writer::new(client, FieldManager::new("somebody"), WriterOptions::default());
    let key = key(&api, &name);
    let live = other.get(&api, &key).await.expect("the server answers").expect("it is there");
    let resource_version = live["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let subresource = if patch.get("status").is_some() { "status" } else { "" };
    let patch = konverge_runtime::Patch::Merge { patch, resource_version };
    other.patch(&api, &key, subresource, patch).await.expect("it can be patched")
}

fn writer_over(server: &ApiServer, wire: &Arc<Mutex<Wire>>, options: WriterOptions) -> Writer {
    let client = Client::new(Wired { server: server.clone(), wire: wire.clone() }, "default");
    Writer::new(client, FieldManager::new("webapp-operator"), options)
}

pub(crate) fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(crate) fn config_map() -> ApiResource {
    kind("", "v1", "ConfigMap")
}

pub(crate) fn webapp() -> ApiResource {
    kind("example.com", "v1", "WebApp")
}

/// The schema in the CRD of web apps.
pub(crate) fn webapp_schema() -> Value {
    let host = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "tls": {"type": "boolean", "default": true},
    }});
    let condition = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "hosts": {"type": "array", "items": host},
        }},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"},
            "ready": {"type": "integer"},
            "conditions": {"type": "array", "items": condition},
        }},
    }})
}

/// An object as a cache keeps it.
pub(crate) fn cached(api: &ApiResource, object: &Value) -> Arc<Object> {
    Arc::new(Object::parse(api, &object.to_string(), Mode::Full).unwrap())
}

/// Sets a status; objects are trees, which are easier to look into.
pub(crate) async fn set_status(
    writer: &Writer,
    api: &ApiResource,
    live: &Value,
    update: &StatusUpdate,
    now: Timestamp,
) -> Result<Option<Value>, WriteError> {
    let written = writer.set_status(api, &cached(api, live), update, now).await?;
    Ok(written.map(|object| object.value()))
}

/// The key of an object in the namespace of the tests.
pub(crate) fn key(api: &ApiResource, name: &str) -> ObjectKey {
    let cluster_wide = ["Namespace", "ClusterRole", "CustomResourceDefinition"].contains(&api.kind.as_str());
    ObjectKey::new((!cluster_wide).then_some("default"), name)
}

struct Wired {
    server: ApiServer,
    wire: Arc<Mutex<Wire>>,
}

impl Service<Request<Body>> for Wired {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = BoxFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (server, wire) = (self.server.clone(), self.wire.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let fault = {
                let mut wire = wire.lock().unwrap();
                wire.log.push(Sent {
                    method: parts.method.clone(),
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    content_type: header("content-type").unwrap_or_default(),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                });
                wire.faults.pop_front()
            };
            let pass = async || {
                let request = Request::from_parts(parts.clone(), Full::new(body.clone()));
                let Ok(response) = server.clone().call(request).await;
                let (parts, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, BoxError>(Response::from_parts(parts, Full::new(body)))
            };
            match fault {
                None => pass().await,
                Some(Fault::Answer(code, headers, body)) => {
                    let mut response = Response::builder().status(code);
                    for (name, value) in headers {
                        response = response.header(*name, *value);
                    }
                    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                    Ok(response.body(Full::from(body))?)
                }
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::Refused) => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                Some(Fault::ResetAfter) => {
                    pass().await?;
                    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
                }
                Some(Fault::Truncated) => {
                    let (parts, body) = pass().await?.into_parts();
                    let body = body.collect().await?.to_bytes();
                    Ok(Response::from_parts(parts, Full::new(body.slice(..body.len() / 2))))
                }
                Some(Fault::After(first)) => {
                    first(Client::new(server.clone(), "default")).await;
                    pass().await
                }
            }
        })
    }
}
