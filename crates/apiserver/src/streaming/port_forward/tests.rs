//! Forwarded connections over both wires.

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::streaming::ProtocolError;
use crate::streaming::channels::{Channels, Codec};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn simulation() -> Simulation {
    Simulation::of(&json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {"simulate.konverge.dev/http-body": "hi"}},
        "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80}]}]},
    }))
}

/// A wire that shows what is done to it; data by its last letters.
#[derive(Default)]
struct Log(Vec<String>);

impl Wire for Log {
    fn receive(&mut self, _: &[u8]) -> Result<Vec<Event>, ProtocolError> {
        Ok(Vec::new())
    }

    fn accept(&mut self, stream: u32) {
        self.0.push(format!("accept {stream}"));
    }

    fn send(&mut self, stream: u32, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.split("\r\n\r\n").last().unwrap_or_default();
        self.0.push(format!("send {stream} {text}"));
    }

    fn close(&mut self, stream: u32) {
        self.0.push(format!("close {stream}"));
    }

    fn reset(&mut self, stream: u32) {
        self.0.push(format!("reset {stream}"));
    }

    fn finish(&mut self) {}

    fn can_ping(&self) -> bool {
        false
    }

    fn ping(&mut self) {}

    fn next_piece(&mut self) -> Option<Bytes> {
        None
    }
}

fn open(stream: u32, kind: &str, port: &str, id: Option<&str>) -> Event {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut headers = vec![header("streamtype", kind), header("port", port)];
    headers.extend(id.map(|id| header("requestid", id)));
    Event::Opened { stream, headers }
}

fn check(events: Vec<Event>, expect: &[&str]) {
    let mut wire = Log::default();
    let mut conversation = PortForward::new(simulation(), Vec::new());
    conversation.begin(&mut wire);
    for event in events.clone() {
        conversation.event(event, &mut wire);
    }
    assert_eq!(wire.0, expect, "{events:?}");
}

#[test]
fn connections_over_streams() {
    let get = |stream| Event::Data { stream, bytes: GET.into() };
    let pair = |id| vec![open(1, "error", "80", id), open(3, "data", "80", id)];
    check([pair(Some("0")), vec![get(3)]].concat(), &["accept 1", "accept 3", "send 3 hi"]);
    check([pair(None), vec![get(3), get(3)]].concat(), &["accept 1", "accept 3", "send 3 hi", "send 3 hi"]);
    let ends = vec![Event::Closed { stream: 1 }, get(3), Event::Closed { stream: 3 }, get(3)];
    check([pair(Some("0")), ends].concat(), &["accept 1", "accept 3", "send 3 hi", "close 3", "close 1"]);
    check(
        [pair(Some("0")), vec![Event::Reset { stream: 1 }]].concat(),
        &["accept 1", "accept 3", "close 3", "close 1"],
    );
    let refused = "send 1 error forwarding port 81 to pod u, uid : failed to connect to localhost:81: connection refused \
                   (the pod is simulated, and none of its containers declares port 81)";
    check(
        vec![open(1, "error", "81", Some("0")), open(3, "data", "81", Some("0")), get(3)],
        &["accept 1", "accept 3", refused, "close 1", "close 3", "reset 3", "reset 1"],
    );
    check(
        vec![open(1, "data", "0", None), open(3, "data", "x", None), open(5, "other", "80", None)],
        &["reset 1", "reset 3", "reset 5"],
    );
    check(
        vec![open(1, "error", "80", Some("0")), open(3, "error", "80", Some("0"))],
        &[
            "accept 1",
            "accept 3",
            "send 1 error processing stream for request 0: error stream already assigned",
            "reset 3",
        ],
    );
}

#[test]
fn connections_over_channels() {
    let mut wire = Channels::new(Codec::Raw, false, 4);
    let mut conversation = PortForward::new(simulation(), vec![80, 81]);
    conversation.begin(&mut wire);
    let mut next = || wire.next_piece().map(|piece| (piece[0], piece[1..].to_vec()));
    assert_eq!(next(), Some((0, vec![80, 0])));
    assert_eq!(next(), Some((1, vec![80, 0])));
    assert_eq!(next(), Some((2, vec![81, 0])));
    assert_eq!(next(), Some((3, vec![81, 0])));
    assert!(next().is_some_and(|(channel, text)| channel == 3 && text.starts_with(b"error forwarding port 81")));
    conversation.event(Event::Data { stream: 0, bytes: GET.into() }, &mut wire);
    assert!(wire.next_piece().is_some_and(|piece| piece[0] == 0 && piece.ends_with(b"hi")));
    assert!(!conversation.is_over());
    conversation.event(Event::Data { stream: 0, bytes: b"\0".into() }, &mut wire);
    assert!(conversation.is_over(), "the last connection was closed");
}
