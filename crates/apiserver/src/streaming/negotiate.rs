//! Which protocol an upgrade speaks. In: the headers of a request. Out: the wire that both sides know, with the 101 response that
//! says so, or the refusal that a kubelet or kube-apiserver has for it.

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderValue, Response, header};

use konverge_core::Status;

use crate::body::Body;
use crate::response::typed;
use crate::websocket;

use super::Wire;
use super::channels::{Channels, Codec};
use super::spdy::{Pings, Spdy};

const SPDY: &str = "SPDY/3.1";
/// Before the name of a protocol: SPDY in the messages of a WebSocket.
const TUNNEL: &str = "SPDY/3.1+";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
const ACCEPTED_PROTOCOLS: &str = "x-accepted-stream-protocol-versions";

/// The protocols of remote commands over SPDY, newest first.
const COMMAND_PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";

/// The channels of a remote command: stdin, stdout, stderr, error, resize.
const COMMAND_CHANNELS: u8 = 5;

/// What an upgrade speaks.
pub(crate) struct Negotiated {
    pub wire: Box<dyn Wire>,
    /// Whether clients open the streams. Otherwise there are numbered channels from the start.
    pub opens_streams: bool,
    /// The name of the protocol; empty if the client named none.
    pub protocol: String,
    head: Vec<(&'static str, HeaderValue)>,
}

/// Why a request is not upgraded.
pub(crate) enum Refusal {
    /// By the API server.
    Status(Status),
    /// By the kubelet, in plain text.
    Plain(Response<Body>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Refusal::Status(status)
    }
}

impl Negotiated {
    /// The response that begins the conversation.
    pub(crate) fn answer(
        head: Vec<(&'static str, HeaderValue)>,
        pieces: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Response<Body> {
        let mut response = Response::new(Body::stream(pieces));
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        response
            .headers_mut()
            .extend(head.into_iter().map(|(name, value)| (header::HeaderName::from_static(name), value)));
        response
    }

    /// The wire, and the headers of the response.
    pub(crate) fn into_parts(self) -> (Box<dyn Wire>, Vec<(&'static str, HeaderValue)>) {
        (self.wire, self.head)
    }
}

/// A refusal as kubelets write it.
pub(crate) fn plain(code: u16, why: impl Into<String>) -> Refusal {
    Refusal::Plain(typed(code, "text/plain; charset=utf-8", Body::full(why.into())))
}

/// For `exec` and `attach`.
pub(crate) fn negotiate_remote_command(headers: &HeaderMap) -> Result<Negotiated, Refusal> {
    if websocket::is_requested(headers) {
        let known = |name: &str| {
            let codec = match name {
                "" | "v5.channel.k8s.io" | "v4.channel.k8s.io" | "channel.k8s.io" => Codec::Raw,
                "v4.base64.channel.k8s.io" | "base64.channel.k8s.io" => Codec::Base64,
                _ => return None,
            };
            Some(Channels::new(codec, name.starts_with("v5."), COMMAND_CHANNELS))
        };
        return channels(headers, known);
    }
    spdy(headers, &COMMAND_PROTOCOLS)
}

/// For `portforward`, with the number of ports that its query names.
pub(crate) fn negotiate_port_forward(headers: &HeaderMap, ports: usize) -> Result<Negotiated, Refusal> {
    if !websocket::is_requested(headers) {
        return spdy(headers, &[PORT_FORWARD_PROTOCOL]);
    }
    let asked = websocket::protocols(headers);
    let is_tunnel = |name: &&str| name.starts_with(TUNNEL) && name.ends_with(".k8s.io");
    if asked.iter().any(is_tunnel) {
        let tunnel = format!("{TUNNEL}{PORT_FORWARD_PROTOCOL}");
        if !asked.contains(&tunnel.as_str()) {
            let asked = asked.into_iter().filter(is_tunnel).map(|name| &name[TUNNEL.len()..]).collect();
            return Err(unknown(asked, &[PORT_FORWARD_PROTOCOL]));
        }
        let name = HeaderValue::try_from(&tunnel).expect("the name of a protocol is a header value");
        return Ok(Negotiated {
            wire: Box::new(Spdy::new(Pings::None)),
            opens_streams: true,
            protocol: PORT_FORWARD_PROTOCOL.into(),
            head: vec![("sec-websocket-protocol", name), binary()],
        });
    }
    let count = u8::try_from(ports * 2).map_err(|_| plain(400, "too many ports"))?;
    let known = |name: &str| {
        let codec = match name {
            "" | "v4.channel.k8s.io" => Codec::Raw,
            "v4.base64.channel.k8s.io" => Codec::Base64,
            _ => return None,
        };
        Some(Channels::new(codec, false, count))
    };
    channels(headers, known)
}

/// The first protocol of a WebSocket that is known.
fn channels(headers: &HeaderMap, known: impl Fn(&str) -> Option<Channels>) -> Result<Negotiated, Refusal> {
    let asked = websocket::protocols(headers);
    let asked = if asked.is_empty() { vec![""] } else { asked };
    let Some((name, wire)) = asked.iter().find_map(|name| Some((*name, known(name)?))) else {
        // Without a word, as the WebSocket server of kubelets.
        return Err(plain(403, ""));
    };
    let mut head = Vec::new();
    if !name.is_empty() {
        head.push(("sec-websocket-protocol", HeaderValue::try_from(name).expect("it came in a header")));
    }
    if !name.contains("base64") {
        head.push(binary());
    }
    Ok(Negotiated { wire: Box::new(wire), opens_streams: false, protocol: name.to_owned(), head })
}

/// Says that messages are binary ones.
fn binary() -> (&'static str, HeaderValue) {
    ("content-type", HeaderValue::from_static("application/octet-stream"))
}

fn spdy(headers: &HeaderMap, known: &[&'static str]) -> Result<Negotiated, Refusal> {
    let contains = |name: &header::HeaderName, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.to_ascii_lowercase().contains(&word.to_ascii_lowercase())
    };
    if !contains(&header::CONNECTION, "upgrade") {
        return Err(Status::bad_request("Upgrade request required").into());
    }
    if !headers.contains_key(STREAM_PROTOCOL) {
        let count = headers.keys_len();
        let why = format!(
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {count} headers\n"
        );
        return Err(plain(400, why));
    }
    let asked = listed(headers, STREAM_PROTOCOL);
    if asked.is_empty() {
        let why = "unable to upgrade: header X-Stream-Protocol-Version contains [], but no valid protocols\n";
        return Err(plain(400, why));
    }
    let Some(name) = asked.iter().find_map(|asked| known.iter().find(|known| *known == asked)) else {
        return Err(unknown(asked, known));
    };
    if !contains(&header::UPGRADE, SPDY) {
        return Err(plain(400, "unable to upgrade: missing upgrade headers in request: Upgrade must be SPDY/3.1\n"));
    }
    let head = vec![("upgrade", HeaderValue::from_static(SPDY)), (STREAM_PROTOCOL, HeaderValue::from_static(name))];
    Ok(Negotiated { wire: Box::new(Spdy::new(Pings::Sent)), opens_streams: true, protocol: (*name).to_owned(), head })
}

fn unknown(asked: Vec<&str>, known: &[&'static str]) -> Refusal {
    let why = format!(
        "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{}]\n",
        asked.join(" "),
        known.join(" ")
    );
    let Refusal::Plain(mut response) = plain(403, why) else { unreachable!("a plain refusal") };
    for known in known {
        response.headers_mut().append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(known));
    }
    Refusal::Plain(response)
}

/// The values of a header, which may be in several lines and separated by commas.
fn listed<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEBSOCKET: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "websocket")];
    const SPDY_UPGRADE: [(&str, &str); 2] = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];

