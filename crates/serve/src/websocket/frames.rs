//! The frames of RFC 6455, as a server needs them. In: bytes as they come from a client. Out: what they ask for. And the
//! heads of the frames that a server sends. What clients send as data is passed over and never kept.

use bytes::{BufMut, Bytes, BytesMut};

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// The longest payload of a frame that is no data.
const LONGEST_CONTROL: usize = 125;

/// Ends a session as it should end.
pub(crate) const NORMAL: u16 = 1000;
/// Tells a client that it does not speak the protocol.
pub(crate) const PROTOCOL_ERROR: u16 = 1002;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Sent something that asks for no answer.
    Nothing,
    /// To be sent this back.
    Pong(Bytes),
    /// To end, for this reason.
    Close(u16),
}

/// The client does not speak the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAFrame;

/// Where in the stream of bytes the last one left off.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The head of a frame, as far as it is here: at most 14 bytes.
    head: Vec<u8>,
    /// What is still to come of its payload, once the head is whole.
    payload: Option<u64>,
    /// The payload of a frame that is no data.
    control: Vec<u8>,
}

impl Received {
    /// Takes what one frame needs of `bytes`; nothing if it is not whole yet.
    pub(crate) fn frame(&mut self, bytes: &mut &[u8]) -> Result<Option<Asked>, NotAFrame> {
        while self.payload.is_none() {
            let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
            self.head.push(*byte);
            *bytes = rest;
            self.payload = length(&self.head)?;
        }
        let left = self.payload.unwrap_or_default();
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (part, rest) = bytes.split_at(take);
        *bytes = rest;
        if self.opcode() >= CLOSE {
            self.control.extend_from_slice(part);
        }
        self.payload = Some(left - take as u64);
        if self.payload != Some(0) {
            return Ok(None);
        }
        let asked = self.asked()?;
        self.head.clear();
        self.control.clear();
        self.payload = None;
        Ok(Some(asked))
    }

    fn opcode(&self) -> u8 {
        self.head[0] & 0xf
    }

    fn asked(&mut self) -> Result<Asked, NotAFrame> {
        let mask = &self.head[self.head.len() - 4..];
        for (byte, mask) in self.control.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        match (self.opcode(), self.control.as_slice()) {
            (PING, payload) => Ok(Asked::Pong(Bytes::copy_from_slice(payload))),
            (CLOSE, []) => Ok(Asked::Close(NORMAL)),
            (CLOSE, [high, low, ..]) => Ok(Asked::Close(u16::from_be_bytes([*high, *low]))),
            (CLOSE, [_]) => Err(NotAFrame),
            _ => Ok(Asked::Nothing),
        }
    }
}

/// How long the payload is, if the head is whole: it ends with the mask that every client uses.
fn length(head: &[u8]) -> Result<Option<u64>, NotAFrame> {
    let [first, second, rest @ ..] = head else { return Ok(None) };
    let (opcode, short) = (first & 0xf, second & !MASKED);
    let known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
    let control = opcode >= CLOSE;
    if !known || first & RESERVED != 0 || second & MASKED == 0 {
        return Err(NotAFrame);
    }
    if control && (first & FIN == 0 || usize::from(short) > LONGEST_CONTROL) {
        return Err(NotAFrame);
    }
    let extended = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if rest.len() < extended + 4 {
        return Ok(None);
    }
    let long = rest[..extended].iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
    Ok(Some(if extended == 0 { short.into() } else { long }))
}

/// The head of a text message that is this long and comes in one frame.
pub(crate) fn text(length: usize) -> Bytes {
    head(TEXT, length)
}

/// Asks whether the client is there.
pub(crate) fn ping() -> Bytes {
    head(PING, 0)
}

/// Answers a ping.
pub(crate) fn pong(payload: &[u8]) -> Bytes {
    control(PONG, payload)
}

/// Ends the session.
pub(crate) fn close(code: u16) -> Bytes {
    control(CLOSE, &code.to_be_bytes())
}

fn control(opcode: u8, payload: &[u8]) -> Bytes {
    [&head(opcode, payload.len())[..], payload].concat().into()
}

fn head(opcode: u8, length: usize) -> Bytes {
    let mut head = BytesMut::with_capacity(10);
    head.put_u8(FIN | opcode);
    match length {
        0..126 => head.put_u8(length as u8),
        126..=0xffff => {
            head.put_u8(126);
            head.put_u16(length as u16);
        }
        _ => {
            head.put_u8(127);
            head.put_u64(length as u64);
        }
    }
    head.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a client sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = head(first & 0xf, payload.len()).to_vec();
        bytes[0] = first;
        bytes[1] |= MASKED;
        let mask = [1, 2, 3, 4];
        bytes.extend(mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// Fed whole and byte by byte, the same must come out.
    fn check(what: &str, bytes: &[u8], expect: Result<Vec<Asked>, NotAFrame>) {
        for step in [bytes.len(), 1, 3] {
            let mut received = Received::default();
            let mut read = || {
                let mut all = Vec::new();
                for mut piece in bytes.chunks(step) {
                    while !piece.is_empty() {
                        all.extend(received.frame(&mut piece)?);
                    }
                }
                Ok(all)
            };
            assert_eq!(read(), expect, "{what}, {step} bytes at a time");
        }
    }

    #[test]
    fn what_clients_ask_for() {
        use Asked::*;
        check("a ping", &frame(FIN | PING, b"hi"), Ok(vec![Pong(Bytes::from_static(b"hi"))]));
        check("an empty ping", &frame(FIN | PING, b""), Ok(vec![Pong(Bytes::new())]));
        check("a pong", &frame(FIN | PONG, b"x"), Ok(vec![Nothing]));
        check("a close", &frame(FIN | CLOSE, b""), Ok(vec![Close(NORMAL)]));
        check("a close with a reason", &frame(FIN | CLOSE, b"\x03\xe9bye"), Ok(vec![Close(1001)]));
        for length in [1, 125, 126, 70_000] {
            check("text", &frame(FIN | TEXT, &vec![b'x'; length]), Ok(vec![Nothing]));
        }
        let parts = [frame(TEXT, b"a"), frame(FIN | PING, b"b"), frame(FIN | CONTINUATION, b"c")].concat();
        check("a ping within a message", &parts, Ok(vec![Nothing, Pong(Bytes::from_static(b"b")), Nothing]));
        check("half a frame", &frame(FIN | TEXT, b"abc")[..7], Ok(vec![]));
    }

    #[test]
    fn what_is_no_frame() {
        let long = frame(FIN | PING, &[b'x'; 126]);
        let table: [(&str, &[u8]); 6] = [
            ("without a mask", &[FIN | TEXT, 1, b'x']),
            ("of an unknown kind", &[FIN | 0x3, MASKED, 0, 0, 0, 0]),
            ("with reserved bits", &[FIN | 0x40 | TEXT, MASKED, 0, 0, 0, 0]),
            ("a ping in parts", &[PING, MASKED, 0, 0, 0, 0]),
            ("a long ping", &long),
            ("a close with half a code", &[FIN | CLOSE, MASKED | 1, 0, 0, 0, 0, 3]),
        ];
        for (what, bytes) in table {
            check(what, bytes, Err(NotAFrame));
        }
    }

    #[test]
    fn heads_say_how_long_messages_are() {
        for (length, expect) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 0xff, 0xff]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            assert_eq!(&text(length)[..], expect);
        }
        assert_eq!(&close(NORMAL)[..], [0x88, 2, 3, 0xe8]);
        assert_eq!(&pong(b"hi")[..], [0x8a, 2, b'h', b'i']);
    }
}
