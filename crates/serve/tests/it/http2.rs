//! HTTP/2 used as it is meant, and abused frame by frame.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Empty};
use konverge_serve::Limits;
use tokio::io::AsyncWriteExt;

use crate::clients::{connect, good_client, http2, http2_get, http2_text, read_to_close, until};
use crate::service::serve;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const PING: u8 = 6;

fn frame(ty: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([ty, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET / http://x`, as HPACK writes it.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];

#[tokio::test]
async fn a_head_has_no_body() {
    let (server, _) = serve(Limits::default());
    let mut client = http2(connect(server.local_addr()).await).await;
    let request = Request::head("http://x/ok").body(Empty::new()).expect("a request");
    let answer = client.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-length"], "2");
    assert!(answer.into_body().collect().await.expect("the stream ends well").to_bytes().is_empty());
    assert_eq!(http2_text(&mut client, "/ok").await, "ok");
}

#[tokio::test]
async fn requests_share_a_connection() {
    let (server, _) = serve(Limits::default());
    let mut client = http2(connect(server.local_addr()).await).await;
    for (path, expect) in [("/ok", "ok"), ("/none", "no such path"), ("/ok", "ok")] {
        assert_eq!(http2_text(&mut client, path).await, expect);
    }
    // Larger than every window and buffer, in slices.
    assert_eq!(http2_text(&mut client, "/large").await.len(), 1 << 20);
    // A panic ends one request.
    http2_get(&mut client, "/panic").await.expect_err("no answer");
    assert_eq!(http2_text(&mut client, "/ok").await, "ok");
    assert_eq!(server.counters().accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn floods_and_half_frames_end_the_connection() {
    let limits = Limits {
        header: Duration::from_millis(300),
        idle: Duration::from_millis(1500),
        flood_frames: 500,
        ..Limits::default()
    };
    let (server, state) = serve(limits);
    let start = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
    let resets = (0..10_000u32).flat_map(|i| {
        let id = 2 * i + 1;
        [frame(1, 5, id, GET), frame(3, 0, id, &[0, 0, 0, 8])].concat()
    });
    let continuations =
        std::iter::once(frame(1, 0, 1, GET)).chain((0..10_000).map(|_| frame(9, 0, 1, &[0x40, 1, b'a', 1, b'b'])));
    let mut bomb = GET.to_vec();
    bomb.extend([0x40, 1, b'a', 0x7f, 0x80 + 1, 30]);
    bomb.extend([b'v'; 4000]);
    bomb.extend([0xbe; 12_000]);
    let table: [(&str, Vec<u8>); 11] = [
        ("pings", frame(PING, 0, 0, &[0; 8]).repeat(10_000)),
        ("settings", frame(SETTINGS, 0, 0, &[]).repeat(10_000)),
        ("window updates", frame(8, 0, 0, &[0, 0, 0, 1]).repeat(10_000)),
        ("window updates of a stream", [frame(1, 5, 1, GET), frame(8, 0, 1, &[0, 0, 0, 1]).repeat(10_000)].concat()),
        ("unknown frames", frame(0xee, 0, 0, &[]).repeat(10_000)),
        ("rapid reset", resets.collect()),
        ("continuations", continuations.flatten().collect()),
        ("a header bomb", frame(1, 5, 1, &bomb)),
        ("half a frame", frame(1, 5, 1, GET)[..12].to_vec()),
        ("half a header block", frame(1, 1, 1, GET)),
        ("a frame on stream zero", frame(0, 0, 0, b"xx")),
    ];
    let counters = server.counters();
    for (what, frames) in table {
        let stream = connect(server.local_addr()).await;
        let (mut read, mut write) = stream.into_split();
        let bytes = [start.clone(), frames].concat();
        let writer = tokio::spawn(async move {
            let _ = write.write_all(&bytes).await;
            // Kept open, so that it is the server that ends it.
            std::future::pending::<()>().await
        });
        read_to_close(&mut read).await;
        writer.abort();
        good_client(server.local_addr()).await;
        until(what, || counters.open.load(Ordering::Relaxed) == 0).await;
    }
    assert_eq!(state.live.load(Ordering::SeqCst), 0);
    assert!(counters.flooded.load(Ordering::Relaxed) >= 5, "{counters:?}");
    assert!(counters.header_timeout.load(Ordering::Relaxed) >= 2, "{counters:?}");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (server, _) = serve(Limits { idle: Duration::from_millis(200), ..Limits::default() });
    let mut client = http2(connect(server.local_addr()).await).await;
    assert_eq!(http2_text(&mut client, "/ok").await, "ok");
    until("the close", || client.is_closed()).await;
    assert_eq!(server.counters().rejected(), 0);
}
