//! Bytes on a connection to the listener. After each input, a good client on a connection of its own is still answered.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use konverge_serve::{BindOptions, Listener, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::target::Runner;

pub(super) const WORDS: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST / HTTP/1.1\r\n",
    "Host: a\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\n",
    "\n",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "Connection: close\r\n",
    "Connection: Upgrade\r\n",
    "Upgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\0\0\0\u{4}\0\0\0\0\0",
    "\0\0\u{1}\u{1}\u{5}\0\0\0\u{1}",
    "\0\0\u{8}\u{6}\0\0\0\0\0",
];

/// How long an answer may take before the connection is given up. A client that sends half a request gets none.
const PATIENCE: Duration = Duration::from_millis(20);

#[derive(Clone)]
struct Hello;

impl tower_service::Service<Request<RequestBody>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let code = if request.headers().contains_key("sec-websocket-key") { 101 } else { 200 };
        let mut response = Response::new(Full::from("hello"));
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        ready(Ok(response))
    }
}

pub(super) fn http_seeds() -> Vec<Vec<u8>> {
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    vec![
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".to_vec(),
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_vec(),
        http2.to_vec(),
        b"\x16\x03\x01\0\x05hello".to_vec(),
    ]
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

pub(super) fn websocket_seeds() -> Vec<Vec<u8>> {
    vec![
        b"\x81\x85\x01\x02\x03\x04hello".to_vec(),
        b"\x89\x82\x01\x02\x03\x04hi".to_vec(),
        b"\x88\x82\0\0\0\0\x03\xe8".to_vec(),
        b"\x82\xfe\x01\0\0\0\0\0".to_vec(),
    ]
}

pub(super) fn http() -> Runner {
    connection(&[])
}

pub(super) fn websocket() -> Runner {
    connection(UPGRADE)
}

/// Sends a beginning and the input, and reads what comes.
fn connection(beginning: &'static [u8]) -> Runner {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let listener = Listener::bind(BindOptions { port: 0, ..BindOptions::default() }).expect("a port");
        listener.serve(Hello)
    });
    let address = server.local_addr();
    Box::new(move |input| {
        runtime.block_on(async {
            let bad = talk(address, beginning, input).await;
            let good = talk(address, b"", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            assert!(good.starts_with("HTTP/1.1 200"), "a good client gets {good:?}");
            assert_eq!(server.counters().panics.load(std::sync::atomic::Ordering::Relaxed), 0, "the listener panicked");
            bad.chars().filter(|c| !c.is_control()).take(60).collect()
        })
    })
}

async fn talk(address: std::net::SocketAddr, beginning: &[u8], input: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the listener accepts");
    // The listener may close while the input is still being sent.
    let _ = stream.write_all(&[beginning, input].concat()).await;
    let mut answer = Vec::new();
    // A good client waits for as long as it takes; what has a different length is waited for a short time only.
    let read = stream.read_to_end(&mut answer);
    if input.ends_with(b"Connection: close\r\n\r\n") && beginning.is_empty() {
        let _ = read.await;
    } else {
        let _ = tokio::time::timeout(PATIENCE, read).await;
    }
    String::from_utf8_lossy(&answer).into_owned()
}
