//! The wire format of protobuf. In: the bytes of one message. Out: its fields, by number, in the order they were sent.
//! Every length is checked against the bytes that are there. Errors are those of the code that gogo generates.

use super::ProtobufError;

/// The fields of a message, one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// The message's name, for errors.
    name: &'a str,
}

/// The value of a field as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    /// A string, bytes, a message, or numbers that are packed.
    Bytes(&'a [u8]),
    /// A group, which is skipped: no field of Kubernetes is one.
    Group,
    Fixed32(u32),
}

impl Wire<'_> {
    /// The error of a known field whose wire type is not the expected one.
    pub(super) fn unexpected(self, field: &str) -> ProtobufError {
        let number = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32(_) => 5,
        };
        malformed(format!("proto: wrong wireType = {number} for field {field}"))
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8], name: &'a str) -> Self {
        Self { rest: message, name }
    }

    /// The next field, or `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        if wire_type == END_GROUP {
            return Err(malformed(format!("proto: {}: wiretype end group for non-group", self.name)));
        }
        let Some(number) = u32::try_from(number).ok().filter(|number| *number > 0) else {
            let name = self.name;
            return Err(malformed(format!("proto: {name}: illegal tag {number} (wire type {wire_type})")));
        };
        Ok(Some((number, self.value(wire_type)?)))
    }

    /// A number of a packed list, or `None` after the last one.
    pub(super) fn packed(&mut self, fixed: bool) -> Result<Option<Wire<'a>>, ProtobufError> {
        match (self.rest.is_empty(), fixed) {
            (true, _) => Ok(None),
            (false, true) => self.value(FIXED64).map(Some),
            (false, false) => self.value(VARINT).map(Some),
        }
    }

    fn tag(&mut self) -> Result<(i32, u8), ProtobufError> {
        let tag = self.varint()?;
        // Go keeps the lower 32 bits of the number.
        Ok(((tag >> 3) as u32 as i32, (tag & 7) as u8))
    }

    fn value(&mut self, wire_type: u8) -> Result<Wire<'a>, ProtobufError> {
        Ok(match wire_type {
            VARINT => Wire::Varint(self.varint()?),
            FIXED64 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            BYTES => Wire::Bytes(self.bytes()?),
            START_GROUP => {
                self.skip_group()?;
                Wire::Group
            }
            FIXED32 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(malformed(format!("proto: illegal wireType {other}"))),
        })
    }

    /// Skips everything up to the end of a group whose start was read. Groups may be nested as deep as they like.
    fn skip_group(&mut self) -> Result<(), ProtobufError> {
        let mut depth = 1usize;
        while depth > 0 {
            match self.tag()?.1 {
                START_GROUP => depth += 1,
                END_GROUP => depth -= 1,
                other => {
                    self.value(other)?;
                }
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or_else(unexpected_end)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("proto: integer overflow"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        if i64::try_from(length).is_err() {
            return Err(malformed("proto: negative length found during unmarshaling"));
        }
        let length = usize::try_from(length).map_err(|_| unexpected_end())?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(unexpected_end)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(unexpected_end)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

/// A string as Go writes it to JSON: protobuf does not promise UTF-8, and each byte that is none becomes `U+FFFD`.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

pub(super) fn malformed(text: impl Into<String>) -> ProtobufError {
    ProtobufError::Malformed(text.into())
}

fn unexpected_end() -> ProtobufError {
    malformed("unexpected EOF")
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;
