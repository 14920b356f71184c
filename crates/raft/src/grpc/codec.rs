//! A protobuf message with one field of bytes, written and read by hand so that nobody needs `protoc`.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Field 1, length-delimited.
const TAG: u8 = 1 << 3 | 2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, body: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        write(body, out);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let body = read(message.copy_to_bytes(message.remaining()));
        body.map(Some).ok_or_else(|| Status::invalid_argument("the message is not one field of bytes"))
    }
}

fn write(body: Bytes, out: &mut impl BufMut) {
    out.put_u8(TAG);
    let mut length = body.len();
    while length >= 0x80 {
        out.put_u8(length as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
    out.put(body);
}

/// The body of a message. An empty message has an empty body, as protobuf has it.
fn read(mut message: Bytes) -> Option<Bytes> {
    if message.is_empty() {
        return Some(message);
    }
    if message.get_u8() != TAG {
        return None;
    }
    let mut length = 0_u64;
    for shift in (0..35).step_by(7) {
        if !message.has_remaining() {
            return None;
        }
        let byte = message.get_u8();
        length |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (length == message.len() as u64).then_some(message);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_out_as_it_went_in() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
            let body = Bytes::from(vec![7; length]);
            let mut message = Vec::new();
            write(body.clone(), &mut message);
            assert_eq!(read(message.into()), Some(body), "{length}");
        }
    }

    #[test]
    fn other_messages_are_refused() {
        for (message, expect) in [
            (&[][..], Some(&[][..])),
            (&[TAG, 1, 7], Some(&[7])),
            (&[TAG], None),
            (&[TAG, 2, 7], None),
            (&[TAG, 1, 7, 7], None),
            (&[TAG, 0x80], None),
            (&[TAG, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], None),
            (&[8, 1], None),
        ] {
            assert_eq!(read(Bytes::copy_from_slice(message)).as_deref(), expect, "{message:?}");
        }
    }
}
