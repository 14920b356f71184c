//! Who may ask, in front of both `konverge apiserver` and `konverge dev`. In: a request's head. Out: nothing, or the
//! refusal. Where nobody has to prove who he is, whoever reaches the port may do everything, and so might the pages of
//! the web in a developer's browser: those that reach us under a name of their own (DNS rebinding), and those that make
//! the browser send us something. Programs that are no browser are not in the way of this.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use tower_service::Service;

use konverge_apiserver::{ApiServer, Body};
use konverge_core::Status;

use crate::surface;

/// Decides about each request.
#[derive(Clone, Debug)]
pub enum Guard {
    /// Reachable from this machine only: any request that is addressed to it as such.
    Loopback,
    /// Reachable from elsewhere without proof of who asks: any request that is addressed to one of these names, which
    /// are those of the certificate, or to loopback.
    Names(Vec<String>),
    /// Reachable from elsewhere: any request that brings this token.
    Token(String),
}

impl Guard {
    /// Lets a request pass, or says why not.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let headers = request.headers();
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let forbidden = |why: String| Err(Status::failure(403, "Forbidden", why));
        let host = host(headers, request.uri())?;
        if let Some(origin) = text("origin") {
            let own = origin.split_once("://").map(|(_, authority)| authority);
            if own.is_none() || own != host {
                return forbidden(format!("a page of {origin} may not use this server through a browser"));
            }
        }
        // A browser that hides the origin still tells that a page of somebody else asks. Following a link is harmless.
        let follows_a_link = text("sec-fetch-mode") == Some("navigate") && request.method() == Method::GET;
        if let Some("cross-site" | "same-site") = text("sec-fetch-site")
            && !follows_a_link
        {
            return forbidden("a page of another site may not use this server through a browser".to_owned());
        }
        // Kubernetes takes a body without a type for JSON, and `kubectl create --raw` relies on it; what a browser sends
        // without being allowed to say that it is JSON is none.
        let browser = text("user-agent").is_some_and(|agent| agent.starts_with("Mozilla/")) || text("origin").is_some();
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if browser && writes && text("content-type").is_none() && has_body(headers) {
            let why = "a body that a browser sends needs a Content-Type; set it to application/json";
            return Err(Status::failure(415, "UnsupportedMediaType", why));
        }
        match (self, host) {
            (Guard::Token(token), _) => {
                let given = text("authorization").unwrap_or_default().strip_prefix("Bearer ").unwrap_or_default();
                match same(given.as_bytes(), token.as_bytes()) {
                    true => Ok(()),
                    false => Err(Status::failure(401, "Unauthorized", "Unauthorized")),
                }
            }
            // Browsers always say whom they mean.
            (_, None) => Ok(()),
            (_, Some(host)) if is_loopback(host) => Ok(()),
            (Guard::Names(names), Some(host)) => {
                let name = without_port(host);
                match names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                    true => Ok(()),
                    false => forbidden(format!(
                        "this server is {}, and not {name:?}; use one of its own names, or start it with --tls-name {name}",
                        names.join(", ")
                    )),
                }
            }
            (Guard::Loopback, Some(host)) => {
                forbidden(format!("this server is localhost and 127.0.0.1, and not {host:?}; use one of its own names"))
            }
        }
    }
}

/// The API server behind a guard.
#[derive(Clone)]
pub struct Guarded {
    guard: Arc<Guard>,
    api: ApiServer,
}

impl Guarded {
    pub fn new(guard: Guard, api: ApiServer) -> Self {
        Self { guard: Arc::new(guard), api }
    }
}

impl<B> Service<Request<B>> for Guarded
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.guard.admit(&request) {
            Ok(()) => self.api.call(request),
            Err(status) => Box::pin(std::future::ready(Ok(surface::failure(&status)))),
        }
    }
}

/// Whom the client means, with the port. Who names two hosts might mean one to us and another to whoever is between.
fn host<'r>(headers: &'r HeaderMap, uri: &'r Uri) -> Result<Option<&'r str>, Status> {
    let mut named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or("?"));
    let (first, second) = (named.next(), named.next());
    let authority = uri.authority().map(|authority| authority.as_str());
    let differs = first.zip(authority).is_some_and(|(host, authority)| !host.eq_ignore_ascii_case(authority));
    if second.is_some() || differs {
        return Err(Status::bad_request("a request must name one host; send one Host header"));
    }
    Ok(first.or(authority))
}

