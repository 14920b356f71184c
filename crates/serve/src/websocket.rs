//! WebSockets (RFC 6455) over HTTP/1.1. A request that asks for one goes to the service like any other. If the response
//! is 101, the listener adds the headers of the handshake, and each piece of the response's body becomes one message: a binary
//! one if the response has the content type `application/octet-stream`, a text otherwise. Messages of the client go to whoever
//! took the [`ClientMessages`](crate::ClientMessages) of the request; if nobody did, they are passed over. The session ends with
//! the body, with the client, or with its connection, whose limits still apply.

mod frames;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::limits::Limits;
use crate::upgrade::{self, CLOSE_TIMEOUT, Input};
use frames::{Asked, Received};

pub(crate) use frames::Kind;

/// The constant that the protocol hashes together with the client's key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How many bytes of a client are read at once whose messages nobody reads.
const READ: usize = 4 << 10;

/// The handshake of a client that asks for a WebSocket: the `Sec-WebSocket-Accept` value of the response.
#[derive(Debug)]
pub(crate) struct Handshake {
    accept: HeaderValue,
}

/// Why a WebSocket is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The client speaks another version.
    Version,
    /// The client sent no key, or an invalid one.
    Key,
}

impl Handshake {
    /// The handshake, if the request asks for a WebSocket.
    pub(crate) fn from_request<B>(request: &Request<B>) -> Option<Result<Self, Refused>> {
        let headers = request.headers();
        let asks = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && upgrade::lists(headers, &header::CONNECTION, "upgrade")
            && upgrade::lists(headers, &header::UPGRADE, "websocket");
        asks.then(|| {
            let version = headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
            if version != Some(b"13") {
                return Err(Refused::Version);
            }
            let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).unwrap_or_default();
            match STANDARD.decode(key) {
                Ok(bytes) if bytes.len() == 16 => Ok(Handshake { accept: accept(key) }),
                _ => Err(Refused::Key),
            }
        })
    }

    /// Adds the headers of the 101 response, and takes out what says which messages it has.
    pub(crate) fn answer(self, headers: &mut HeaderMap) -> Kind {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        match headers.remove(header::CONTENT_TYPE) {
            Some(content) if content == "application/octet-stream" => Kind::Binary,
            _ => Kind::Text,
        }
    }
}

impl Refused {
    /// The status code and the text of the refusal.
    pub(crate) fn words(&self) -> (StatusCode, &'static str) {
        match self {
            Refused::Version => (StatusCode::UPGRADE_REQUIRED, "this server speaks version 13 of WebSocket\n"),
            Refused::Key => (StatusCode::BAD_REQUEST, "a WebSocket needs a Sec-WebSocket-Key: 16 bytes in base64\n"),
        }
    }
}

fn accept(key: &str) -> HeaderValue {
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    HeaderValue::try_from(STANDARD.encode(hash)).expect("base64 is a header value")
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order, or the client disconnected.
    Done,
    /// The client does not answer.
    Silent,
    /// The client sends too many frames.
    Flood,
}

/// Sends the pieces of `body` as messages and hands over those of the client, until either side ends.
pub(crate) async fn serve<T, B>(io: T, body: Pin<&mut B>, kind: Kind, input: Option<Input>, limits: &Limits) -> End
where
    T: AsyncRead + AsyncWrite,
    B: Body<Data = Bytes>,
{
    let (read, write) = tokio::io::split(io);
    let now = Instant::now();
    let session = Session {
        read,
        write,
        received: Received::new(input.as_ref().map(|_| limits.message)),
        kind,
        input,
        sending: VecDeque::new(),
        unflushed: false,
        pong: None,
        heard: now,
        pinged: None,
        closing: None,
        window_since: now,
        window_frames: 0,
        limits,
    };
    session.run(body).await
}

struct Session<'l, T> {
    read: tokio::io::ReadHalf<T>,
    write: tokio::io::WriteHalf<T>,
    received: Received,
    kind: Kind,
    /// Where the messages of the client go. While some wait there, nothing more is read.
    input: Option<Input>,
    /// One message, or one frame that is none, on its way out: its head and its payload.
    sending: VecDeque<Bytes>,
    unflushed: bool,
    /// The newest ping to be answered. A client that sends more before it reads the answer has lost the others, as it may.
    pong: Option<Bytes>,
    /// When the client last sent something.
    heard: Instant,
    /// When it was asked whether it is there.
    pinged: Option<Instant>,
    /// Until when the client may answer the close.
    closing: Option<Instant>,
    window_since: Instant,
    window_frames: u32,
    limits: &'l Limits,
}

