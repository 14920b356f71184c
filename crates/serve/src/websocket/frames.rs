//! The frames of RFC 6455, as a server needs them. In: bytes as they come from a client. Out: what they ask for. And the
//! heads of the frames that a server sends. The messages of clients are put together up to a limit, or passed over where nobody
//! reads them.

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
const PROTOCOL_ERROR: u16 = 1002;
/// Tells a client that its message is longer than the server takes.
const TOO_LARGE: u16 = 1009;

/// Which messages a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Binary,
}

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Sent something that asks for no answer.
    Nothing,
    /// To have this message read.
    Read(Bytes),
    /// To be sent this back.
    Pong(Bytes),
    /// To end, for this reason.
    Close(u16),
}

/// Why a client's frames end its session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// The client does not speak the protocol.
    NotAFrame,
    /// A message is longer than the limit.
    TooLarge,
}

impl BadFrame {
    /// The code of the close that tells the client.
    pub(crate) fn code(&self) -> u16 {
        match self {
            BadFrame::NotAFrame => PROTOCOL_ERROR,
            BadFrame::TooLarge => TOO_LARGE,
        }
    }
}

/// Where in the stream of bytes the last one left off.
#[derive(Debug)]
pub(crate) struct Received {
    /// The longest message that is put together; none: messages are passed over.
    keep: Option<usize>,
    /// The head of a frame, as far as it is here: at most 14 bytes.
    head: Vec<u8>,
    /// What is still to come of its payload, once the head is whole.
    payload: Option<u64>,
    /// How much of the payload was read.
    read: usize,
    /// The payload of a frame that is no data.
    control: Vec<u8>,
    /// The frames of a message so far, if they are kept.
    message: Vec<u8>,
    /// Whether the last data frame was not the end of its message.
    unfinished: bool,
}

impl Received {
    /// Puts messages together up to this length, or passes all of them over.
    pub(crate) fn new(keep: Option<usize>) -> Self {
        Received {
            keep,
            head: Vec::new(),
            payload: None,
            read: 0,
            control: Vec::new(),
            message: Vec::new(),
            unfinished: false,
        }
    }

    /// Takes what one frame needs of `bytes`; nothing if it is not whole yet.
    pub(crate) fn frame(&mut self, bytes: &mut &[u8]) -> Result<Option<Asked>, BadFrame> {
        while self.payload.is_none() {
            let Some((byte, rest)) = bytes.split_first() else { return Ok(None) };
            self.head.push(*byte);
            *bytes = rest;
            self.payload = length(&self.head)?;
            if self.payload.is_some() {
                self.check_order()?;
            }
        }
        let left = self.payload.unwrap_or_default();
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (part, rest) = bytes.split_at(take);
        *bytes = rest;
        self.take(part)?;
        self.payload = Some(left - take as u64);
        if self.payload != Some(0) {
            return Ok(None);
        }
        let asked = self.asked()?;
        self.head.clear();
        self.control.clear();
        (self.payload, self.read) = (None, 0);
        Ok(Some(asked))
    }

    fn opcode(&self) -> u8 {
        self.head[0] & 0xf
    }

    fn is_control(&self) -> bool {
        self.opcode() >= CLOSE
    }

    /// A message continues exactly if the last one is unfinished.
    fn check_order(&mut self) -> Result<(), BadFrame> {
        if self.is_control() {
            return Ok(());
        }
        if (self.opcode() == CONTINUATION) != self.unfinished {
            return Err(BadFrame::NotAFrame);
        }
        self.unfinished = self.head[0] & FIN == 0;
        Ok(())
    }

