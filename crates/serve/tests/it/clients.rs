//! Clients, good and bad.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Far longer than anything here takes; a test that reaches it has found a hang.
const SOON: Duration = Duration::from_secs(30);

pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("did not happen: {what}"))
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    soon(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    soon("a connection", TcpStream::connect(address)).await.expect("the listener accepts")
}

/// A client whose kernel takes in as little as it can.
pub(crate) async fn connect_narrow(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    soon("a connection", socket.connect(address)).await.expect("the listener accepts")
}

/// Sends these bytes and reads until the server closes.
pub(crate) async fn send_and_read(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> String {
    // The server may close before it has read all, and then the rest, or the end, is an error.
    let _ = stream.write_all(bytes).await;
    read_to_close(stream).await
}

pub(crate) async fn read_to_close(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    soon("the server's close", async {
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut chunk).await {
            answer.extend_from_slice(&chunk[..n]);
        }
    })
    .await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads one HTTP/1.1 answer with a content-length and leaves the connection open.
pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    soon("an answer", async {
        let mut byte = [0; 1];
        while !answer.ends_with(b"\r\n\r\n") {
            assert_eq!(stream.read(&mut byte).await.expect("a byte"), 1, "closed within a head");
            answer.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&answer).to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        stream.read_exact(&mut body).await.expect("a body");
        answer.extend(body);
    })
    .await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A client that behaves must be served.
pub(crate) async fn good_client(address: SocketAddr) {
    let mut stream = connect(address).await;
    let answer = send_and_read(&mut stream, b"GET /ok HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "a good client got {answer:?}");
}

/// An HTTP/2 client. Its task ends with the connection.
pub(crate) async fn http2<T>(io: T) -> SendRequest<Empty<Bytes>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(io));
    let (client, connection) = soon("an HTTP/2 handshake", handshake).await.expect("HTTP/2");
    tokio::spawn(connection);
    client
}

pub(crate) async fn http2_get(
    client: &mut SendRequest<Empty<Bytes>>,
    path: &str,
) -> hyper::Result<hyper::Response<hyper::body::Incoming>> {
    let request = Request::get(format!("http://x{path}")).body(Empty::new()).expect("a request");
    soon("an answer", client.send_request(request)).await
}

pub(crate) async fn http2_text(client: &mut SendRequest<Empty<Bytes>>, path: &str) -> String {
    let answer = http2_get(client, path).await.expect("an answer");
    let body = soon("a body", answer.into_body().collect()).await.expect("a body").to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}
