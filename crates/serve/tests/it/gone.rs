//! Clients that leave while they are answered.

use std::sync::atomic::Ordering;

use konverge_serve::{BindOptions, Limits, Tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::clients::{connect, good_client, soon, until};
use crate::service::{serve, serve_with};
use crate::tls::{handshake, trusted};

/// Asks for an answer without an end, reads its beginning, sends these bytes of another request, and leaves.
async fn ask_and_leave(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, behind: &[u8], beside: &[u8]) {
    let request = [format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes(), behind].concat();
    stream.write_all(&request).await.expect("a request");
    let mut head = [0; 15];
    soon("the head", stream.read_exact(&mut head)).await.expect("a head");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream.write_all(beside).await.expect("more bytes");
    // Of TLS, too: its close is behind the bytes that nobody reads.
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn who_left_is_noticed_behind_bytes_that_nobody_reads() {
    let much = vec![b'x'; 50_000];
    for path in ["/silent", "/once"] {
        for (behind, beside) in [(&b""[..], &b""[..]), (b"G", b""), (b"", b"G"), (b"", &much), (&much, b"G")] {
            let (server, state) = serve(Limits::default());
            let counters = server.counters();
            for _ in 0..5 {
                ask_and_leave(connect(server.local_addr()).await, path, behind, beside).await;
            }
            until("nobody is answered", || state.live.load(Ordering::SeqCst) == 0).await;
            until("all are closed", || counters.open.load(Ordering::Relaxed) == 0).await;
            good_client(server.local_addr()).await;
        }
    }
}

#[tokio::test]
async fn also_behind_tls() {
    let (certificates, config) = trusted();
    let (server, state) = serve_with(BindOptions { tls: Tls::On(certificates), ..BindOptions::default() });
    for behind in [&b""[..], b"G"] {
        let stream = handshake(&config, connect(server.local_addr()).await).await.expect("a handshake");
        ask_and_leave(stream, "/silent", behind, b"").await;
    }
    until("nobody is answered", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn who_sends_the_next_request_early_is_answered() {
    let (server, state) = serve(Limits::default());
    let mut stream = connect(server.local_addr()).await;
    let two = "GET /wait HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2);
    stream.write_all(two.as_bytes()).await.expect("two requests");
    until("the first is there", || state.waiting.load(Ordering::SeqCst) == 1).await;
    state.go.add_permits(2);
    for _ in 0..2 {
        assert!(crate::clients::read_answer(&mut stream).await.ends_with("waited"));
    }
}
