//! Documents about the server: discovery, OpenAPI, version, health. In: the registry. Out: documents, made at the first request
//! and cached until the registry changes, or written while they are sent if they are large.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{Stream, stream};
use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use konverge_core::{KUBERNETES_VERSION, Status, kubernetes_minor};
use konverge_schema::kubernetes;

use crate::body::Body;
use crate::discovery::{Catalog, Document, Root};
use crate::health;
use crate::negotiate::{DiscoveryForm, DiscoveryVersion, MediaTypeOptions, ResponseKind};
use crate::openapi::{DocumentPieces, OpenApi};
use crate::registry::Snapshot;
use crate::request::{Endpoint, Query};
use crate::resource::Resource;
use crate::response::{encode, not_found_page, typed};
use crate::server::Server;

/// Documents below this size are not worth compressing.
const GZIP_FROM: usize = 4 * 1024;

/// Documents above this size are not cached, but written again for each request.
const KEEP_TO: usize = 2 * 1024 * 1024;

/// What cached documents may take together, plain and compressed: more than all of the built-in kinds do. When they are more,
/// the cache is emptied, which costs time only.
const KEEP_ALTOGETHER: usize = 32 * 1024 * 1024;

/// The media type of pages for Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The documents of a server.
#[derive(Debug)]
pub(crate) struct Documents {
    pub openapi: OpenApi,
    cache: Mutex<Cache>,
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

/// A document, plain and compressed.
#[derive(Debug)]
struct CachedDocument {
    plain: Bytes,
    gzip: Option<Bytes>,
    hash: String,
}

impl Default for Documents {
    fn default() -> Self {
        Self { openapi: OpenApi::new(kubernetes().clone()), cache: Mutex::default() }
    }
}

impl Documents {
    /// The document of this name, made again if the registry has changed since.
    fn get(&self, snapshot: &Snapshot, name: Name, make: impl FnOnce() -> Document) -> Arc<CachedDocument> {
        let mut cache = self.cache.lock();
        cache.at(snapshot.generation);
        if let Some(document) = cache.documents.get(&name) {
            return document.clone();
        }
        cache.insert(name, make())
    }
}

impl Cache {
    fn at(&mut self, generation: u64) {
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
    }

