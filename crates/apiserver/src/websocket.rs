//! A watch as the messages of a WebSocket, which is how fabric8 and older clients ask for one. In: a request's head, and
//! the events of a watch. Out: 101 with one event in each piece of the body; the listener does the handshake and turns
//! pieces into messages. Nothing here knows of sockets.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, Response, header};

use konverge_core::Status;

use crate::body::Body;

/// Whether a request asks for a WebSocket.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    upgrades(headers) && lists(headers, &header::UPGRADE, "websocket")
}

/// Whether a request asks to upgrade its connection.
pub(crate) fn upgrades(headers: &HeaderMap) -> bool {
    lists(headers, &header::CONNECTION, "upgrade")
}

/// What the name of a subprotocol begins with that carries a bearer token. Browsers cannot send other headers.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// The subprotocols that a client names, without the one that carries a token.
pub(crate) fn protocols(headers: &HeaderMap) -> Vec<&str> {
    named_protocols(headers).filter(|name| !name.starts_with(TOKEN)).collect()
}

/// The bearer token among the subprotocols, or what is wrong with it.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<Result<String, &'static str>> {
    if !is_requested(headers) {
        return None;
    }
    let mut tokens = named_protocols(headers).filter_map(|name| name.strip_prefix(TOKEN));
    let encoded = tokens.next()?;
    if tokens.next().is_some() {
        return Some(Err("multiple base64.bearer.authorization tokens specified"));
    }
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(encoded) else {
        return Some(Err("invalid base64.bearer.authorization token encoding"));
    };
    match String::from_utf8(bytes) {
        Err(_) => Some(Err("invalid base64.bearer.authorization token")),
        Ok(token) if token.is_empty() => None,
        // There has to be one that the answer can name.
        Ok(_) if protocols(headers).is_empty() => Some(Err("missing additional subprotocol")),
        Ok(token) => Some(Ok(token)),
    }
}

fn named_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

fn lists(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(word))
}

/// The answer to such a request. Each event has its own memory: a slice would hold the whole buffer, while the listener counts
/// only the slice.
pub(crate) fn answer(
    headers: &HeaderMap,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response<Body>, Status> {
    let mut response = Response::builder().status(101);
    // Events are the same in every subprotocol, but the client has to learn which one was chosen.
    match protocols(headers).as_slice() {
        [] => {}
        [one] => response = response.header(header::SEC_WEBSOCKET_PROTOCOL, *one),
        _ => return Err(Status::bad_request("a watch takes one Sec-WebSocket-Protocol, or none")),
    }
    Ok(response.body(Body::stream(events)).expect("a known code and a header that came make a response"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_among_subprotocols() {
        #[track_caller]
        fn check(lines: &[&str], expect: (Option<Result<&str, &str>>, &[&str])) {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONNECTION, "Upgrade".parse().unwrap());
            headers.insert(header::UPGRADE, "websocket".parse().unwrap());
            for line in lines {
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, line.parse().unwrap());
            }
            let token = bearer(&headers);
            let token = token.as_ref().map(|token| token.as_deref().map_err(|why| *why));
            assert_eq!((token, protocols(&headers).as_slice()), expect, "{lines:?}");
            headers.remove(header::UPGRADE);
            assert_eq!(bearer(&headers), None);
        }
        // `secret` and the byte 255.
        let (token, broken) = (format!("{TOKEN}c2VjcmV0"), format!("{TOKEN}_w"));
        check(&[], (None, &[]));
        check(&["v4.channel.k8s.io"], (None, &["v4.channel.k8s.io"]));
        check(&[&format!("{token}, v4.channel.k8s.io")], (Some(Ok("secret")), &["v4.channel.k8s.io"]));
        check(&["a,b", &token], (Some(Ok("secret")), &["a", "b"]));
        check(&[&token], (Some(Err("missing additional subprotocol")), &[]));
        check(&[&token, &token, "a"], (Some(Err("multiple base64.bearer.authorization tokens specified")), &["a"]));
        check(&[&broken, "a"], (Some(Err("invalid base64.bearer.authorization token")), &["a"]));
        let padded = format!("{TOKEN}c2VjcmV0cw==");
        check(&[&padded, "a"], (Some(Err("invalid base64.bearer.authorization token encoding")), &["a"]));
        check(&[TOKEN, "a"], (None, &["a"]));
    }
}
