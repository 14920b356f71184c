//! Connections that stop speaking HTTP and on which both sides speak.

use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clients::{connect, good_client, read_to_close, send_and_read, soon, until};
use crate::service::serve;
use crate::websocket::{frame, masked, open};

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;

/// Asks for a protocol of which the listener knows nothing.
async fn open_other(stream: &mut TcpStream, path: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: shouting\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut head = Vec::new();
    soon("a head", async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a byte"));
        }
    })
    .await;
    String::from_utf8_lossy(&head).to_ascii_lowercase()
}

async fn reads(stream: &mut TcpStream, expect: &[u8]) {
    let mut got = vec![0; expect.len()];
    soon("an answer", stream.read_exact(&mut got)).await.expect("all of it");
    assert!(got == expect, "{:?}", String::from_utf8_lossy(&got[..got.len().min(80)]));
}

#[tokio::test]
async fn messages_go_both_ways() {
    let (server, state) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    let head = open(&mut stream, "/talk").await.to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 101") && head.contains("upgrade: websocket") && !head.contains("content-type"),
        "{head}"
    );
    stream.write_all(&masked(TEXT, b"hello")).await.expect("a message");
    assert_eq!(frame(&mut stream).await, (BINARY, b"HELLO".to_vec()));
    // In two frames, with a ping between them.
    stream
        .write_all(&[masked(0x02, b"in "), masked(0x89, b"!"), masked(0x80, b"parts")].concat())
        .await
        .expect("frames");
    let mut answers = [frame(&mut stream).await, frame(&mut stream).await];
    answers.sort();
    assert_eq!(answers, [(BINARY, b"IN PARTS".to_vec()), (0x8a, b"!".to_vec())]);
    stream.write_all(&masked(TEXT, b"bye")).await.expect("a message");
    assert_eq!(frame(&mut stream).await, (CLOSE, 1000u16.to_be_bytes().to_vec()));
    drop(stream);
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn other_protocols_are_passed_through() {
    let (server, state) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    let head = open_other(&mut stream, "/talk").await;
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: shouting"), "{head}");
    stream.write_all(b"hello").await.expect("bytes");
    reads(&mut stream, b"HELLO").await;
    let large = vec![b'x'; 3 << 20];
    let (mut read, mut write) = stream.into_split();
    let writer = tokio::spawn(async move {
        write.write_all(&large).await.expect("many bytes");
        write
    });
    let mut got = vec![0; 3 << 20];
    soon("an echo", read.read_exact(&mut got)).await.expect("all of it");
    assert!(got.iter().all(|byte| *byte == b'X'));
    let mut stream = read.reunite(writer.await.expect("a writer")).expect("both halves");
    stream.write_all(b"bye").await.expect("the end");
    assert_eq!(read_to_close(&mut stream).await, "");
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn who_is_not_read_has_to_wait_and_is_given_up_at_last() {
    let second = Duration::from_secs(1);
    let limits = Limits { write_stall: second, ping_after: second, ping_answer: second, ..Limits::default() };
    let (server, state) = serve(limits);
    for upgrade in [true, false] {
        let mut stream = connect(server.local_addr()).await;
        match upgrade {
            true => drop(open(&mut stream, "/deaf").await),
            false => drop(open_other(&mut stream, "/deaf").await),
        }
        // The kernel takes some; the listener stops reading long before this is through.
        let piece = masked(BINARY, &[b'x'; 100]).repeat(1000);
        let flood = async {
            for _ in 0..1000 {
                stream.write_all(&piece).await.expect("room");
            }
        };
        let through = tokio::time::timeout(Duration::from_millis(500), flood).await;
        assert!(through.is_err(), "nobody reads, and yet all of it was taken");
        good_client(server.local_addr()).await;
    }
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_session() {
    let (server, state) = serve(Limits { message: 100, ..Limits::default() });
    let mut stream = connect(server.local_addr()).await;
    open(&mut stream, "/talk").await;
    stream.write_all(&masked(BINARY, &[b'x'; 101])).await.expect("a message");
    assert_eq!(frame(&mut stream).await, (CLOSE, 1009u16.to_be_bytes().to_vec()));
    drop(stream);
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_stop_cuts_them() {
    let (server, state) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    open_other(&mut stream, "/deaf").await;
    let stopped = soon("the stop", server.stop(Duration::from_millis(100))).await;
    assert_eq!((stopped.finished, stopped.cut), (0, 1));
    assert_eq!(state.live.load(Ordering::SeqCst), 0, "a task was left behind");
}

#[tokio::test]
async fn an_offer_of_an_upgrade_is_not_a_wish() {
    let (server, _) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    let request = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, close\r\nupgrade: h2c\r\ncontent-length: 5\r\n\r\nhello";
    let answer = send_and_read(&mut stream, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
}
