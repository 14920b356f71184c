//! A small HTTP/1.1 client: a kept-alive connection, one request at a time. In: the bytes of requests. Out: status and body, or
//! the body piece by piece. It parses as little as possible, so that it is never slower than the server.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::http_body::BodyReader;
use crate::invalid_run::InvalidRun;

/// The size of the read buffer.
const READ_BYTES: usize = 64 * 1024;

/// The address of a server.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `127.0.0.1:8080`
    pub address: SocketAddr,
    /// The TLS connector, if the server uses TLS.
    pub tls: Option<TlsConnector>,
}

/// A connection that is kept alive between requests.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    /// The part of `buffer` that was read and not used yet.
    unused: std::ops::Range<usize>,
    body: BodyReader,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    request_with("", method, path, content_type, body)
}

/// The bytes of a request with a token.
pub(crate) fn request_as(token: &str, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    request_with(&format!("authorization: Bearer {token}\r\n"), method, path, content_type, body)
}

fn request_with(header: &str, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: bench/1\r\naccept: application/json\r\n{header}"
    );
    if !content_type.is_empty() {
        bytes.push_str(&format!("content-type: {content_type}\r\ncontent-length: {}\r\n", body.len()));
    }
    bytes.push_str("\r\n");
    let mut bytes = bytes.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The bytes of a request without a body.
pub(crate) fn get(path: &str) -> Vec<u8> {
    request("GET", path, "", &[])
}

impl Endpoint {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, InvalidRun> {
        Ok(self.connect_and_see().await?.0)
    }

    /// Opens a connection. Returns also the certificate of the server, as DER; empty without TLS.
    pub(crate) async fn connect_and_see(&self) -> Result<(Connection, Vec<u8>), InvalidRun> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok((Connection::over(stream), Vec::new())) };
        let stream = tls.connect(self.address.ip().into(), stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certificate = certificate.map(|der| der.to_vec()).unwrap_or_default();
        Ok((Connection::over(stream), certificate))
    }

    /// Sends a request on a new connection without TLS and never reads the response. The receive buffer is small, so that the
    /// server soon cannot write any more.
    pub(crate) async fn stall(&self, request: &[u8]) -> Result<TcpStream, InvalidRun> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(16 * 1024)?;
        let mut stream = socket.connect(self.address).await?;
        stream.write_all(request).await?;
        Ok(stream)
    }

    /// Sends a request on a new connection. Fails unless the response has this status.
    pub(crate) async fn once(&self, request: &[u8], status: u16) -> Result<Vec<u8>, InvalidRun> {
        self.connect().await?.call(request, status).await
    }
}

impl Connection {
    fn over(stream: impl Stream + 'static) -> Self {
        let buffer = vec![0; READ_BYTES];
        Self { stream: Box::new(stream), buffer, unused: 0..0, body: BodyReader::Done }
    }

    /// Sends a request and reads the whole response. Fails unless it has this status.
    pub(crate) async fn call(&mut self, request: &[u8], status: u16) -> Result<Vec<u8>, InvalidRun> {
        let response = self.send(request).await?;
        if response.status == status {
            return Ok(response.body);
        }
        let text = String::from_utf8_lossy(&response.body).chars().take(300).collect::<String>();
        Err(InvalidRun::new(format!("the response has status {} instead of {status}: {text}", response.status)))
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<Response, InvalidRun> {
        let status = self.open(request).await?;
        let mut body = Vec::new();
        while self.more(&mut body).await? {}
        Ok(Response { status, body })
    }

    /// Sends a request and reads the head of the response. [`Connection::more`] reads its body.
    pub(crate) async fn open(&mut self, request: &[u8]) -> Result<u16, InvalidRun> {
        self.stream.write_all(request).await?;
        let mut head = Vec::new();
        let end = loop {
            if let Some(end) = end_of_head(&head) {
                break end;
            }
            if self.unused.is_empty() {
                self.fill().await?;
            }
            head.extend_from_slice(&self.buffer[self.unused.clone()]);
            self.unused.start = self.unused.end;
        };
        // The bytes behind the head belong to the body.
        self.unused.start = self.unused.end - (head.len() - end);
        let (status, body) = parse_head(&head[..end])?;
        self.body = body;
        Ok(status)
    }

    /// Appends the next bytes of the body. Returns false if there are no more.
    pub(crate) async fn more(&mut self, out: &mut Vec<u8>) -> Result<bool, InvalidRun> {
        if self.body.is_done() {
            return Ok(false);
        }
        if self.unused.is_empty() {
            self.fill().await?;
        }
        self.unused.start += self.body.feed(&self.buffer[self.unused.clone()], out)?;
        Ok(true)
    }

    async fn fill(&mut self) -> Result<(), InvalidRun> {
        match self.stream.read(&mut self.buffer).await? {
            0 => Err(InvalidRun::new("the server closed the connection")),
            read => {
                self.unused = 0..read;
                Ok(())
            }
        }
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn parse_head(head: &[u8]) -> Result<(u16, BodyReader), InvalidRun> {
    let text = std::str::from_utf8(head).map_err(|_| InvalidRun::new("the head of the response is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status: u16 = status.ok_or_else(|| InvalidRun::new(format!("not a response: {text:?}")))?;
    let mut body = BodyReader::Done;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.trim().parse().map_err(|_| InvalidRun::new(format!("a length of {value:?}")))?;
            body = BodyReader::of_length(length);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
            body = BodyReader::chunked();
        }
    }
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn responses_are_read_one_after_the_other_in_pieces_of_any_size() {
        let wire = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3\r\nyou\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        for step in [1, 7, 40, wire.len()] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            let pieces: Vec<Vec<u8>> = wire.as_bytes().chunks(step).map(<[u8]>::to_vec).collect();
            let server = tokio::spawn(async move {
                for piece in pieces {
                    theirs.write_all(&piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                theirs
            });
            let mut connection = Connection::over(ours);
            for (status, body) in [(200, "hi"), (201, "you"), (204, "")] {
                let response = connection.send(b"").await.unwrap();
                assert_eq!((response.status, &response.body[..]), (status, body.as_bytes()), "{step}");
            }
            drop(server.await.unwrap());
        }
    }

    #[test]
    fn requests_have_a_content_length() {
        let text = String::from_utf8(request("POST", "/a", "application/json", b"{}")).unwrap();
        assert!(text.starts_with("POST /a HTTP/1.1\r\n"), "{text}");
        assert!(text.ends_with("content-length: 2\r\n\r\n{}"), "{text}");
        assert!(!String::from_utf8(get("/a")).unwrap().contains("content-length"));
    }
}
