//! Frames as clients send them, good and bad, whole and byte by byte.

use super::*;

/// The first streams of an exec, as Go's framer writes them.
const OPEN_ERROR: &[u8] = b"\x80\x03\0\x01\0\0\0\x29\0\0\0\x01\0\0\0\0\0\0\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\0\0\0\0\xff\xff";
const OPEN_STDIN: &[u8] =
    b"\x80\x03\0\x01\0\0\0\x17\0\0\0\x03\0\0\0\0\0\0\xc2\x2e\x55\x5c\x92\x92\x99\x07\0\0\0\xff\xff";

fn opened(stream: u32, kind: &str) -> Event {
    Event::Opened { stream, headers: vec![("streamtype".into(), kind.into())] }
}

fn data(stream: u32, text: &str) -> Event {
    Event::Data { stream, bytes: text.into() }
}

/// Data that comes in parts is one text.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(Event::Data { stream, bytes }), Event::Data { stream: next, bytes: more }) if *stream == next => {
                bytes.extend(more);
            }
            (_, event) => all.push(event),
        }
    }
    all
}

/// Fed whole and in small steps, the same must come out; the answer of the protocol itself is the second expectation.
fn check(what: &str, frames: &[&[u8]], expect: Result<Vec<Event>, &'static str>, answer: &[u8]) {
    let bytes = frames.concat();
    for step in [bytes.len(), 1, 3] {
        let mut spdy = Spdy::new(Pings::Sent);
        let mut events = Vec::new();
        let mut failed = None;
        for piece in bytes.chunks(step) {
            match spdy.receive(piece) {
                Ok(more) => events.extend(more),
                Err(ProtocolError(why)) => {
                    failed = Some(why);
                    break;
                }
            }
        }
        let got = failed.map_or_else(|| Ok(joined(events)), Err);
        assert_eq!(got, expect, "{what}, {step} bytes at a time");
        let sent: Vec<u8> = std::iter::from_fn(|| spdy.next_piece()).flatten().collect();
        assert_eq!(sent, answer, "{what}, {step} bytes at a time");
    }
}

