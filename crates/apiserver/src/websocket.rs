//! A watch as the messages of a WebSocket, which is how fabric8 and older clients ask for one. In: a request's head, and
//! the events of a watch. Out: 101 with one event in each piece of the body; the listener does the handshake and turns
//! pieces into messages. Nothing here knows of sockets.

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
    let mut named = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    match (named.next(), named.next()) {
        (None, _) => {}
        (Some(one), None) if !one.as_bytes().contains(&b',') => {
            response = response.header(header::SEC_WEBSOCKET_PROTOCOL, one);
        }
        _ => return Err(Status::bad_request("a watch takes one Sec-WebSocket-Protocol, or none")),
    }
    Ok(response.body(Body::stream(events)).expect("a known code and a header that came make a response"))
}