    fn headers(list: &[&[(&'static str, &str)]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list.concat() {
            headers.append(name, HeaderValue::try_from(value).expect("a value"));
        }
        headers
    }

    /// The protocol, or the code of the refusal.
    fn outcome(negotiated: Result<Negotiated, Refusal>) -> String {
        match negotiated {
            Ok(negotiated) if negotiated.opens_streams => format!("streams {}", negotiated.protocol),
            Ok(negotiated) => format!("channels {}", negotiated.protocol),
            Err(Refusal::Status(status)) => format!("{} {}", status.code, status.message),
            Err(Refusal::Plain(response)) => response.status().as_u16().to_string(),
        }
    }

    #[test]
    fn protocols_of_commands() {
        let protocols = |value| [("sec-websocket-protocol", value)];
        let versions = |value| [("x-stream-protocol-version", value)];
        for (headers, expect) in [
            (headers(&[&WEBSOCKET, &protocols("v5.channel.k8s.io")]), "channels v5.channel.k8s.io"),
            (headers(&[&WEBSOCKET, &protocols("v4.channel.k8s.io")]), "channels v4.channel.k8s.io"),
            (headers(&[&WEBSOCKET, &protocols("x, v4.base64.channel.k8s.io")]), "channels v4.base64.channel.k8s.io"),
            (headers(&[&WEBSOCKET]), "channels "),
            (headers(&[&WEBSOCKET, &protocols("v9.channel.k8s.io")]), "403"),
            (
                headers(&[&SPDY_UPGRADE, &versions("v5.channel.k8s.io"), &versions("v4.channel.k8s.io")]),
                "streams v4.channel.k8s.io",
            ),
            (headers(&[&SPDY_UPGRADE, &versions("v2.channel.k8s.io, channel.k8s.io")]), "streams v2.channel.k8s.io"),
            (headers(&[&SPDY_UPGRADE, &versions("v9.channel.k8s.io")]), "403"),
            (headers(&[&SPDY_UPGRADE, &versions("")]), "400"),
            (headers(&[&SPDY_UPGRADE]), "400"),
            (headers(&[&[("connection", "Upgrade"), ("upgrade", "h2c")], &versions("v4.channel.k8s.io")]), "400"),
            (headers(&[]), "400 Upgrade request required"),
        ] {
            assert_eq!(outcome(negotiate_remote_command(&headers)), expect, "{headers:?}");
        }
    }

    #[test]
    fn protocols_of_forwarded_ports() {
        let protocols = |value| [("sec-websocket-protocol", value)];
        let versions = |value| [("x-stream-protocol-version", value)];
        for (headers, ports, expect) in [
            (headers(&[&WEBSOCKET, &protocols("SPDY/3.1+portforward.k8s.io")]), 0, "streams portforward.k8s.io"),
            (headers(&[&WEBSOCKET, &protocols("SPDY/3.1+other.k8s.io")]), 0, "403"),
            (headers(&[&WEBSOCKET, &protocols("v4.channel.k8s.io")]), 2, "channels v4.channel.k8s.io"),
            (headers(&[&WEBSOCKET, &protocols("v5.channel.k8s.io")]), 2, "403"),
            (headers(&[&WEBSOCKET, &protocols("v4.channel.k8s.io")]), 200, "400"),
            (headers(&[&SPDY_UPGRADE, &versions("portforward.k8s.io")]), 0, "streams portforward.k8s.io"),
            (headers(&[&SPDY_UPGRADE, &versions("v4.channel.k8s.io")]), 0, "403"),
            (headers(&[]), 0, "400 Upgrade request required"),
        ] {
            assert_eq!(outcome(negotiate_port_forward(&headers, ports)), expect, "{headers:?}");
        }
    }
}
