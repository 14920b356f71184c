//! Who may ask. In: a request's head. Out: nothing, or the refusal. On loopback everybody on this machine may do
//! everything, so what has to be kept out is pages of the web: those that reach us under a name of their own (DNS
//! rebinding), and those that make a browser send us something. On any other address only the bearer of the token is
//! let in.

use std::net::IpAddr;

use http::{HeaderMap, Request, Uri, header};

use konverge_core::Status;

/// Decides about each request.
#[derive(Clone, Debug)]
pub enum Guard {
    /// Reachable from this machine only: any request that is addressed to it as such.
    Loopback,
    /// Reachable from elsewhere: any request that brings this token.
    Token(String),
}

impl Guard {
    /// Lets a request pass, or says why not.
    pub fn admit<B>(&self, request: &Request<B>) -> Result<(), Status> {
        let headers = request.headers();
        let host = host(headers, request.uri());
        if let Some(origin) = headers.get(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let own = origin.split_once("://").map(|(_, authority)| authority);
            if own.is_none() || own != host {
                let why = format!("a page of {origin} may not use this server through a browser");
                return Err(Status::failure(403, "Forbidden", why));
            }
        }
        match self {
            Guard::Loopback => match host {
                // Browsers always say whom they mean.
                None => Ok(()),
                Some(host) if is_loopback(host) => Ok(()),
                Some(host) => Err(Status::failure(
                    403,
                    "Forbidden",
                    format!("this server is localhost and 127.0.0.1, and not {host:?}; use one of its own names"),
                )),
            },
            Guard::Token(token) => {
                let given =
                    headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let given = given.strip_prefix("Bearer ").unwrap_or_default();
                match same(given.as_bytes(), token.as_bytes()) {
                    true => Ok(()),
                    false => Err(Status::failure(401, "Unauthorized", "Unauthorized")),
                }
            }
        }
    }
}

/// Whom the client means, with the port.
fn host<'r>(headers: &'r HeaderMap, uri: &'r Uri) -> Option<&'r str> {
    let named = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    named.or_else(|| uri.authority().map(|authority| authority.as_str()))
}

/// Whether a host, with or without a port, can only be this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
}