#[test]
fn what_clients_say() {
    let open = [opened(1, "error"), opened(3, "stdin")];
    let with = |more: &[Event]| Ok([&open[..], more].concat());
    let begin = |frames: &[&'static [u8]]| [&[OPEN_ERROR, OPEN_STDIN][..], frames].concat();
    check("streams are opened", &begin(&[]), with(&[]), b"");
    check("data", &begin(&[b"\0\0\0\x03\0\0\0\x02hi"]), with(&[data(3, "hi")]), b"");
    let last = b"\0\0\0\x03\x01\0\0\x02hi";
    check("the last data", &begin(&[last, last]), with(&[data(3, "hi"), Event::Closed { stream: 3 }]), b"");
    check("an empty end", &begin(&[b"\0\0\0\x01\x01\0\0\0"]), with(&[Event::Closed { stream: 1 }]), b"");
    check("data of no stream", &[b"\0\0\0\x09\0\0\0\x02hi"], Ok(vec![]), b"");
    let reset = b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x03\0\0\0\x05";
    check("a reset", &begin(&[reset, reset]), with(&[Event::Reset { stream: 3 }]), b"");
    let ping = b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01";
    check("a ping", &[ping], Ok(vec![]), ping);
    check("the answer to our ping", &[b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02"], Ok(vec![]), b"");
    check("settings", &[b"\x80\x03\0\x04\0\0\0\x04\0\0\0\0"], Ok(vec![]), b"");
    check("a window", &[b"\x80\x03\0\x09\0\0\0\x08\0\0\0\x01\0\0\0\x01"], Ok(vec![]), b"");
    check("the end", &[b"\x80\x03\0\x07\0\0\0\x08\0\0\0\0\0\0\0\0"], Ok(vec![Event::GoneAway]), b"");
}

#[test]
fn what_is_no_frame() {
    let table: [(&str, &[&[u8]], &'static str); 8] = [
        ("another protocol", &[b"\x80\x02\0\x01\0\0\0\0"], "a frame of another protocol, or one that is too long"),
        ("a long one", &[b"\x80\x03\0\x01\0\xff\xff\xff"], "a frame of another protocol, or one that is too long"),
        ("an unknown one", &[b"\x80\x03\0\x05\0\0\0\0"], "an unknown frame"),
        ("a short reset", &[b"\x80\x03\0\x03\0\0\0\x04\0\0\0\x03"], "a frame that is too short"),
        ("a short stream", &[b"\x80\x03\0\x01\0\0\0\x02\0\0"], "a frame that is too short"),
        ("a short ping", &[b"\x80\x03\0\x06\0\0\0\0"], "a frame that is too short"),
        (
            "headers that are none",
            &[b"\x80\x03\0\x08\0\0\0\x06\0\0\0\x01\x1f\x8b"],
            "headers that are not compressed by zlib",
        ),
        ("a stream of a server", &[b"\x80\x03\0\x01\0\0\0\x29\0\0\0\x02", &OPEN_ERROR[12..]], "an invalid stream id"),
    ];
    for (what, frames, expect) in table {
        check(what, frames, Err(expect), b"");
    }
}

/// Bytes that look like frames now and then: nothing panics, and nothing grows without bound.
#[test]
fn noise_costs_only_its_connection() {
    for seed in 0..2000u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut spdy = Spdy::new(Pings::Sent);
        let good: &[&[u8]] =
            &[OPEN_ERROR, OPEN_STDIN, b"\0\0\0\x03\0\0\0\x02hi", b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01"];
        let mut bytes = good.concat();
        for _ in 0..1 + seed % 7 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % bytes.len() as u64) as usize;
            bytes[at] = (random >> 32) as u8;
        }
        for piece in bytes.chunks(1 + (seed % 11) as usize) {
            if spdy.receive(piece).is_err() {
                break;
            }
        }
        assert!(spdy.frame.len() <= HEAD + MAX_CONTROL && spdy.streams.len() <= MAX_STREAMS, "seed {seed}");
    }
}

#[test]
fn what_a_server_sends() {
    let mut spdy = Spdy::new(Pings::Sent);
    spdy.receive(&[OPEN_ERROR, OPEN_STDIN].concat()).expect("two streams");
    let mut sent = |act: &dyn Fn(&mut Spdy)| -> Vec<u8> {
        act(&mut spdy);
        std::iter::from_fn(|| spdy.next_piece()).flatten().collect()
    };
    let first = sent(&|spdy| spdy.accept(1));
    assert_eq!(first, b"\x80\x03\0\x02\0\0\0\x14\0\0\0\x01\x78\x01\0\x04\0\xfb\xff\0\0\0\0\0\0\0\xff\xff");
    assert_eq!(sent(&|spdy| spdy.accept(3))[..12], *b"\x80\x03\0\x02\0\0\0\x12\0\0\0\x03");
    assert_eq!(sent(&|spdy| spdy.send(1, b"ok")), b"\0\0\0\x01\0\0\0\x02ok");
    assert_eq!(sent(&|spdy| spdy.send(9, b"ok")), b"", "nobody opened it");
    assert_eq!(sent(&|spdy| spdy.close(1)), b"\0\0\0\x01\x01\0\0\0");
    assert_eq!(sent(&|spdy| spdy.send(1, b"late")), b"", "it is closed");
    assert_eq!(sent(&|spdy| spdy.reset(3)), b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x03\0\0\0\x05");
    assert_eq!(sent(&|spdy| spdy.ping()), b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x02");
    assert_eq!(sent(&|spdy| spdy.finish()), b"\x80\x03\0\x07\0\0\0\x08\0\0\0\x03\0\0\0\0");
}
