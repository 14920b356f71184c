//! Clients that send too slowly, or nonsense.

use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::Limits;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::clients::{connect, good_client, read_answer, read_to_close, send_and_read, soon};
use crate::service::serve;

/// Sends a piece, pauses, sends the next, and again the last one until the server has enough.
async fn trickle(address: std::net::SocketAddr, head: &[u8], piece: &[u8], pause: Duration) -> String {
    let mut stream = connect(address).await;
    stream.write_all(head).await.expect("the head");
    let (mut read, mut write) = stream.into_split();
    let pieces = async {
        while !piece.is_empty() && write.write_all(piece).await.is_ok() {
            sleep(pause).await;
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        answer = read_to_close(&mut read) => answer,
        () = pieces => unreachable!("never ends"),
    }
}

#[tokio::test]
async fn a_head_that_does_not_end() {
    let (server, state) = serve(Limits { header: Duration::from_millis(300), ..Limits::default() });
    let address = server.local_addr();
    let attacks: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"G", b""),
        (b"GET /ok HTTP/1.1\r\nhost: x\r\n", b""),
        (b"GET /ok HTTP/1.1\r\n", b"a: b\r\n"),
        (b"PRI * HTTP/2.0\r\n", b""),
        (b"\r\n", b"\r\n"),
    ];
    let all = attacks.iter().flat_map(|attack| std::iter::repeat_n(attack, 20));
    let all: Vec<_> =
        all.map(|&(head, piece)| tokio::spawn(trickle(address, head, piece, Duration::from_millis(20)))).collect();
    let count = all.len() as u64;
    for attack in all {
        good_client(address).await;
        let answer = attack.await.expect("no panic");
        assert!(!answer.contains("200"), "{answer}");
    }
    assert_eq!(server.counters().header_timeout.load(Ordering::Relaxed), count);
    assert_eq!(state.live.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_kept_connection_outlives_the_header_timeout() {
    let (server, _) = serve(Limits { header: Duration::from_millis(100), ..Limits::default() });
    let mut stream = connect(server.local_addr()).await;
    for _ in 0..2 {
        stream.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
        assert!(read_answer(&mut stream).await.ends_with("ok"));
        // Longer than a head may take, far shorter than a kept connection may rest.
        sleep(Duration::from_millis(400)).await;
    }
    // The next head is on the clock again.
    assert_eq!(send_and_read(&mut stream, b"GET /ok").await, "");
    assert_eq!(server.counters().header_timeout.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_kept_connection_rests_only_so_long() {
    let (server, _) = serve(Limits { idle: Duration::from_millis(200), ..Limits::default() });
    let mut stream = connect(server.local_addr()).await;
    stream.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    assert!(read_answer(&mut stream).await.ends_with("ok"));
    assert_eq!(read_to_close(&mut stream).await, "");
    assert_eq!(server.counters().rejected(), 0);
}

#[tokio::test]
async fn a_body_that_stops() {
    let limits =
        Limits { body_idle: Duration::from_millis(300), body_total: Duration::from_millis(900), ..Limits::default() };
    let (server, _) = serve(limits);
    let address = server.local_addr();
    let attacks: [(&[u8], &[u8]); 4] = [
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc", b""),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc", b""),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n", b"x"),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ];
    let all = attacks.iter().flat_map(|attack| std::iter::repeat_n(attack, 10));
    let all: Vec<_> =
        all.map(|&(head, piece)| tokio::spawn(trickle(address, head, piece, Duration::from_millis(20)))).collect();
    let count = all.len() as u64;
    for attack in all {
        good_client(address).await;
        let answer = attack.await.expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 408") || answer.is_empty(), "{answer}");
    }
    assert_eq!(server.counters().body_timeout.load(Ordering::Relaxed), count);
}

#[tokio::test]
async fn a_body_in_many_pieces_arrives() {
    let (server, _) = serve(Limits { body_idle: Duration::from_secs(20), ..Limits::default() });
    let mut stream = connect(server.local_addr()).await;
    stream.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n").await.expect("a head");
    for piece in [b"ab", b"cd", b"ef"] {
        stream.write_all(piece).await.expect("a piece");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(read_answer(&mut stream).await.ends_with("abcdef"));
}

#[tokio::test]
async fn nonsense_is_refused() {
    let (server, _) = serve(Limits { header: Duration::from_millis(500), ..Limits::default() });
    let address = server.local_addr();
    let long = format!("GET /ok HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "x".repeat(100_000));
    let path = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /ok HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200));
    let noise: Vec<u8> = (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // What is sent, and what the answer may begin with; closing without one is always allowed.
    let table: [(&[u8], &[&str]); 12] = [
        (b"\0\0\0\0\0\0\0\0\r\n\r\n", &["HTTP/1.1 400"]),
        (b"hello\r\n\r\n", &["HTTP/1.1 400"]),
        (b"GET /ok HTTP/9.9\r\n\r\n", &["HTTP/1.1 400"]),
        (b"GET /ok HTTP/1.1\r\nbad header\r\n\r\n", &["HTTP/1.1 400"]),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", &["HTTP/1.1 400"]),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", &["HTTP/1.1 400"]),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", &["HTTP/1.1 400"]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &["HTTP/1.1 400"]),
        (long.as_bytes(), &["HTTP/1.1 431"]),
        (path.as_bytes(), &["HTTP/1.1 414", "HTTP/1.1 431"]),
        (many.as_bytes(), &["HTTP/1.1 431"]),
        (&noise, &["HTTP/1.1 400"]),
    ];
    for (bytes, expect) in table {
        let mut stream = connect(address).await;
        let answer = send_and_read(&mut stream, bytes).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        assert!(answer.is_empty() || expect.iter().any(|begin| answer.starts_with(begin)), "{shown:?} got {answer:?}");
        good_client(address).await;
    }
}

#[tokio::test]
async fn a_panic_ends_one_connection() {
    let (server, _) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    assert_eq!(send_and_read(&mut stream, b"GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await, "");
    good_client(server.local_addr()).await;
    let counters = server.counters();
    soon("the stop", server.stop(Duration::ZERO)).await;
    assert_eq!(counters.panics.load(Ordering::Relaxed), 1);
    assert_eq!(counters.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_body_that_nobody_reads_does_not_close_the_connection_in_silence() {
    let (server, _) = serve(Limits::default());
    let small = "x".repeat(100_000);
    let expect_closed = "expect: 100-continue\r\ncontent-length: 7\r\n\r\n";
    // The head's end, the body in two parts, and whether the connection is kept.
    let table: [(String, &str, &str, bool); 6] = [
        ("content-length: 7\r\n\r\n".into(), "{\"a\":1}", "", true),
        ("content-length: 7\r\n\r\n".into(), "{\"a\"", ":1}", true),
        ("content-length: 100000\r\n\r\n".into(), &small[..10], &small[10..], true),
        ("transfer-encoding: chunked\r\n\r\n".into(), "5\r\nabcde\r\n", "0\r\n\r\n", true),
        ("content-length: 3000000\r\n\r\n".into(), "x", "", false),
        (expect_closed.into(), "", "", false),
    ];
    for (head, first, second, kept) in table {
        let mut stream = connect(server.local_addr()).await;
        let head = format!("POST /none HTTP/1.1\r\nhost: x\r\n{head}");
        stream.write_all(format!("{head}{first}").as_bytes()).await.expect("the first part");
        if !second.is_empty() {
            // So that the server sees the first part alone.
            sleep(Duration::from_millis(50)).await;
            stream.write_all(second.as_bytes()).await.expect("the second part");
        }
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{head}: {answer}");
        assert_eq!(answer.contains("connection: close"), !kept, "{head}: {answer}");
        if kept {
            stream.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("the next request");
            assert!(read_answer(&mut stream).await.ends_with("ok"), "{head}");
        }
    }
}

#[tokio::test]
async fn requests_have_one_host() {
    let (server, _) = serve(Limits::default());
    for (head, expect) in [
        ("HTTP/1.1\r\nhost: x\r\nconnection: close", "ok"),
        ("HTTP/1.1\r\nhost:\r\nconnection: close", "ok"),
        ("HTTP/1.0", "ok"),
        ("HTTP/1.1\r\nhost: x\r\nhost: y", "400 Bad Request: too many Host headers"),
        ("HTTP/1.1", "400 Bad Request: missing required Host header"),
    ] {
        let mut stream = connect(server.local_addr()).await;
        let answer = send_and_read(&mut stream, format!("GET /ok {head}\r\n\r\n").as_bytes()).await;
        assert!(answer.ends_with(&format!("\r\n\r\n{expect}")), "{head}: {answer}");
    }
}
