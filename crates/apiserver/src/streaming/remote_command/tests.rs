//! Remote commands over both wires: what clients get of a program.

use super::*;
use crate::streaming::channels::{Channels, Codec};
use bytes::Bytes;

/// Prints what it reads, exits with 3 at the end of its stdin.
struct Parrot;

impl Program for Parrot {
    fn begin(&mut self, output: &mut Output) {
        output.print("begin\n");
    }

    fn stdin(&mut self, bytes: &[u8], output: &mut Output) {
        output.stdout.extend_from_slice(bytes);
        output.complain("heard\n");
    }

    fn stdin_closed(&mut self, output: &mut Output) {
        output.exit(3);
    }
}

const ALL: StreamOptions = StreamOptions { stdin: true, stdout: true, stderr: true, tty: false };

fn drain(wire: &mut dyn Wire) -> Vec<Bytes> {
    std::iter::from_fn(|| wire.next_piece()).collect()
}

/// What a client of channels gets for what it sends.
fn check(protocol: &str, options: StreamOptions, sent: &[&[u8]], expect: &[&str]) {
    let mut wire = Channels::new(Codec::Raw, protocol.starts_with("v5"), 5);
    let command = ["sh".to_owned(), "-c".to_owned()];
    let mut conversation = RemoteCommand::new(protocol, false, options, &command, Box::new(Parrot));
    conversation.begin(&mut wire);
    for piece in sent {
        for event in wire.receive(piece).expect("good messages") {
            conversation.event(event, &mut wire);
        }
    }
    let got: Vec<String> =
        drain(&mut wire).iter().map(|piece| format!("{}{}", piece[0], String::from_utf8_lossy(&piece[1..]))).collect();
    assert_eq!(got, expect, "{protocol} {sent:?}");
}

#[test]
fn channels_of_a_command() {
    let exit = r#"3{"details":{"causes":[{"message":"3","reason":"ExitCode"}]},"message":"command terminated with non-zero exit code: error executing command [sh -c], exit code 3","metadata":{},"reason":"NonZeroExitCode","status":"Failure"}"#;
    let text = "3command terminated with non-zero exit code: error executing command [sh -c], exit code 3";
    check(
        "v5.channel.k8s.io",
        ALL,
        &[b"\x00hi", b"\xff\x00", b"\x00late"],
        &["1", "1begin\n", "1hi", "2heard\n", exit],
    );
    check("v4.channel.k8s.io", ALL, &[b"\x00hi", b"\xff\x00"], &["1", "1begin\n", "1hi", "2heard\n"]);
    let quiet = StreamOptions { stdin: false, stderr: false, ..ALL };
    check("channel.k8s.io", quiet, &[], &["1", "1begin\n", text]);
    check(
        "v4.channel.k8s.io",
        StreamOptions { stdin: true, stdout: false, stderr: false, tty: false },
        &[b"\x00x"],
        &["3"],
    );
    let sizes: &[&[u8]] =
        &[b"\x04{\"Width\":80,", b"\x04\"Height\":24}{\"Width\":1,\"Height\":1}", b"\x04nonsense", b"\x04{}"];
    check("v5.channel.k8s.io", ALL, sizes, &["1", "1begin\n"]);
    // A terminal echoes, has one output, and knows the ends of lines and of the input.
    let tty = StreamOptions { stderr: false, tty: true, ..ALL };
    let typed: &[&[u8]] = &[b"\x00h", b"\x00x\x7fi\r", b"\x00\x04"];
    let shown = ["1", "1begin\r\n", "1h", "1x", "1\x08 \x08", "1i", "1\r\n", "1hi\r\n", "1heard\r\n", exit];
    check("v5.channel.k8s.io", tty, typed, &shown);
    check(
        "v5.channel.k8s.io",
        tty,
        &[b"\x00\x03"],
        &["1", "1begin\r\n", "1^C\r\n", &exit.replace("3\"", "130\"").replace("code 3", "code 130")],
    );
}

