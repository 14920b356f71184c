//! A connection to a port of a simulated pod. In: bytes of a client. Out: answers of HTTP/1.1, or a line that says that the pod
//! is simulated, to a client that speaks something else. Pure.

use std::sync::Arc;

use ::http::StatusCode;

use super::Simulation;

/// The longest head of a request.
const MAX_HEAD: usize = 16 << 10;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpAnswer {
    pub status: u16,
    pub content_type: String,
    pub body: String,
}

/// A connection that is open.
pub(crate) struct HttpConnection {
    simulation: Arc<Simulation>,
    port: u16,
    /// What came of the next request.
    head: Vec<u8>,
    body: RequestBody,
    closed: bool,
}

/// What is still to come of the last request, and is passed over.
#[derive(Debug, PartialEq, Eq)]
enum RequestBody {
    Length(u64),
    /// In chunks; the last bytes that came are kept, because the end is known by five of them.
    Chunks(Vec<u8>),
}

/// How much is answered to requests that came in one piece: many small answers, or some large ones.
const MAX_UNREAD: usize = 4 << 20;

/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

impl HttpConnection {
    /// Opens a connection, unless nothing listens on this port.
    pub(crate) fn open(simulation: &Arc<Simulation>, port: u16) -> Result<Self, String> {
        simulation.check_port(port)?;
        Ok(Self { simulation: simulation.clone(), port, head: Vec::new(), body: RequestBody::Length(0), closed: false })
    }

    /// Whether the pod has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// What the pod answers to these bytes.
    pub(crate) fn receive(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        while !bytes.is_empty() && !self.closed {
            // Whoever asks for more at once than it can have read does not read.
            if answers.len() > MAX_UNREAD {
                self.closed = true;
                break;
            }
            if !self.pass_over_body(&mut bytes) {
                break;
            }
            let Some((byte, rest)) = bytes.split_first() else { break };
            bytes = rest;
            self.head.push(*byte);
            if self.head.ends_with(b"\r\n\r\n") {
                let head = std::mem::take(&mut self.head);
                match Request::parse(&head) {
                    Some(request) => self.answer(request, &mut answers),
                    None => self.refuse(&mut answers),
                }
            } else if !may_be_http(&self.head) || self.head.len() > MAX_HEAD {
                self.refuse(&mut answers);
            }
        }
        answers
    }

    /// Passes over what belongs to the last request. Returns whether that is all here.
    fn pass_over_body(&mut self, bytes: &mut &[u8]) -> bool {
        match &mut self.body {
            RequestBody::Length(left) => {
                let part = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= part as u64;
                *bytes = &bytes[part..];
                *left == 0
            }
            RequestBody::Chunks(end) => {
                while let Some((byte, rest)) = bytes.split_first() {
                    *bytes = rest;
                    end.push(*byte);
                    if end.ends_with(LAST_CHUNK) {
                        self.body = RequestBody::Length(0);
                        return true;
                    }
                    if end.len() > LAST_CHUNK.len() {
                        end.remove(0);
                    }
                }
                false
            }
        }
    }

    fn answer(&mut self, request: Request, answers: &mut Vec<u8>) {
        let HttpAnswer { status, content_type, body } =
            self.simulation.request(self.port, &request.method, &request.path);
        let reason = StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason()).unwrap_or("Unknown");
        let connection = if request.close { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nserver: konverge-simulator\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\
             connection: {connection}\r\n\r\n",
            body.len()
        );
        answers.extend_from_slice(head.as_bytes());
        if request.method != "HEAD" {
            answers.extend_from_slice(body.as_bytes());
        }
        (self.body, self.closed) = (request.body, request.close);
    }

    fn refuse(&mut self, answers: &mut Vec<u8>) {
        let Simulation { namespace, name, .. } = &*self.simulation;
        let text = format!("konverge: pod {namespace}/{name} is simulated: its ports answer HTTP/1.1 only\n");
        answers.extend_from_slice(text.as_bytes());
        self.closed = true;
    }
}

/// Whether a request of HTTP may begin like this: a method in capital letters.
fn may_be_http(head: &[u8]) -> bool {
    let method = head.iter().position(|byte| *byte == b' ').unwrap_or(head.len());
    method > 0 && method <= 10 && head[..method].iter().all(u8::is_ascii_uppercase)
}

/// The head of a request.
struct Request {
    method: String,
    path: String,
    body: RequestBody,
    /// Whether the client wants no other one on this connection.
    close: bool,
}

impl Request {
    fn parse(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, path, version) = (first.next()?, first.next()?, first.next()?);
        let mut request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            body: RequestBody::Length(0),
            close: version != "HTTP/1.1",
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            let value = value.trim().to_ascii_lowercase();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => request.body = RequestBody::Length(value.parse().ok()?),
                "transfer-encoding" if value.contains("chunked") => request.body = RequestBody::Chunks(Vec::new()),
                "connection" if value.contains("close") => request.close = true,
                _ => {}
            }
        }
        version.starts_with("HTTP/1.").then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The status lines and bodies of the answers, and whether the connection is closed; the same in any pieces.
    fn check(sent: &str, expect: &[&str], closed: bool) {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": {"simulate.konverge.dev/http-body": "hi"}},
            "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}]},
        });
        let simulation = Arc::new(Simulation::of(&pod));
        for step in [sent.len(), 1, 7] {
            let mut connection = HttpConnection::open(&simulation, 80).expect("declared");
            let answers: Vec<u8> = sent.as_bytes().chunks(step).flat_map(|piece| connection.receive(piece)).collect();
            let answers = String::from_utf8_lossy(&answers).into_owned();
            let got: Vec<String> = answers
                .split_inclusive("\r\n\r\nhi")
                .map(|answer| {
                    let (line, rest) = answer.split_once("\r\n").unwrap_or((answer, ""));
                    format!("{line}{}", if rest.ends_with("hi") { " hi" } else { "" })
                })
                .collect();
            assert_eq!(
                (got, connection.is_closed()),
                (expect.iter().map(|text| (*text).into()).collect(), closed),
                "{sent:?}"
            );
        }
    }

    #[test]
    fn requests_are_answered() {
        let ok = "HTTP/1.1 200 OK hi";
        check("GET / HTTP/1.1\r\nhost: x\r\n\r\n", &[ok], false);
        check("GET / HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n", &[ok, ok], true);
        check("HEAD / HTTP/1.1\r\n\r\n", &["HTTP/1.1 200 OK"], false);
        check("GET / HTTP/1.0\r\n\r\n", &[ok], true);
        check("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nGET /GET / HTTP/1.1\r\n\r\n", &[ok, ok], false);
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        check(chunks, &[ok, ok], false);
        check("GET / HTTP", &[], false);
    }

    #[test]
    fn what_is_not_http_gets_a_line() {
        let line = "konverge: pod shop/web is simulated: its ports answer HTTP/1.1 only\n";
        check("\0\0\0\x08\x04\u{d2}", &[line], true);
        check("hello\r\n\r\n", &[line], true);
        check("GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n", &[line], true);
        check(&format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(MAX_HEAD)), &[line], true);
    }
}
