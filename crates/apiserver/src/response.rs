//! Answers. In: bytes, a `Status` or nothing. Out: an HTTP response with its content type, warnings and `Retry-After`.

use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use konverge_core::Status;

use crate::body::Body;
use crate::negotiate::Encoding;

/// The most that the warnings of one answer may take, so that headers stay within what clients accept.
const MAX_WARNING_BYTES: usize = 4096;

/// JSON as the client wants to read it.
pub(crate) fn encode(encoding: Encoding, pretty: bool, json: Vec<u8>) -> Vec<u8> {
    let value = || serde_json::from_slice::<Value>(&json).unwrap_or_default();
    match encoding {
        Encoding::Json if pretty => serde_json::to_vec_pretty(&value()).unwrap_or(json),
        Encoding::Json => json,
        Encoding::Yaml => serde_saphyr::to_string(&value()).map(String::into_bytes).unwrap_or(json),
    }
}

/// Adds warnings to an answer, as many as there is room for.
pub(crate) fn warn<'w>(response: &mut Response<Body>, warnings: impl Iterator<Item = &'w str>) {
    let mut room = MAX_WARNING_BYTES;
    for warning in warnings {
        let text = warning.replace(|c: char| c.is_control(), " ").replace('\\', "\\\\").replace('"', "\\\"");
        let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\"")) else { continue };
        let Some(left) = room.checked_sub(value.len()) else { break };
        room = left;
        response.headers_mut().append(header::WARNING, value);
    }
}

/// An answer of this type.
pub(crate) fn typed(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let builder = Response::builder().status(code).header(header::CONTENT_TYPE, content_type);
    builder.body(body).expect("a known code and content type make a response")
}

/// The answer for paths where nothing is served.
pub(crate) fn not_found_page() -> Response<Body> {
    typed(404, "text/plain; charset=utf-8", Body::full("404 page not found\n"))
}

pub(crate) fn no_such_resource() -> Status {
    let mut status = Status::failure(404, "NotFound", "the server could not find the requested resource");
    // Empty details: kubectl distinguishes by them a missing subresource from a missing object.
    status.details = Some(Box::default());
    status
}

pub(crate) fn failure(status: &Status) -> Response<Body> {
    let body = serde_json::to_vec(status).unwrap_or_else(|_| json!({"kind": "Status"}).to_string().into());
    let mut response = typed(status.code, "application/json", Body::full(body));
    if let Some(details) = status.details.as_ref().filter(|details| details.retry_after_seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, details.retry_after_seconds.into());
    }
    response
}