#[test]
fn a_command_does_not_succeed_because_the_server_closes() {
    let mut wire = Channels::new(Codec::Raw, true, 5);
    let command = ["sh".to_owned()];
    let mut conversation = RemoteCommand::new("v5.channel.k8s.io", false, ALL, &command, Box::new(Parrot));
    conversation.begin(&mut wire);
    drain(&mut wire);
    conversation.server_closes(&mut wire);
    conversation.server_closes(&mut wire);
    let last: Vec<String> = drain(&mut wire).iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
    assert!(last[0].contains("the server is shutting down") && last[0].contains("\"Failure\""), "{last:?}");
    assert!(conversation.is_over() && last.len() == 1, "{last:?}");
}

/// A wire that shows what is done to it.
#[derive(Default)]
struct Log(Vec<String>);

impl Wire for Log {
    fn receive(&mut self, _: &[u8]) -> Result<Vec<Event>, crate::streaming::ProtocolError> {
        Ok(Vec::new())
    }

    fn accept(&mut self, stream: u32) {
        self.0.push(format!("accept {stream}"));
    }

    fn send(&mut self, stream: u32, bytes: &[u8]) {
        self.0.push(format!("send {stream} {}", String::from_utf8_lossy(bytes)));
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

#[test]
fn streams_of_a_command() {
    let open = |stream, kind: &str| Event::Opened { stream, headers: vec![("streamtype".into(), kind.into())] };
    let data = |stream, text: &str| Event::Data { stream, bytes: text.into() };
    let mut wire = Log::default();
    let command = ["x".to_owned()];
    let mut conversation = RemoteCommand::new("v4.channel.k8s.io", true, ALL, &command, Box::new(Parrot));
    conversation.begin(&mut wire);
    assert!(conversation.setup_limit().is_some());
    for event in [
        open(1, "error"),
        open(3, "nonsense"),
        open(5, "stdin"),
        data(5, "early"),
        open(7, "stdin"),
        open(9, "stdout"),
        open(11, "stderr"),
        open(13, "resize"),
        data(5, "late"),
        Event::Closed { stream: 1 },
        Event::Closed { stream: 5 },
    ] {
        conversation.event(event, &mut wire);
    }
    let status = wire.0.iter().position(|act| act.starts_with("send 1 {")).expect("a status");
    let expect = [
        "accept 1",
        "reset 3",
        "accept 5",
        "reset 7",
        "accept 9",
        "accept 11",
        "send 9 begin\n",
        "send 9 early",
        "send 11 heard\n",
        "reset 13",
        "send 9 late",
        "send 11 heard\n",
    ];
    assert_eq!(wire.0[..status], expect);
    assert_eq!(wire.0[status + 1..], ["close 9", "close 11", "close 1"]);
    assert!(conversation.is_over() && conversation.setup_limit().is_none());
}

#[test]
fn who_talks_before_its_streams_are_open() {
    let mut wire = Log::default();
    let mut conversation = RemoteCommand::new("v4.channel.k8s.io", true, ALL, &[], Box::new(Parrot));
    let mut pieces = 0;
    while !conversation.is_over() {
        conversation.event(Event::Data { stream: 1, bytes: vec![0; 1024] }, &mut wire);
        pieces += 1;
        assert!(pieces <= MAX_EARLY / 1024 + 1, "nothing keeps it from talking");
    }
}

#[test]
fn a_container_that_stops_takes_its_commands_along() {
    let mut wire = Channels::new(Codec::Raw, true, 5);
    let mut conversation = RemoteCommand::new("v5.channel.k8s.io", false, ALL, &[], Box::new(Parrot));
    conversation.begin(&mut wire);
    conversation.target_ended(&mut wire);
    let last = drain(&mut wire).pop().expect("a status");
    assert!(String::from_utf8_lossy(&last).contains("exit code 137") && conversation.is_over());
}
