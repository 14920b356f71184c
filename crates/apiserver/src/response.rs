//! Answers. In: bytes, a `Status` or nothing. Out: an HTTP response with its content type, warnings and `Retry-After`.

use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use konverge_core::Status;
use konverge_schema::{ProtobufEncoder, go_quote};

use crate::body::Body;
use crate::negotiate::{Encoding, MediaTypeOptions, ResponseKind};
use crate::protobuf::not_encodable;

/// How many characters the warnings of one answer may have together, so that headers stay within what clients accept.
const MAX_WARNING_CHARS: usize = 4096;

/// How many characters of each warning are shown if all of them together have more.
const CUT_WARNING_CHARS: usize = 256;

/// An object's JSON as the client wants to read it.
pub(crate) fn encode(encoding: Encoding, pretty: bool, json: Vec<u8>) -> Result<Vec<u8>, Status> {
    let value = || serde_json::from_slice::<Value>(&json).unwrap_or_default();
    Ok(match encoding {
        Encoding::Json if pretty => indent(&json),
        Encoding::Json => json,
        Encoding::Yaml => serde_saphyr::to_string(&value()).map(String::into_bytes).unwrap_or(json),
        Encoding::Protobuf => ProtobufEncoder::default().object(&json).map_err(not_encodable)?,
    })
}

/// JSON with line breaks and indentation. Fields keep their order, which parsing would lose.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let line = |depth: usize, out: &mut Vec<u8>| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    for (at, byte) in json.iter().enumerate() {
        if in_text {
            in_text = *byte != b'"' || escaped;
            escaped = *byte == b'\\' && !escaped;
            out.push(*byte);
            continue;
        }
        let empty = matches!(json.get(at + 1), Some(b'}' | b']'));
        match byte {
            b'{' | b'[' => {
                out.push(*byte);
                depth += 1;
                if !empty {
                    line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth -= 1;
                if !matches!(json.get(at.wrapping_sub(1)), Some(b'{' | b'[')) {
                    line(depth, &mut out);
                }
                out.push(*byte);
            }
            b',' => {
                out.push(b',');
                line(depth, &mut out);
            }
            b':' => out.extend_from_slice(b": "),
            _ => {
                in_text = *byte == b'"';
                out.push(*byte);
            }
        }
    }
    out
}

/// Adds warnings to an answer, each once. If they are too long together, each is cut, as kube-apiserver does it.
pub(crate) fn warn<'w>(response: &mut Response<Body>, warnings: impl Iterator<Item = &'w str>) {
    let mut texts: Vec<&str> = Vec::new();
    for warning in warnings.filter(|warning| !warning.is_empty()) {
        if !texts.contains(&warning) {
            texts.push(warning);
        }
    }
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    let longest = if total > MAX_WARNING_CHARS { CUT_WARNING_CHARS } else { MAX_WARNING_CHARS };
    let mut written = 0;
    for warning in texts {
        if written >= MAX_WARNING_CHARS {
            return;
        }
        let text: String = warning.chars().take(longest).map(|c| if c.is_control() { ' ' } else { c }).collect();
        written += text.chars().count();
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\"")) else { continue };
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

/// The failure that an answer has, for whoever encodes the answer for its client.
#[derive(Clone)]
struct Failure(Status);

/// The answer of a failure, as JSON until [`encode_failure`] is told what the client can read.
pub(crate) fn failure(status: &Status) -> Response<Body> {
    let body = serde_json::to_vec(status).unwrap_or_else(|_| json!({"kind": "Status"}).to_string().into());
    let mut response = typed(status.code, "application/json", Body::full(body));
    if let Some(details) = status.details.as_ref().filter(|details| details.retry_after_seconds > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, details.retry_after_seconds.into());
    }
    response.extensions_mut().insert(Failure(status.clone()));
    response
}

/// The failure that an answer has, until it is encoded.
pub(crate) fn failure_of(response: &Response<Body>) -> Option<&Status> {
    response.extensions().get().map(|Failure(status)| status)
}

/// 500 as kube-apiserver has it if a request cannot even begin: a text, not a `Status`.
pub(crate) fn internal_error(uri: &str, why: &str) -> Response<Body> {
    let text = format!("Internal Server Error: {}: {why}\n", go_quote(uri));
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut response = typed(500, "text/plain; charset=utf-8", Body::full(text));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Encodes a failure as the client wants to read it. A client that can read none of our types gets JSON.
pub(crate) fn encode_failure(mut response: Response<Body>, accept: Option<&str>) -> Response<Body> {
    let Some(Failure(status)) = response.extensions_mut().remove() else { return response };
    let Ok(wanted) = MediaTypeOptions::accept(accept, ResponseKind::Plain, false) else { return response };
    if wanted.encoding == Encoding::Json && !wanted.pretty {
        return response;
    }
    let json = serde_json::to_vec(&status).expect("writing to memory does not fail");
    if let Ok(bytes) = encode(wanted.encoding, wanted.pretty, json) {
        *response.body_mut() = Body::full(bytes);
        let content_type = HeaderValue::from_static(wanted.encoding.content_type());
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_keeps_its_order() {
        for (json, expect) in [
            ("{}", "{}"),
            ("[]", "[]"),
            (r#"{"b":1,"a":[]}"#, "{\n  \"b\": 1,\n  \"a\": []\n}"),
            (r#"[{"a":"{,:\"\\"},2]"#, "[\n  {\n    \"a\": \"{,:\\\"\\\\\"\n  },\n  2\n]"),
        ] {
            assert_eq!(String::from_utf8(indent(json.as_bytes())).unwrap(), expect);
        }
    }
}
