//! Access control in front of `konverge apiserver` and `konverge dev`. In: the head of a request. Out: nothing, or the
//! refusal. Where requests without a credential may do something, web pages in a developer's browser could do it, too: pages
//! that reach the server under their own name (DNS rebinding), and pages that make the browser send requests (cross-site
//! request forgery). Both are refused; clients that are no browsers are not affected.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, Request, Uri, header};
use konverge_core::Status;

static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which requests are allowed.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// The port is reachable from this machine only. Allows requests whose host is a loopback name or address.
    Loopback,
    /// The port is reachable from other machines, under any name. Every request that may do something has a credential,
    /// which no page of another site has.
    Anywhere,
}

impl Access {
    /// Allows a request, or says why not.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let headers = request.headers();
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let forbidden = |why: String| Err(Status::failure(403, "Forbidden", why));
        let host = host(headers, request.uri())?;
        if let Some(origin) = text(&header::ORIGIN) {
            let own = origin.split_once("://").map(|(_, authority)| authority);
            if own.is_none() || own != host {
                return forbidden(format!("a page of {origin} may not use this server through a browser"));
            }
        }
        // A browser that hides the origin still says that the page is of another site. Following a link is harmless.
        let follows_a_link = || text(&FETCH_MODE) == Some("navigate") && request.method() == Method::GET;
        if let Some("cross-site" | "same-site") = text(&FETCH_SITE)
            && !follows_a_link()
        {
            return forbidden("a page of another site may not use this server through a browser".to_owned());
        }
        // Kubernetes reads a body without a Content-Type as JSON, and `kubectl create --raw` relies on it. A page of another
        // site can make a browser send such a body, so browsers have to set the type.
        let agent = || text(&header::USER_AGENT);
        let browser = || agent().is_some_and(|agent| agent.starts_with("Mozilla/")) || text(&header::ORIGIN).is_some();
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD);
        if writes && text(&header::CONTENT_TYPE).is_none() && browser() && has_body(headers) {
            let why = "a body that a browser sends needs a Content-Type; set it to application/json";
            return Err(Status::failure(415, "UnsupportedMediaType", why));
        }
        match (self, host) {
            // Browsers always send a host.
            (Access::Anywhere, _) | (_, None) => Ok(()),
            (Access::Loopback, Some(host)) if is_loopback(host) => Ok(()),
            (Access::Loopback, Some(host)) => {
                forbidden(format!("this server is localhost and 127.0.0.1, and not {host:?}; use one of its own names"))
            }
        }
    }
}

/// The host that the request names, with its port. Two different hosts are refused, because a proxy in between could use
/// the other one.
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

/// Whether the request has a body.
fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).map(|length| length.as_bytes());
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != b"0")
}

/// Whether a host, with or without a port, is this machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_let_in() {
        for (access, headers, expect) in [
            (Access::Loopback, &[("host", "localhost:3000")][..], None),
            (Access::Loopback, &[("host", "LOCALHOST")], None),
            (Access::Loopback, &[("host", "127.0.0.1:3000")], None),
            (Access::Loopback, &[("host", "127.9.9.9")], None),
            (Access::Loopback, &[("host", "[::1]:3000")], None),
            (Access::Loopback, &[], None),
            (Access::Loopback, &[("host", "evil.example:3000")], Some(403)),
            (Access::Loopback, &[("host", "localhost.evil.example")], Some(403)),
            (Access::Loopback, &[("host", "192.0.2.1:3000")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("origin", "http://localhost:3000")], None),
            (Access::Loopback, &[("host", "localhost:3000"), ("origin", "http://localhost:8080")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("origin", "https://evil.example")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("origin", "null")], Some(403)),
            (Access::Loopback, &[("origin", "https://evil.example")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("host", "localhost:3000")], Some(400)),
            (Access::Loopback, &[("host", "localhost:3000"), ("host", "evil.example")], Some(400)),
            (Access::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "cross-site")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "same-site")], Some(403)),
            (Access::Loopback, &[("host", "localhost:3000"), ("sec-fetch-site", "none")], None),
            (
                Access::Loopback,
                &[("host", "localhost:3000"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                None,
            ),
            (Access::Anywhere, &[("host", "dev.example")], None),
            (Access::Anywhere, &[], None),
            (Access::Anywhere, &[("host", "a"), ("origin", "https://b")], Some(403)),
        ] {
            let mut request = Request::get("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let refused = access.admit(&request.body(()).expect("a request")).err();
            assert_eq!(refused.map(|status| status.code), expect, "{access:?} {headers:?}");
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
            let refused = Access::Loopback.admit(&request.body(()).expect("a request")).err();
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
            let refused = Access::Loopback.admit(&request.body(()).expect("a request")).err();
            assert_eq!(refused.map(|status| status.code), expect, "{uri} {host:?}");
        }
    }
}