/// Whether the head promises a body.
fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).map(|length| length.as_bytes());
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != b"0")
}

/// Whether a host, with or without a port, can only be this machine.
fn is_loopback(host: &str) -> bool {
    let name = without_port(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// Compares in the same time wherever they differ.
fn same(given: &[u8], expect: &[u8]) -> bool {
    given.len() == expect.len() && given.iter().zip(expect).fold(0, |found, (a, b)| found | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_in() {
        let token = || Guard::Token("secret".into());
        let names = || Guard::Names(vec!["api.example".into(), "2001:db8::1".into()]);
        for (guard, headers, expect) in [
            (Guard::Loopback, &[("host", "localhost:3000")][..], None),
            (Guard::Loopback, &[("host", "LOCALHOST")], None),
            (Guard::Loopback, &[("host", "127.0.0.1:3000")], None),
            (Guard::Loopback, &[("host", "127.9.9.9")], None),
            (Guard::Loopback, &[("host", "[::1]:3000")], None),
            (Guard::Loopback, &[], None),
            (Guard::Loopback, &[("host", "evil.example:3000")], Some(403)),
            (Guard::Loopback, &[("host", "localhost.evil.example")], Some(403)),
            (Guard::Loopback, &[("host", "192.0.2.1:3000")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("origin", "http://localhost:3000")], None),
            (Guard::Loopback, &[("host", "localhost:3000"), ("origin", "http://localhost:8080")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("origin", "https://evil.example")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("origin", "null")], Some(403)),
            (Guard::Loopback, &[("origin", "https://evil.example")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("host", "localhost:3000")], Some(400)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("host", "evil.example")], Some(400)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "cross-site")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "same-site")], Some(403)),
            (Guard::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "none")], None),
            (
                Guard::Loopback,
                &[("host", "localhost:3000"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                None,
            ),
            (names(), &[("host", "api.example:6443")], None),
            (names(), &[("host", "API.example")], None),
            (names(), &[("host", "[2001:db8::1]:6443")], None),
            (names(), &[("host", "localhost:6443")], None),
            (names(), &[], None),
            (names(), &[("host", "evil.example:6443")], Some(403)),
            (names(), &[("host", "api.example:6443"), ("origin", "https://evil.example")], Some(403)),
            (token(), &[("host", "dev.example"), ("authorization", "Bearer secret")], None),
            (token(), &[("host", "dev.example")], Some(401)),
            (token(), &[("host", "dev.example"), ("authorization", "Bearer secre")], Some(401)),
            (token(), &[("host", "dev.example"), ("authorization", "Basic secret")], Some(401)),
            (token(), &[("host", "a"), ("origin", "https://b"), ("authorization", "Bearer secret")], Some(403)),
        ] {
            let mut request = Request::get("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let refused = guard.admit(&request.body(()).expect("a request")).err();
            assert_eq!(refused.map(|status| status.code), expect, "{guard:?} {headers:?}");
        }
    }

    #[test]
    fn what_a_browser_sends_without_a_type_is_no_json() {
        let browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        let length = ("content-length", "17");
        for (method, headers, expect) in [
            // `kubectl create --raw` says no type either.
            ("POST", &[("user-agent", "kubectl/v1.30.0"), length][..], None),
            ("POST", &[browser, length], Some(415)),
            ("DELETE", &[browser, ("transfer-encoding", "chunked")], Some(415)),
            ("POST", &[browser, length, ("content-type", "application/json")], None),
            ("POST", &[browser, ("content-length", "0")], None),
            ("DELETE", &[browser], None),
            ("GET", &[browser, length], None),
        ] {
            let mut request = Request::builder().method(method).uri("/").header("host", "localhost");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let refused = Guard::Loopback.admit(&request.body(()).expect("a request")).err();
            assert_eq!(refused.map(|status| status.code), expect, "{method} {headers:?}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        for (uri, host, expect) in [
            ("http://localhost:3000/", None, None),
            ("http://localhost:3000/", Some("localhost:3000"), None),
            ("http://evil.example/", Some("localhost:3000"), Some(400)),
            ("http://evil.example/", None, Some(403)),
        ] {
            let mut request = Request::get(uri);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            let refused = Guard::Loopback.admit(&request.body(()).expect("a request")).err();
            assert_eq!(refused.map(|status| status.code), expect, "{uri} {host:?}");
        }
    }
}
