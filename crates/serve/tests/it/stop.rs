//! Stopping in order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use konverge_serve::{Limits, Stopped};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::clients::{connect, http2, http2_get, http2_text, read_answer, read_to_close, soon, until};
use crate::service::serve;

const LONG: Duration = Duration::from_secs(25);

#[tokio::test]
async fn running_requests_finish_and_idle_connections_close() {
    let (server, state) = serve(Limits::default());
    let address = server.local_addr();
    let mut idle = connect(address).await;
    idle.write_all(b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    read_answer(&mut idle).await;
    let mut silent = connect(address).await;
    let mut one = connect(address).await;
    one.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut client = http2(connect(address).await).await;
    let two = tokio::spawn(async move { http2_text(&mut client, "/wait").await });
    until("both wait", || state.waiting.load(Ordering::SeqCst) == 2).await;
    let counters = server.counters();
    until("all are accepted", || counters.open.load(Ordering::Relaxed) == 4).await;

    let stop = tokio::spawn(server.stop(LONG));
    assert_eq!(read_to_close(&mut idle).await, "");
    assert_eq!(read_to_close(&mut silent).await, "");
    soon("a closed port", async { while TcpStream::connect(address).await.is_ok() {} }).await;
    assert!(!stop.is_finished(), "two requests are not answered");

    state.go.add_permits(2);
    assert!(read_to_close(&mut one).await.ends_with("waited"));
    assert_eq!(two.await.expect("no panic"), "waited");
    assert_eq!(soon("the stop", stop).await.expect("no panic"), Stopped { finished: 4, cut: 0 });
    assert_eq!(counters.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_does_not_finish_is_cut() {
    let (server, state) = serve(Limits::default());
    let mut one = connect(server.local_addr()).await;
    one.write_all(b"GET /silent HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut client = http2(connect(server.local_addr()).await).await;
    let _answer = http2_get(&mut client, "/silent").await.expect("a head");
    until("both run", || state.live.load(Ordering::SeqCst) == 2).await;
    let stopped = soon("the stop", server.stop(Duration::from_millis(100))).await;
    assert_eq!(stopped, Stopped { finished: 0, cut: 2 });
    assert_eq!(state.live.load(Ordering::SeqCst), 0, "a task was left behind");
    read_to_close(&mut one).await;
}

#[tokio::test]
async fn a_dropped_server_leaves_nothing() {
    let (server, state) = serve(Limits::default());
    let address = server.local_addr();
    let mut one = connect(address).await;
    one.write_all(b"GET /silent HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a request");
    let mut client = http2(connect(address).await).await;
    let _answer = http2_get(&mut client, "/silent").await.expect("a head");
    until("both run", || state.live.load(Ordering::SeqCst) == 2).await;
    drop(server);
    until("both are gone", || state.live.load(Ordering::SeqCst) == 0).await;
    read_to_close(&mut one).await;
    soon("a closed port", async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_stop_before_the_first_turn_is_heard() {
    let (server, _) = serve(Limits::default());
    assert_eq!(soon("the stop", server.stop(LONG)).await, Stopped::default());
}