impl<T: AsyncRead + AsyncWrite> Session<'_, T> {
    async fn run<B: Body<Data = Bytes>>(mut self, mut body: Pin<&mut B>) -> End {
        let mut buffer = vec![0; if self.input.is_some() { upgrade::READ } else { READ }];
        loop {
            if self.sending.is_empty()
                && let Some(payload) = self.pong.take()
            {
                self.sending.push_back(frames::pong(&payload));
            }
            let busy = !self.sending.is_empty() || self.unflushed;
            let full = self.input.as_ref().is_some_and(Input::is_full);
            let (deadline, closing) = (self.deadline(), self.closing.is_some());
            tokio::select! {
                read = self.read.read(&mut buffer), if !full => match read {
                    Ok(0) | Err(_) => return End::Done,
                    Ok(read) => if let Some(end) = self.heard(&buffer[..read]) { return end },
                },
                () = upgrade::hand_over(&mut self.input), if full => {}
                sent = upgrade::send(&mut self.write, &mut self.sending, &mut self.unflushed), if busy => {
                    if sent.is_err() {
                        return End::Done;
                    }
                    // The ping was behind what is sent now, so the time for its answer begins here.
                    self.pinged = self.pinged.map(|_| Instant::now());
                }
                frame = poll_fn(|cx| body.as_mut().poll_frame(cx)), if !busy && !closing => match frame {
                    Some(Ok(frame)) => if let Ok(message) = frame.into_data() {
                        self.sending.extend([frames::message(self.kind, message.len()), message]);
                    },
                    Some(Err(_)) | None => self.close(frames::NORMAL),
                },
                () = sleep_until(deadline) => match (self.closing, self.pinged) {
                    (Some(_), _) => return End::Done,
                    // The ping is not sent yet. If nothing moves, the connection's own limit ends it.
                    (None, Some(_)) if busy => self.pinged = Some(Instant::now()),
                    (None, Some(_)) => return End::Silent,
                    (None, None) => {
                        self.pinged = Some(Instant::now());
                        self.sending.push_back(frames::ping());
                    }
                },
            }
        }
    }

    /// What the client sent; the end, if that is it.
    fn heard(&mut self, mut bytes: &[u8]) -> Option<End> {
        let now = Instant::now();
        (self.heard, self.pinged) = (now, None);
        if now.duration_since(self.window_since) > self.limits.flood_window {
            (self.window_since, self.window_frames) = (now, 0);
        }
        while !bytes.is_empty() {
            match self.received.frame(&mut bytes) {
                Ok(None) => {}
                Ok(Some(Asked::Read(message))) if !message.is_empty() => {
                    // Messages that the service reads are as many as it takes, and no flood.
                    if let Some(input) = &mut self.input {
                        input.push(message);
                    }
                }
                Ok(Some(asked)) => {
                    self.window_frames += 1;
                    match asked {
                        Asked::Nothing | Asked::Read(_) => {}
                        Asked::Pong(payload) => self.pong = Some(payload),
                        // The answer to our close.
                        Asked::Close(_) if self.closing.is_some() => return Some(End::Done),
                        Asked::Close(code) => self.close(code),
                    }
                }
                Err(_) if self.closing.is_some() => return Some(End::Done),
                Err(bad) => {
                    self.close(bad.code());
                    return None;
                }
            }
        }
        (self.window_frames > self.limits.flood_frames).then_some(End::Flood)
    }

    /// Sends a close frame after the messages that are on their way. Nothing more is handed over.
    fn close(&mut self, code: u16) {
        self.input = None;
        self.sending.push_back(frames::close(code));
        self.closing = Some(Instant::now() + CLOSE_TIMEOUT);
    }

    fn deadline(&self) -> Instant {
        match (self.closing, self.pinged) {
            (Some(until), _) => until,
            (None, Some(since)) => since + self.limits.ping_answer,
            (None, None) => self.heard + self.limits.ping_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    #[test]
    fn who_gets_a_websocket() {
        let upgrade = [("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")];
        let key = ("sec-websocket-key", KEY);
        let version = ("sec-websocket-version", "13");
        // The example of the RFC.
        let accepted = Some(Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for (method, headers, expect) in [
            ("GET", [&upgrade[..], &[key, version]].concat(), accepted),
            ("GET", [&upgrade[..], &[key]].concat(), Some(Err(Refused::Version))),
            ("GET", [&upgrade[..], &[key, ("sec-websocket-version", "8")]].concat(), Some(Err(Refused::Version))),
            ("GET", [&upgrade[..], &[version]].concat(), Some(Err(Refused::Key))),
            ("GET", [&upgrade[..], &[version, ("sec-websocket-key", "AAAA")]].concat(), Some(Err(Refused::Key))),
            ("POST", [&upgrade[..], &[key, version]].concat(), None),
            ("GET", vec![("connection", "Upgrade"), ("upgrade", "h2c")], None),
            ("GET", vec![("upgrade", "websocket"), key, version], None),
        ] {
            let mut request = Request::builder().method(method).uri("/");
            for (name, value) in &headers {
                request = request.header(*name, *value);
            }
            let wanted = Handshake::from_request(&request.body(()).expect("a request"));
            let wanted = wanted.map(|wanted| wanted.map(|handshake| handshake.accept));
            let expect = expect.map(|expect| expect.map(HeaderValue::from_static));
            assert_eq!(wanted, expect, "{method} {headers:?}");
        }
    }
}
