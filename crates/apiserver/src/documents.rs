//! Documents about the server: discovery, OpenAPI, version, health. In: the registry. Out: documents, made at the first request
//! and cached until the registry changes. OpenAPI documents take up to seconds, so they are rendered on a thread of their own, one
//! at a time, and everybody who asks meanwhile waits for it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::{Stream, stream};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use konverge_core::{KUBERNETES_VERSION, Status, kubernetes_minor};
use konverge_schema::kubernetes;

use crate::body::Body;
use crate::discovery::{Catalog, Document, Root};
use crate::health;
use crate::negotiate::{DiscoveryForm, DiscoveryVersion, MediaTypeOptions, ResponseKind};
use crate::openapi::OpenApi;
use crate::registry::Snapshot;
use crate::request::{Endpoint, Query};
use crate::resource::Resource;
use crate::response::{encode, not_found_page, typed};
use crate::server::Server;
use crate::work::on_a_thread;

const JSON: &str = "application/json";

/// Documents below this size are not worth compressing.
const GZIP_FROM: usize = 4 * 1024;

/// Documents above this size are cached in their compressed form only, which is a tenth. Most clients take that.
const KEEP_PLAIN: usize = 2 * 1024 * 1024;

/// A large document is decompressed in pieces of this size for a client that does not take it compressed.
const PIECE_BYTES: usize = 64 * 1024;

/// What cached documents may take together, plain and compressed: more than all of the built-in kinds do. When they are more,
/// the older ones are dropped, which costs time only. The newest one always stays.
const KEEP_ALTOGETHER: usize = 32 * 1024 * 1024;

/// The media type of pages for Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The documents of a server.
#[derive(Debug)]
pub(crate) struct Documents {
    pub openapi: OpenApi,
    cache: Mutex<Cache>,
    /// Held by the thread that renders an OpenAPI document.
    rendering: Arc<tokio::sync::Mutex<()>>,
}

/// Documents that were made since the registry last changed.
#[derive(Debug, Default)]
struct Cache {
    generation: u64,
    documents: HashMap<Name, Arc<CachedDocument>>,
    bytes: usize,
}

/// Which document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Discovery(Root, DiscoveryVersion),
    OpenApiIndex,
    OldOpenApi,
    OpenApi(String, String),
}

/// A document, plain, compressed or both.
#[derive(Debug)]
struct CachedDocument {
    /// Absent if the document is large.
    plain: Option<Bytes>,
    /// Empty if the document is too small for it.
    gzip: Bytes,
    hash: String,
}

impl Default for Documents {
    fn default() -> Self {
        Self { openapi: OpenApi::new(kubernetes().clone()), cache: Mutex::default(), rendering: Arc::default() }
    }
}

impl Documents {
    /// The document of this name, made again if the registry has changed since.
    fn get(&self, snapshot: &Snapshot, name: Name, make: impl FnOnce() -> Document) -> Arc<CachedDocument> {
        let mut cache = self.cache.lock();
        if let Some(document) = cache.find(snapshot.generation, &name) {
            return document;
        }
        let Document { body: plain, hash } = make();
        let gzip = if plain.len() >= GZIP_FROM { compress(&plain) } else { Bytes::new() };
        let document = Arc::new(CachedDocument { plain: Some(plain), gzip, hash });
        cache.insert(snapshot.generation, name, &document);
        document
    }

    /// The document of this name, if it was made since the registry changed.
    fn cached(&self, snapshot: &Snapshot, name: &Name) -> Option<Arc<CachedDocument>> {
        self.cache.lock().find(snapshot.generation, name)
    }

