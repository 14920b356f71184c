//! Messages over a WebSocket: as they should be, and with clients that misbehave.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::{BindOptions, Limits, Tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clients::{connect, connect_narrow, good_client, read_to_close, send_and_read, soon, until};
use crate::service::{serve, serve_with};
use crate::tls;

fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// Asks for a WebSocket and reads the head of the answer.
pub(crate) async fn open(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), path: &str) -> String {
    stream.write_all(handshake(path).as_bytes()).await.expect("a request");
    let mut head = Vec::new();
    soon("a head", async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a byte"));
        }
    })
    .await;
    String::from_utf8_lossy(&head).into_owned()
}

/// The next frame: its first byte and its payload.
pub(crate) async fn frame(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    soon("a frame", async {
        let first = stream.read_u8().await.expect("a head");
        let length = match stream.read_u8().await.expect("a length") {
            126 => stream.read_u16().await.expect("a length").into(),
            127 => stream.read_u64().await.expect("a length"),
            length => length.into(),
        };
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.expect("a payload");
        (first, payload)
    })
    .await
}

/// A frame of a client, whose mask changes nothing.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &crate::service::State) {
    let head = open(&mut stream, "/messages").await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    assert_eq!(frame(&mut stream).await, (TEXT, b"one".to_vec()));
    assert_eq!(frame(&mut stream).await, (TEXT, vec![b'x'; 200_000]));
    // What it says is passed over, and pings are answered between messages.
    stream.write_all(&masked(TEXT, b"hello")).await.expect("a message");
    stream.write_all(&masked(PING, b"there?")).await.expect("a ping");
    assert_eq!(frame(&mut stream).await, (PONG, b"there?".to_vec()));
    state.go.add_permits(1);
    assert_eq!(frame(&mut stream).await, (TEXT, b"last".to_vec()));
    assert_eq!(frame(&mut stream).await, (CLOSE, 1000u16.to_be_bytes().to_vec()));
    stream.write_all(&masked(CLOSE, &1000u16.to_be_bytes())).await.expect("the answer");
    assert_eq!(read_to_close(&mut stream).await, "");
}

#[tokio::test]
async fn a_body_is_sent_as_messages() {
    let (server, state) = serve(Limits::default());
    converse(connect(server.local_addr()).await, &state).await;
    let (certificates, connector) = tls::trusted();
    let (server, state) = serve_with(BindOptions { tls: Tls::On(certificates), ..BindOptions::default() });
    let stream = connect(server.local_addr()).await;
    converse(tls::handshake(&connector, stream).await.expect("a handshake"), &state).await;
}

#[tokio::test]
async fn a_client_ends_it() {
    let (server, state) = serve(Limits::default());
    let counters = server.counters();
    // What it sends, and the code that it is sent back.
    let table: [(Vec<u8>, u16); 3] =
        [(masked(CLOSE, &1001u16.to_be_bytes()), 1001), (masked(CLOSE, b""), 1000), (vec![TEXT, 1, b'x'], 1002)];
    for (bytes, code) in table {
        let mut stream = connect(server.local_addr()).await;
        open(&mut stream, "/messages").await;
        frame(&mut stream).await;
        frame(&mut stream).await;
        stream.write_all(&bytes).await.expect("the end");
        assert_eq!(frame(&mut stream).await, (CLOSE, code.to_be_bytes().to_vec()), "{bytes:?}");
        drop(stream);
        until("closed", || counters.open.load(Ordering::Relaxed) == 0).await;
    }
    assert_eq!(state.live.load(Ordering::SeqCst), 0);
}

async fn ends(address: SocketAddr, path: &str, bytes: &[u8]) {
    let mut stream = connect(address).await;
    open(&mut stream, path).await;
    let (mut read, mut write) = stream.into_split();
    let bytes = bytes.to_vec();
    let writer = tokio::spawn(async move {
        let _ = write.write_all(&bytes).await;
        // Kept open, so that it is the server that ends it.
        std::future::pending::<()>().await
    });
    read_to_close(&mut read).await;
    writer.abort();
}

#[tokio::test]
async fn who_does_not_read_is_cut() {
    let limits = Limits { write_stall: Duration::from_millis(500), socket_buffer: 4096, ..Limits::default() };
    let (server, state) = serve(limits);
    let counters = server.counters();
    let mut stalled = connect_narrow(server.local_addr()).await;
    stalled.write_all(handshake("/shout").as_bytes()).await.expect("a request");
    until("cut", || counters.write_stalled.load(Ordering::Relaxed) == 1).await;
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    good_client(server.local_addr()).await;
}

#[tokio::test]
async fn who_is_gone_or_talks_too_much_is_cut() {
    let limits = Limits {
        ping_after: Duration::from_millis(200),
        ping_answer: Duration::from_millis(200),
        flood_frames: 500,
        ..Limits::default()
    };
    let (server, state) = serve(limits);
    let address = server.local_addr();
    let counters = server.counters();
    ends(address, "/messages", b"").await;
    ends(address, "/messages", &masked(PING, b"").repeat(10_000)).await;
    until("the flood is counted", || counters.flooded.load(Ordering::Relaxed) == 1).await;
    until("all are forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    good_client(address).await;
}

#[tokio::test]
async fn a_stop_cuts_what_does_not_end() {
    let (server, state) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    open(&mut stream, "/messages").await;
    frame(&mut stream).await;
    let stopped = soon("the stop", server.stop(Duration::from_millis(100))).await;
    assert_eq!((stopped.finished, stopped.cut), (0, 1));
    assert_eq!(state.live.load(Ordering::SeqCst), 0, "a task was left behind");
}

#[tokio::test]
async fn a_handshake_that_is_none_is_refused() {
    let (server, _) = serve(Limits::default());
    for (from, to, expect) in [
        ("version: 13", "version: 8", "HTTP/1.1 426"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", "HTTP/1.1 400"),
        // Not asked for by the client, or not given by the service: plain HTTP.
        ("upgrade: websocket", "upgrade: h2c", "HTTP/1.1 404"),
        ("/messages", "/ok", "HTTP/1.1 200"),
    ] {
        let mut stream = connect(server.local_addr()).await;
        let request =
            handshake("/messages").replace(from, to).replace("connection: Upgrade", "connection: Upgrade, close");
        let answer = send_and_read(&mut stream, request.as_bytes()).await;
        assert!(answer.starts_with(expect), "{to}: {answer}");
    }
}
