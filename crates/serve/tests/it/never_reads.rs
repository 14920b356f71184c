//! Clients that ask and then do not read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use konverge_serve::{BindOptions, Limits, Tls};
use tokio::io::AsyncWriteExt;

use crate::clients::{connect, connect_narrow, good_client, http2, http2_get, http2_text, soon, until};
use crate::service::{serve, serve_with};
use crate::tls;

fn limits() -> Limits {
    Limits { write_stall: Duration::from_millis(500), ..Limits::default() }
}

const ENDLESS: &[u8] = b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n";

#[tokio::test]
async fn over_http1_the_connection_is_closed_and_pins_little() {
    let (server, state) = serve(limits());
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut stream = connect_narrow(server.local_addr()).await;
        stream.write_all(ENDLESS).await.expect("a request");
        stalled.push(stream);
    }
    let counters = server.counters();
    until("all cut", || {
        assert!(state.handed_out.load(Ordering::SeqCst) <= 20 << 20, "more than 1 MiB for each");
        counters.write_stalled.load(Ordering::Relaxed) == 20
    })
    .await;
    good_client(server.local_addr()).await;
    until("all forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn over_tls_the_same() {
    let (certificates, connector) = tls::trusted();
    let tls = Tls::On(certificates);
    let (server, state) = serve_with(BindOptions { limits: limits(), tls, ..BindOptions::default() });
    let stream = connect_narrow(server.local_addr()).await;
    let mut stream = tls::handshake(&connector, stream).await.expect("a handshake");
    stream.write_all(ENDLESS).await.expect("a request");
    let counters = server.counters();
    until("cut", || counters.write_stalled.load(Ordering::Relaxed) == 1).await;
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    assert!(state.handed_out.load(Ordering::SeqCst) <= 1 << 20);
}

#[tokio::test]
async fn over_http2_only_the_stream_is_reset() {
    let (server, state) = serve(limits());
    let mut client = http2(connect(server.local_addr()).await).await;
    let unread = http2_get(&mut client, "/endless").await.expect("a head");
    let counters = server.counters();
    until("the stream's reset", || {
        assert!(state.handed_out.load(Ordering::SeqCst) <= 1 << 20);
        counters.write_stalled.load(Ordering::Relaxed) == 1
    })
    .await;
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    // The rest of the connection goes on, and the reader learns that it missed something.
    assert_eq!(http2_text(&mut client, "/ok").await, "ok");
    soon("the end", unread.into_body().collect()).await.expect_err("a reset");
}

#[tokio::test]
async fn over_http2_a_peer_that_reads_nothing_at_all_is_cut() {
    let (server, state) = serve(limits());
    let stream = connect_narrow(server.local_addr()).await;
    let mut client = http2(Deaf { inner: stream, left: 20_000 }).await;
    let _unread = http2_get(&mut client, "/endless").await;
    let counters = server.counters();
    until("cut", || counters.write_stalled.load(Ordering::Relaxed) >= 1).await;
    until("forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    good_client(server.local_addr()).await;
}

#[tokio::test]
async fn over_http2_the_end_of_an_answer_is_watched_too() {
    // One byte of the answer does not fit into the window, or half of it, or all. The other answer keeps the connection.
    for window in [(1 << 20) - 1, 1 << 19, 0] {
        let (server, state) = serve(Limits { unread: 1 << 20, connection_unread: 1 << 20, ..limits() });
        let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(8 << 20)
            .handshake(TokioIo::new(connect(server.local_addr()).await));
        let (mut client, connection) = soon("a handshake", handshake).await.expect("HTTP/2");
        tokio::spawn(connection);
        let _busy = http2_get(&mut client, "/silent").await.expect("a head");
        let _unread = http2_get(&mut client, "/large").await.expect("a head");
        let counters = server.counters();
        until("cut", || counters.write_stalled.load(Ordering::Relaxed) == 1).await;
        good_client(server.local_addr()).await;
        // The connection, if the end of the answer was with hyper; else the stream.
        let left = usize::from(window < (1 << 20) - 1);
        until("forgotten", || state.live.load(Ordering::SeqCst) == left).await;
    }
}

#[tokio::test]
async fn all_of_them_pin_no_more_than_the_budget() {
    // Answers of 1 MiB that are made at once: three wait at most, whether one connection asks or many do.
    let limits = || Limits { unread: 2 << 20, connection_unread: 2 << 20, socket_buffer: 4096, ..limits() };
    let (server, state) = serve(limits());
    let address = server.local_addr();
    let counters = server.counters();
    let check = || assert!(state.live.load(Ordering::SeqCst) <= 3, "{}", state.live.load(Ordering::SeqCst));
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut stream = connect_narrow(address).await;
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
        stalled.push(stream);
    }
    until("all cut", || {
        check();
        counters.write_stalled.load(Ordering::Relaxed) == 20
    })
    .await;
    drop(stalled);

    let mut client = http2(connect(address).await).await;
    let mut unread = Vec::new();
    for _ in 0..20 {
        let mut client = client.clone();
        unread.push(tokio::spawn(async move { http2_get(&mut client, "/large").await }));
    }
    until("all streams reset", || {
        check();
        counters.write_stalled.load(Ordering::Relaxed) == 40
    })
    .await;
    until("all forgotten", || state.live.load(Ordering::SeqCst) == 0).await;
    // The client lets go of what it got and did not read, and so has a window again.
    for answer in unread {
        drop(soon("an answer", answer).await.expect("no panic"));
    }
    assert_eq!(http2_text(&mut client, "/large").await.len(), 1 << 20);
}