    /// The document of these resources. Only one piece of a large one is in memory plain.
    fn render(&self, name: &Name, resources: Vec<Arc<Resource>>) -> CachedDocument {
        const INFALLIBLE: &str = "writing to memory does not fail";
        let hash = self.hash(&resources);
        let pieces = match name {
            Name::OldOpenApi => self.openapi.old_pieces(resources),
            _ => self.openapi.pieces(resources),
        };
        let (mut plain, mut encoder) = (Some(Vec::new()), GzEncoder::new(Vec::new(), Compression::default()));
        for piece in pieces {
            encoder.write_all(&piece).expect(INFALLIBLE);
            plain = plain.filter(|before| before.len() + piece.len() <= KEEP_PLAIN);
            plain.iter_mut().for_each(|before| before.extend_from_slice(&piece));
        }
        let mut gzip = encoder.finish().expect(INFALLIBLE);
        gzip.shrink_to_fit();
        CachedDocument { plain: plain.map(Bytes::from), gzip: gzip.into(), hash }
    }

    fn hash(&self, resources: &[Arc<Resource>]) -> String {
        self.openapi.hash(&resources.iter().map(|resource| &**resource).collect::<Vec<_>>())
    }
}

impl Cache {
    fn find(&self, generation: u64, name: &Name) -> Option<Arc<CachedDocument>> {
        self.documents.get(name).filter(|_| self.generation == generation).cloned()
    }

    /// Keeps a document, unless the registry has changed while it was made.
    fn insert(&mut self, generation: u64, name: Name, document: &Arc<CachedDocument>) {
        if self.generation > generation {
            return;
        }
        let bytes = document.plain.as_ref().map_or(0, Bytes::len) + document.gzip.len();
        if self.generation < generation || self.bytes + bytes > KEEP_ALTOGETHER {
            *self = Self { generation, ..Self::default() };
        }
        self.bytes += bytes;
        self.documents.insert(name, document.clone());
    }
}

impl Name {
    /// The resources that an OpenAPI document is about.
    fn resources(&self, snapshot: &Snapshot) -> Vec<Arc<Resource>> {
        let is_described = |resource: &&Arc<Resource>| match self {
            Name::OpenApi(group, version) => *resource.group == **group && *resource.version == **version,
            _ => true,
        };
        snapshot.resources().iter().filter(is_described).cloned().collect()
    }
}