    /// Keeps a part of the payload, without its mask.
    fn take(&mut self, part: &[u8]) -> Result<(), BadFrame> {
        let into = match self.keep {
            _ if self.is_control() => &mut self.control,
            None => return Ok(()),
            Some(limit) if self.message.len() + part.len() > limit => return Err(BadFrame::TooLarge),
            Some(_) => &mut self.message,
        };
        let mask = self.head[self.head.len() - 4..].iter().cycle().skip(self.read % 4);
        into.extend(part.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        self.read += part.len();
        Ok(())
    }

    fn asked(&mut self) -> Result<Asked, BadFrame> {
        match (self.opcode(), self.control.as_slice()) {
            (PING, payload) => Ok(Asked::Pong(Bytes::copy_from_slice(payload))),
            (CLOSE, []) => Ok(Asked::Close(NORMAL)),
            (CLOSE, [high, low, ..]) => Ok(Asked::Close(u16::from_be_bytes([*high, *low]))),
            (CLOSE, [_]) => Err(BadFrame::NotAFrame),
            (TEXT | BINARY | CONTINUATION, _) if self.keep.is_some() && !self.unfinished => {
                Ok(Asked::Read(std::mem::take(&mut self.message).into()))
            }
            _ => Ok(Asked::Nothing),
        }
    }
}

/// How long the payload is, if the head is whole: it ends with the mask that every client uses.
fn length(head: &[u8]) -> Result<Option<u64>, BadFrame> {
    let [first, second, rest @ ..] = head else { return Ok(None) };
    let (opcode, short) = (first & 0xf, second & !MASKED);
    let known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
    let control = opcode >= CLOSE;
    if !known || first & RESERVED != 0 || second & MASKED == 0 {
        return Err(BadFrame::NotAFrame);
    }
    if control && (first & FIN == 0 || usize::from(short) > LONGEST_CONTROL) {
        return Err(BadFrame::NotAFrame);
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

/// The head of a message that is this long and comes in one frame.
pub(crate) fn message(kind: Kind, length: usize) -> Bytes {
    head(if kind == Kind::Text { TEXT } else { BINARY }, length)
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
    fn check(what: &str, bytes: &[u8], expect: Result<Vec<Asked>, BadFrame>) {
        check_kept(None, what, bytes, expect);
    }

    fn check_kept(keep: Option<usize>, what: &str, bytes: &[u8], expect: Result<Vec<Asked>, BadFrame>) {
        for step in [bytes.len(), 1, 3] {
            let mut received = Received::new(keep);
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
    fn messages_that_are_read() {
        use Asked::*;
        let read = |text: &'static str| Read(Bytes::from_static(text.as_bytes()));
        let keep = |what: &str, bytes: &[u8], expect| check_kept(Some(8), what, bytes, expect);
        keep("a message", &frame(FIN | BINARY, b"12345678"), Ok(vec![read("12345678")]));
        keep("an empty one", &frame(FIN | TEXT, b""), Ok(vec![read("")]));
        let parts = [frame(BINARY, b"abcde"), frame(FIN | PING, b""), frame(FIN | CONTINUATION, b"fg")].concat();
        keep("one in parts", &parts, Ok(vec![Nothing, Pong(Bytes::new()), read("abcdefg")]));
        let two = [frame(FIN | TEXT, b"a"), frame(FIN | BINARY, b"b")].concat();
        keep("two", &two, Ok(vec![read("a"), read("b")]));
        keep("a long one", &frame(FIN | BINARY, b"123456789"), Err(BadFrame::TooLarge));
        let long = [frame(BINARY, b"12345"), frame(FIN | CONTINUATION, b"6789")].concat();
        keep("a long one in parts", &long, Err(BadFrame::TooLarge));
    }

    #[test]
    fn what_is_no_frame() {
        let long = frame(FIN | PING, &[b'x'; 126]);
        let table: [(&str, &[u8]); 8] = [
            ("without a mask", &[FIN | TEXT, 1, b'x']),
            ("of an unknown kind", &[FIN | 0x3, MASKED, 0, 0, 0, 0]),
            ("with reserved bits", &[FIN | 0x40 | TEXT, MASKED, 0, 0, 0, 0]),
            ("a ping in parts", &[PING, MASKED, 0, 0, 0, 0]),
            ("a long ping", &long),
            ("a close with half a code", &[FIN | CLOSE, MASKED | 1, 0, 0, 0, 0, 3]),
            ("the end of no message", &[FIN | CONTINUATION, MASKED, 0, 0, 0, 0]),
            ("a message within a message", &[TEXT, MASKED, 0, 0, 0, 0, FIN | TEXT, MASKED, 0, 0, 0, 0]),
        ];
        for (what, bytes) in table {
            check(what, bytes, Err(BadFrame::NotAFrame));
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
            assert_eq!(&message(Kind::Text, length)[..], expect);
        }
        assert_eq!(&message(Kind::Binary, 3)[..], [0x82, 3]);
        assert_eq!(&close(NORMAL)[..], [0x88, 2, 3, 0xe8]);
        assert_eq!(&pong(b"hi")[..], [0x8a, 2, b'h', b'i']);
    }
}
