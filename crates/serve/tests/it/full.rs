//! More connections than there is room for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::{BindOptions, Limits, Server, Tls};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::clients::{connect, good_client, http2, http2_text, read_answer, read_to_close, until};
use crate::service::{State, serve, serve_with};
use crate::tls::trusted;

const GET: &[u8] = b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n";

const WAIT: &[u8] = b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n";

/// A client that has had its answer and keeps its connection.
async fn idle_client(server: &Server) -> TcpStream {
    let mut stream = connect(server.local_addr()).await;
    stream.write_all(GET).await.expect("a request");
    assert!(read_answer(&mut stream).await.ends_with("ok"));
    stream
}

/// Clients that wait for their answers.
async fn busy_clients(server: &Server, state: &State, count: usize) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut stream = connect(server.local_addr()).await;
        stream.write_all(WAIT).await.expect("a request");
        clients.push(stream);
    }
    until("all wait", || state.waiting.load(Ordering::SeqCst) == count).await;
    clients
}

#[tokio::test]
async fn who_comes_too_late_waits() {
    let (server, state) = serve(Limits { connections: 10, ..Limits::default() });
    let counters = server.counters();
    let mut first = busy_clients(&server, &state, 10).await;
    let mut late = connect(server.local_addr()).await;
    late.write_all(GET).await.expect("a request");
    until("the limit is noticed", || counters.full.load(Ordering::Relaxed) == 1).await;
    assert_eq!(counters.open.load(Ordering::Relaxed), 10);
    assert_eq!(counters.accepted.load(Ordering::Relaxed), 10);
    // One that leaves makes room.
    drop(first.pop());
    assert!(read_answer(&mut late).await.ends_with("ok"));
    assert_eq!(counters.evicted.load(Ordering::Relaxed), 0);
    state.go.add_permits(10);
    for stream in &mut first {
        assert!(read_answer(stream).await.ends_with("waited"));
    }
}

#[tokio::test]
async fn the_longest_idle_connection_makes_room() {
    let (server, state) = serve(Limits { connections: 10, ..Limits::default() });
    let counters = server.counters();
    let mut busy = busy_clients(&server, &state, 5).await;
    let mut oldest = idle_client(&server).await;
    let mut http2_client = http2(connect(server.local_addr()).await).await;
    assert_eq!(http2_text(&mut http2_client, "/ok").await, "ok");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(idle_client(&server).await);
    }
    // Used again, so that the one with HTTP/2 is the next.
    oldest.write_all(GET).await.expect("a request");
    assert!(read_answer(&mut oldest).await.ends_with("ok"));
    let mut late = idle_client(&server).await;
    assert_eq!(counters.evicted.load(Ordering::Relaxed), 1);
    until("the client is told", || http2_client.is_closed()).await;
    let later = idle_client(&server).await;
    assert_eq!(counters.evicted.load(Ordering::Relaxed), 2);
    assert_eq!(read_to_close(&mut others.remove(0)).await, "");
    for stream in others.iter_mut().chain([&mut oldest, &mut late]) {
        stream.write_all(GET).await.expect("a request");
        assert!(read_answer(stream).await.ends_with("ok"));
    }
    state.go.add_permits(5);
    for stream in &mut busy {
        assert!(read_answer(stream).await.ends_with("waited"));
    }
    drop(later);
}

#[tokio::test]
async fn a_connection_that_becomes_idle_makes_room() {
    let (server, state) = serve(Limits { connections: 3, ..Limits::default() });
    let mut busy = busy_clients(&server, &state, 3).await;
    let mut late = connect(server.local_addr()).await;
    late.write_all(GET).await.expect("a request");
    until("somebody waits", || server.counters().full.load(Ordering::Relaxed) == 1).await;
    state.go.add_permits(1);
    assert!(read_answer(&mut late).await.ends_with("ok"));
    assert_eq!(server.counters().evicted.load(Ordering::Relaxed), 1);
    state.go.add_permits(2);
    for stream in &mut busy {
        assert!(read_answer(stream).await.ends_with("waited"));
    }
}

#[tokio::test]
async fn slow_clients_make_room_by_being_cut() {
    let (server, _) = serve(Limits { connections: 50, header: Duration::from_millis(200), ..Limits::default() });
    let mut slow = Vec::new();
    for _ in 0..200 {
        slow.push(connect(server.local_addr()).await);
    }
    // Behind four times what fits.
    good_client(server.local_addr()).await;
    let counters = server.counters();
    drop(slow);
    until("all gone", || counters.open.load(Ordering::Relaxed) == 0).await;
}

/// Five clients were served and are idle; then four times as many come as there is room for, and send only `sent`.
async fn check_newcomers(what: &str, tls: Tls, sent: &[u8]) {
    let limits = Limits { connections: 40, ..Limits::default() };
    let (server, _) = serve_with(BindOptions { tls, limits, ..BindOptions::default() });
    let mut served = Vec::new();
    for _ in 0..5 {
        served.push(idle_client(&server).await);
    }
    let mut silent = Vec::new();
    for _ in 0..160 {
        let mut stream = connect(server.local_addr()).await;
        stream.write_all(sent).await.expect("the kernel takes some bytes");
        silent.push(stream);
    }
    // Behind all of them.
    good_client(server.local_addr()).await;
    for stream in &mut served {
        stream.write_all(GET).await.expect("a request");
        assert!(read_answer(stream).await.ends_with("ok"), "{what}");
    }
}

#[tokio::test]
async fn who_never_asked_makes_room_before_who_was_served() {
    check_newcomers("silent", Tls::Off, b"").await;
    check_newcomers("half a head", Tls::Off, b"GET /ok HTTP/1.1\r\nho").await;
    check_newcomers("HTTP/2 without a request", Tls::Off, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await;
    check_newcomers("no handshake", Tls::Either(trusted().0), b"").await;
    check_newcomers("half a handshake", Tls::Either(trusted().0), b"\x16\x03\x01\x02\x00\x01").await;
}

#[tokio::test]
async fn who_has_just_come_gets_its_time_while_others_are_idle() {
    let (server, _) = serve(Limits { connections: 12, ..Limits::default() });
    let mut idle = Vec::new();
    for _ in 0..12 {
        idle.push(idle_client(&server).await);
    }
    // All at once: each needs room, and none of them has asked yet.
    let mut new = Vec::new();
    for _ in 0..3 {
        new.push(connect(server.local_addr()).await);
    }
    until("all are in", || server.counters().accepted.load(Ordering::Relaxed) == 15).await;
    for stream in &mut new {
        stream.write_all(GET).await.expect("a request");
        assert!(read_answer(stream).await.ends_with("ok"));
    }
}