/// A document that everybody may keep for an hour.
fn public(content_type: &'static str, document: &Value) -> Response<Body> {
    let mut response = typed(200, content_type, Body::full(document.to_string()));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

/// Answers a request for a document.
pub(crate) async fn answer(server: &Arc<Server>, parts: &Parts, endpoint: &Endpoint) -> Result<Response<Body>, Status> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let accept = text(parts, header::ACCEPT);
    let snapshot = server.registry.snapshot();
    let catalog = || Catalog::of(snapshot.resources());
    let plain = |json: Vec<u8>| -> Result<Response<Body>, Status> {
        let wanted = MediaTypeOptions::accept(accept, ResponseKind::Plain, false)?;
        let bytes = encode(wanted.encoding, wanted.pretty, json)?;
        Ok(typed(200, wanted.encoding.content_type(), Body::full(bytes)))
    };
    // These are no objects, and JSON for everybody.
    let untyped = |json: Vec<u8>| -> Result<Response<Body>, Status> {
        MediaTypeOptions::accept(accept, ResponseKind::Plain, false)?;
        Ok(typed(200, JSON, Body::full(json)))
    };
    let found = |json: Option<Vec<u8>>| json.map_or_else(|| Ok(not_found_page()), plain);
    match endpoint {
        Endpoint::Root => untyped(json(&root(&snapshot))),
        Endpoint::Version => untyped(json(&version())),
        Endpoint::Health { check, .. } => Ok(health::answer(parts, check.as_deref(), &server.store.health().borrow())),
        Endpoint::Metrics => Ok(typed(200, METRICS_TYPE, Body::full(server.metrics_page()))),
        Endpoint::OpenIdConfiguration => {
            // Over HTTP/2 the host is in the URI.
            let address = parts.uri.authority().map(|authority| authority.as_str()).or(text(parts, header::HOST));
            let address = address.unwrap_or("127.0.0.1");
            let document = server.authentication.service_accounts.discovery(address);
            Ok(document.map_or_else(not_found_page, |document| public("application/json", &document)))
        }
        Endpoint::TokenKeys => {
            Ok(public("application/jwk-set+json", &server.authentication.service_accounts.key_set()))
        }
        Endpoint::CoreVersions | Endpoint::Groups => {
            let core = *endpoint == Endpoint::CoreVersions;
            match DiscoveryForm::accept(accept)? {
                DiscoveryForm::Legacy(encoding) => {
                    let address = text(parts, header::HOST).unwrap_or("127.0.0.1");
                    let bytes = match core {
                        true => json(&catalog().api_versions(address)),
                        false => json(&catalog().api_group_list()),
                    };
                    Ok(typed(200, encoding.content_type(), Body::full(encode(encoding, false, bytes)?)))
                }
                DiscoveryForm::Aggregated(version) => {
                    let root = if core { Root::Api } else { Root::Apis };
                    let document = server
                        .documents
                        .get(&snapshot, Name::Discovery(root, version), || catalog().aggregated(root, version));
                    let mut response = send(parts, &document, version.content_type());
                    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
                    Ok(response)
                }
            }
        }
        Endpoint::Group { group } => found(catalog().api_group(group).as_ref().map(json)),
        Endpoint::Resources { group, version } => found(catalog().api_resource_list(group, version).as_ref().map(json)),
        Endpoint::OpenApiIndex => {
            let documents = &server.documents;
            let document = documents.get(&snapshot, Name::OpenApiIndex, || documents.openapi.root(&catalog()));
            Ok(send(parts, &document, JSON))
        }
        Endpoint::OldOpenApi if accept.is_some_and(|accept| accept.contains("proto-openapi.spec.v2")) => {
            Ok(untyped_old_openapi())
        }
        Endpoint::OldOpenApi => Ok(openapi(server, parts, Name::OldOpenApi, None).await),
        Endpoint::OpenApi { group, version } => {
            let asked = Query::parse(parts.uri.query()).get("hash").map(str::to_owned);
            let name = Name::OpenApi(group.to_owned(), version.to_owned());
            let mut response = openapi(server, parts, name, asked.as_deref()).await;
            if asked.is_some() && (response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED) {
                // A client that asks by hash never needs to ask again.
                let headers = response.headers_mut();
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
                headers.insert(header::EXPIRES, HeaderValue::from_static("Fri, 01 Jan 2100 00:00:00 GMT"));
            }
            Ok(response)
        }
        Endpoint::Objects(_) | Endpoint::Unknown => Ok(not_found_page()),
    }
}

fn json<T: Serialize>(document: &T) -> Vec<u8> {
    serde_json::to_vec(document).expect("writing to memory does not fail")
}

/// Answers with an OpenAPI document, or without one if the client has it, or asks for an older one by its hash.
async fn openapi(server: &Arc<Server>, parts: &Parts, name: Name, asked: Option<&str>) -> Response<Body> {
    let unneeded = |hash: &str| match asked {
        Some(asked) if asked != hash => Some(moved(&format!("{}?hash={hash}", parts.uri.path()))),
        _ => not_modified(parts, JSON, hash),
    };
    let snapshot = server.registry.snapshot();
    let document = match server.documents.cached(&snapshot, &name) {
        Some(document) => document,
        None => {
            let resources = name.resources(&snapshot);
            if resources.is_empty() {
                return not_found_page();
            }
            if let Some(response) = unneeded(&server.documents.hash(&resources)) {
                return response;
            }
            match rendered(server, name).await {
                Some(document) => document,
                // The last definition of the group has gone meanwhile.
                None => return not_found_page(),
            }
        }
    };
    unneeded(&document.hash).unwrap_or_else(|| send(parts, &document, JSON))
}

/// The document of the resources that there are when it is the turn of this request. One document is rendered at a time, on
/// another thread, which finishes it and keeps it also if nobody waits any more.
async fn rendered(server: &Arc<Server>, name: Name) -> Option<Arc<CachedDocument>> {
    let turn = server.documents.rendering.clone().lock_owned().await;
    let snapshot = server.registry.snapshot();
    if let Some(document) = server.documents.cached(&snapshot, &name) {
        return Some(document);
    }
    let resources = name.resources(&snapshot);
    if resources.is_empty() {
        return None;
    }
    let server = server.clone();
    let rendering = on_a_thread(turn, move |_| {
        let documents = &server.documents;
        let document = Arc::new(documents.render(&name, resources));
        documents.cache.lock().insert(snapshot.generation, name, &document);
        document
    });
    Some(rendering.await)
}

