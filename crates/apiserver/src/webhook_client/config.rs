//! Where a webhook is and whom to trust. In: a `clientConfig`, as webhook configurations and definitions have it. Out: the URL to
//! post to, the host, and what clients can be shared by.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::TimeLimit;
use super::failure::go_duration;
use super::resolve;
use crate::server::Server;

/// A `clientConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientConfig {
    target: Target,
    /// PEM; empty for the CAs of the system.
    pub(super) ca_bundle: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Url { scheme: String, authority: String, host: String, path: String },
    Service { namespace: String, name: String, port: u16, path: String },
}

/// What a client with its connections is for. Two webhooks with the same key are reached and trusted in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientKey {
    ca_bundle: Arc<[u8]>,
    address: Option<String>,
    http2: bool,
}

impl ClientConfig {
    pub(crate) fn read(json: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bundle = BASE64_STANDARD.decode(text(&json["caBundle"])).unwrap_or_default();
        let blank = bundle.iter().all(u8::is_ascii_whitespace);
        let ca_bundle = if blank { Arc::default() } else { bundle.into() };
        let service = &json["service"];
        let target = if service.is_object() {
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let (namespace, name, path) = (text(&service["namespace"]), text(&service["name"]), text(&service["path"]));
            Target::Service { namespace, name, port, path }
        } else {
            let url = text(&json["url"]);
            let uri: http::Uri = url.parse().unwrap_or_default();
            let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
            let host = uri.host().unwrap_or_default().to_owned();
            let scheme = uri.scheme_str().unwrap_or("https").to_owned();
            Target::Url { scheme, authority, host, path: uri.path().to_owned() }
        };
        Self { target, ca_bundle }
    }

    /// What is posted to. A limit that is told is there in whole seconds, rounded up.
    pub(super) fn url(&self, limit: TimeLimit) -> String {
        let (start, path) = match &self.target {
            Target::Url { scheme, authority, path, .. } => (format!("{scheme}://{authority}"), path),
            Target::Service { port, path, .. } => (format!("https://{}:{port}", self.host()), path),
        };
        let path = path.trim_matches('/');
        let query = match limit {
            TimeLimit::Told(limit) => format!("?timeout={}", go_duration(limit)),
            TimeLimit::Untold(_) => String::new(),
        };
        format!("{start}/{path}{query}")
    }

    /// The name that the webhook's certificate has to be for.
    pub(super) fn host(&self) -> String {
        match &self.target {
            Target::Url { host, .. } => host.clone(),
            Target::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// Where to connect to instead of the host in the URL: a Service has no address that everybody knows.
    pub(super) fn address(&self, server: &Server) -> Result<Option<String>, String> {
        match &self.target {
            Target::Url { .. } => Ok(None),
            Target::Service { namespace, name, port, .. } => resolve::service(server, namespace, name, *port).map(Some),
        }
    }

    /// Whether HTTP/2 may be spoken: as in kube-apiserver only with local hosts, because a single connection would bind all calls
    /// to one of several replicas.
    pub(super) fn http2(&self) -> bool {
        let Target::Url { host, .. } = &self.target else { return false };
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn client_key(&self, address: Option<&str>) -> ClientKey {
        ClientKey { ca_bundle: self.ca_bundle.clone(), address: address.map(str::to_owned), http2: self.http2() }
    }
}