    fn insert(&mut self, name: Name, Document { body: plain, hash }: Document) -> Arc<CachedDocument> {
        let gzip = (plain.len() >= GZIP_FROM).then(|| compress(&plain));
        let document = Arc::new(CachedDocument { plain, gzip, hash });
        let bytes = document.plain.len() + document.gzip.as_ref().map_or(0, Bytes::len);
        if self.bytes + bytes > KEEP_ALTOGETHER {
            *self = Self { generation: self.generation, ..Self::default() };
        }
        if bytes <= KEEP_ALTOGETHER {
            self.bytes += bytes;
            self.documents.insert(name, document.clone());
        }
        document
    }
}

/// A document that everybody may keep for an hour.
fn public(content_type: &'static str, document: &Value) -> Response<Body> {
    let mut response = typed(200, content_type, Body::full(document.to_string()));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

/// Answers a request for a document.
pub(crate) fn answer(server: &Server, parts: &Parts, endpoint: &Endpoint) -> Result<Response<Body>, Status> {
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
        Ok(typed(200, "application/json", Body::full(json)))
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
            Ok(send(parts, &document, "application/json"))
        }
        Endpoint::OldOpenApi if accept.is_some_and(|accept| accept.contains("proto-openapi.spec.v2")) => {
            Ok(untyped_old_openapi())
        }
        Endpoint::OldOpenApi => {
            let resources = snapshot.resources().to_vec();
            let hash = server.documents.openapi.hash(&resources.iter().map(|resource| &**resource).collect::<Vec<_>>());
            let pieces = server.documents.openapi.old_pieces(resources);
            Ok(openapi(&server.documents, parts, &snapshot, Name::OldOpenApi, pieces, hash))
        }
        Endpoint::OpenApi { group, version } => {
            let of_version = |resource: &&Arc<Resource>| &*resource.group == group && &*resource.version == version;
            let resources: Vec<Arc<Resource>> = snapshot.resources().iter().filter(of_version).cloned().collect();
            if resources.is_empty() {
                return Ok(not_found_page());
            }
            let hash = server.documents.openapi.hash(&resources.iter().map(|resource| &**resource).collect::<Vec<_>>());
            let asked = Query::parse(parts.uri.query()).get("hash").map(str::to_owned);
            if asked.as_ref().is_some_and(|asked| *asked != hash) {
                return Ok(moved(&format!("{}?hash={hash}", parts.uri.path())));
            }
            let name = Name::OpenApi(group.to_owned(), version.to_owned());
            let pieces = server.documents.openapi.pieces(resources);
            let mut response = openapi(&server.documents, parts, &snapshot, name, pieces, hash);
            if asked.is_some() {
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

/// An OpenAPI document: cached if it is small, written while it is sent if it is large.
fn openapi(
    documents: &Documents,
    parts: &Parts,
    snapshot: &Snapshot,
    name: Name,
    mut pieces: DocumentPieces,
    hash: String,
) -> Response<Body> {
    const JSON: &str = "application/json";
    let known = {
        let mut cache = documents.cache.lock();
        cache.at(snapshot.generation);
        cache.documents.get(&name).cloned()
    };
    if let Some(document) = known {
        return send(parts, &document, JSON);
    }
    let tag = format!("\"{hash}\"");
    if has(parts, &tag) {
        return tagged(typed(304, JSON, Body::empty()), tag);
    }
    let mut begun = Vec::new();
    while begun.len() <= KEEP_TO {
        let Some(piece) = pieces.next() else {
            let mut cache = documents.cache.lock();
            cache.at(snapshot.generation);
            let document = cache.insert(name, Document { body: begun.into(), hash });
            drop(cache);
            return send(parts, &document, JSON);
        };
        begun.extend_from_slice(&piece);
    }
    let pieces = std::iter::once(begun).chain(pieces);
    let response = if takes_gzip(parts) {
        let mut response = typed(200, JSON, Body::stream(yielding(compressed(pieces))));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else {
        typed(200, JSON, Body::stream(yielding(pieces.map(Bytes::from))))
    };
    tagged(response, tag)
}

/// Sends pieces and lets other requests run between them.
fn yielding(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send + 'static {
    stream::unfold(pieces, |mut pieces| async move {
        tokio::task::yield_now().await;
        pieces.next().map(|piece| (piece, pieces))
    })
}

/// The pieces of a document, compressed as they come.
fn compressed(mut pieces: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = Bytes> {
    const WORTH_SENDING: usize = 16 * 1024;
    const INFALLIBLE: &str = "writing to memory does not fail";
    let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::default()));
    std::iter::from_fn(move || {
        loop {
            let open = encoder.as_mut()?;
            let Some(piece) = pieces.next() else {
                let last = encoder.take().map(|open| open.finish().expect(INFALLIBLE));
                return last.map(Bytes::from);
            };
            open.write_all(&piece).expect(INFALLIBLE);
            if open.get_ref().len() >= WORTH_SENDING {
                return Some(std::mem::take(open.get_mut()).into());
            }
        }
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
    let tag = format!("\"{}\"", document.hash);
    let response = match &document.gzip {
        _ if has(parts, &tag) => typed(304, content_type, Body::empty()),
        Some(bytes) if takes_gzip(parts) => {
            let mut response = typed(200, content_type, Body::full(bytes.clone()));
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        _ => typed(200, content_type, Body::full(document.plain.clone())),
    };
    tagged(response, tag)
}

/// Whether the client has the document of this tag.
fn has(parts: &Parts, tag: &str) -> bool {
    text(parts, header::IF_NONE_MATCH).is_some_and(|known| known.split(',').any(|one| one.trim() == tag))
}

fn takes_gzip(parts: &Parts) -> bool {
    text(parts, header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"))
}

fn tagged(mut response: Response<Body>, tag: String) -> Response<Body> {
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