/// Sends a compressed document plain, piece by piece, and lets other requests run between them.
fn decompressed(gzip: Bytes) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(GzDecoder::new(std::io::Cursor::new(gzip)), |mut decoder| async move {
        tokio::task::yield_now().await;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        decoder.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).expect("it was compressed here");
        (!piece.is_empty()).then(|| (Bytes::from(piece), decoder))
    })
}

/// `/openapi/v2` in protobuf: a document without types, as those are published in JSON and in version 3. kubectl reads it before
/// objects that it cannot look up there, a `List` or a kind that is not installed, and refuses to go on without one.
fn untyped_old_openapi() -> Response<Body> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let release = format!("v{KUBERNETES_VERSION}");
    // Document: 1 swagger, 2 info (1 title, 2 version), 8 paths.
    let info = [proto(1, b"Kubernetes"), proto(2, release.as_bytes())].concat();
    let document = [proto(1, b"2.0"), proto(2, &info), proto(8, b"")].concat();
    typed(200, PROTOBUF, Body::full(document))
}

/// A field of a protobuf message whose value has a length, below 128 bytes.
fn proto(field: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).ok().filter(|length| *length < 128).expect("only short values are written");
    [&[field << 3 | 2, length], value].concat()
}

/// Sends a document, or 304 if the client has it already.
fn send(parts: &Parts, document: &CachedDocument, content_type: &'static str) -> Response<Body> {
    if let Some(response) = not_modified(parts, content_type, &document.hash) {
        return response;
    }
    let response = match &document.plain {
        _ if takes_gzip(parts) && !document.gzip.is_empty() => {
            let mut response = typed(200, content_type, Body::full(document.gzip.clone()));
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        Some(plain) => typed(200, content_type, Body::full(plain.clone())),
        None => typed(200, content_type, Body::stream(decompressed(document.gzip.clone()))),
    };
    tagged(response, &document.hash)
}

/// 304 if the client has the document of this hash.
fn not_modified(parts: &Parts, content_type: &'static str, hash: &str) -> Option<Response<Body>> {
    let tag = format!("\"{hash}\"");
    has(parts, &tag).then(|| tagged(typed(304, content_type, Body::empty()), hash))
}

/// Whether the client has the document of this tag.
fn has(parts: &Parts, tag: &str) -> bool {
    text(parts, header::IF_NONE_MATCH).is_some_and(|known| known.split(',').any(|one| one.trim() == tag))
}

fn takes_gzip(parts: &Parts) -> bool {
    text(parts, header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"))
}

fn tagged(mut response: Response<Body>, hash: &str) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    response.headers_mut().insert(header::ETAG, HeaderValue::try_from(tag).expect("a hash is a header value"));
    response
}

/// 301 to the newest document, for a request with the hash of an older one.
fn moved(to: &str) -> Response<Body> {
    let mut response = typed(301, "text/plain; charset=utf-8", Body::empty());
    let location = HeaderValue::try_from(to).expect("a path that was asked for is a header value");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

fn compress(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    Bytes::from(written.expect("writing to memory does not fail"))
}

fn text(parts: &Parts, name: header::HeaderName) -> Option<&str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}

/// `/`: the paths that the server has.
fn root(snapshot: &Snapshot) -> Value {
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .into();
    for resource in snapshot.resources().iter().filter(|resource| !resource.group.is_empty()) {
        paths.push(format!("/apis/{}", resource.group));
        paths.push(format!("/apis/{}/{}", resource.group, resource.version));
    }
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// `/version`: the Kubernetes release whose API is served, with the version of this server.
fn version() -> Value {
    json!({
        "major": "1",
        "minor": kubernetes_minor(),
        "gitVersion": format!("v{KUBERNETES_VERSION}+konverge.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, if cfg!(target_arch = "x86_64") { "amd64" } else { std::env::consts::ARCH }),
    })
}

#[cfg(test)]
mod tests;