#[tokio::test]
async fn probes_are_answered_whatever_others_hold() {
    let limits = Limits { unread: 1, connection_unread: 1, probes: &["/ok"], ..Limits::default() };
    let (server, state) = serve(limits);
    let counters = server.counters();
    let cut = || counters.write_stalled.load(Ordering::Relaxed);
    // Who holds the budget is cut after two seconds. On a slow machine that may be before the answers are here, and then
    // they prove nothing.
    soon("answers while the budget is used up", async {
        loop {
            let before = cut();
            let mut holder = connect_narrow(server.local_addr()).await;
            holder.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
            until("the budget is used up", || state.live.load(Ordering::SeqCst) == 1).await;
            good_client(server.local_addr()).await;
            let mut client = http2(connect(server.local_addr()).await).await;
            assert_eq!(http2_text(&mut client, "/ok").await, "ok");
            if cut() == before {
                break;
            }
            until("the budget is free", || state.live.load(Ordering::SeqCst) == 0).await;
        }
    })
    .await;
}

#[tokio::test]
async fn silence_is_no_stall() {
    let (server, state) =
        serve(Limits { idle: Duration::from_millis(100), header: Duration::from_millis(100), ..limits() });
    let mut one = connect(server.local_addr()).await;
    one.write_all(b"GET /silent HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut two = http2(connect(server.local_addr()).await).await;
    let _answer = http2_get(&mut two, "/silent").await.expect("a head");
    let mut said = http2_get(&mut two, "/once").await.expect("a head").into_body();
    let mut read = 0;
    while read < 20_000 {
        let frame = soon("a piece", said.frame()).await.expect("more").expect("no reset");
        read += frame.into_data().expect("data").len();
    }
    until("all", || state.live.load(Ordering::SeqCst) == 3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state.live.load(Ordering::SeqCst), 3, "a watch without news was cut");
    assert_eq!(server.counters().rejected(), 0);
}

/// A connection that stops reading after so many bytes.
struct Deaf<T> {
    inner: T,
    left: usize,
}

impl<T: tokio::io::AsyncRead + Unpin> tokio::io::AsyncRead for Deaf<T> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if self.left == 0 {
            return std::task::Poll::Pending;
        }
        let mut part = buf.take(self.left);
        let outcome = std::pin::Pin::new(&mut self.inner).poll_read(cx, &mut part);
        let read = part.filled().to_vec();
        self.left -= read.len();
        buf.put_slice(&read);
        outcome
    }
}

impl<T: tokio::io::AsyncWrite + Unpin> tokio::io::AsyncWrite for Deaf<T> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
