//! Streams as channels of a WebSocket: the first byte of each message is the number of its channel. In the `base64` protocols it
//! is a digit, and the rest is base64. Since version 5, the byte 255 and a number close a channel. Pure.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{Event, PIECE, ProtocolError, Wire};

/// Instead of a channel: the next byte names a channel that its client closes.
const CLOSE: u8 = 255;

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw,
    Base64,
}

/// The channels of one WebSocket.
pub(crate) struct Channels {
    codec: Codec,
    /// Whether clients can close a channel.
    closable: bool,
    /// How many there are. Messages for others are passed over.
    count: u8,
    output: VecDeque<Bytes>,
}

impl Channels {
    pub(crate) fn new(codec: Codec, closable: bool, count: u8) -> Self {
        Self { codec, closable, count, output: VecDeque::new() }
    }

    fn push(&mut self, stream: u32, bytes: &[u8]) {
        let channel = stream as u8;
        let message = match self.codec {
            Codec::Raw => [&[channel], bytes].concat(),
            Codec::Base64 => format!("{channel}{}", STANDARD.encode(bytes)).into_bytes(),
        };
        self.output.push_back(message.into());
    }
}

impl Wire for Channels {
    fn receive(&mut self, piece: &[u8]) -> Result<Vec<Event>, ProtocolError> {
        let event = match piece {
            [] => None,
            [CLOSE, channel] if self.closable && *channel < self.count => {
                Some(Event::Closed { stream: (*channel).into() })
            }
            [CLOSE, ..] if self.closable => return Err(ProtocolError("a close of no channel")),
            [channel, data @ ..] => {
                let (channel, bytes) = match self.codec {
                    Codec::Raw => (*channel, Some(data.to_vec())),
                    Codec::Base64 => (channel.wrapping_sub(b'0'), STANDARD.decode(data).ok()),
                };
                bytes.filter(|_| channel < self.count).map(|bytes| Event::Data { stream: channel.into(), bytes })
            }
        };
        Ok(event.into_iter().collect())
    }

    fn accept(&mut self, _: u32) {}

    fn send(&mut self, stream: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            self.push(stream, bytes);
        }
        for piece in bytes.chunks(PIECE) {
            self.push(stream, piece);
        }
    }

    // A server cannot close a channel; it closes the connection.
    fn close(&mut self, _: u32) {}

    fn reset(&mut self, _: u32) {}

    fn finish(&mut self) {}

    fn can_ping(&self) -> bool {
        false
    }

    fn ping(&mut self) {}

    fn next_piece(&mut self) -> Option<Bytes> {
        self.output.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        use Codec::{Base64, Raw};
        let data = |stream, text: &str| Ok(vec![Event::Data { stream, bytes: text.into() }]);
        for (codec, closable, piece, expect) in [
            (Raw, true, &b"\x00hi"[..], data(0, "hi")),
            (Raw, true, b"\x04{}", data(4, "{}")),
            (Raw, true, b"\x00", data(0, "")),
            (Raw, true, b"", Ok(vec![])),
            (Raw, true, b"\x05late", Ok(vec![])),
            (Raw, true, b"\xff\x00", Ok(vec![Event::Closed { stream: 0 }])),
            (Raw, true, b"\xff", Err(ProtocolError("a close of no channel"))),
            (Raw, true, b"\xff\x05", Err(ProtocolError("a close of no channel"))),
            (Raw, true, b"\xff\x00\x00", Err(ProtocolError("a close of no channel"))),
            (Raw, false, b"\xff\x00", Ok(vec![])),
            (Base64, false, b"0aGk=", data(0, "hi")),
            (Base64, false, b"0", data(0, "")),
            (Base64, false, b"0!", Ok(vec![])),
            (Base64, false, b"\x00aGk=", Ok(vec![])),
        ] {
            let mut channels = Channels::new(codec, closable, 5);
            assert_eq!(channels.receive(piece), expect, "{codec:?} {piece:?}");
        }
    }

    #[test]
    fn messages_are_written() {
        for (codec, bytes, expect) in [
            (Codec::Raw, &b"hi"[..], vec![&b"\x01hi"[..]]),
            (Codec::Raw, b"", vec![b"\x01"]),
            (Codec::Base64, b"hi", vec![b"1aGk="]),
        ] {
            let mut channels = Channels::new(codec, true, 5);
            channels.send(1, bytes);
            let got: Vec<Bytes> = std::iter::from_fn(|| channels.next_piece()).collect();
            assert_eq!(got, expect, "{codec:?} {bytes:?}");
        }
        let mut channels = Channels::new(Codec::Raw, true, 5);
        channels.send(1, &[b'x'; PIECE + 1]);
        let lengths: Vec<usize> = std::iter::from_fn(|| channels.next_piece()).map(|piece| piece.len()).collect();
        assert_eq!(lengths, [PIECE + 1, 2]);
    }
}
