//! As much of DER as keys and certificates need. In: bytes. Out: the parts of a sequence, and back.

/// The tag of a boolean.
pub const BOOLEAN: u8 = 0x01;
/// The tag of a whole number.
pub const INTEGER: u8 = 0x02;
/// The tag of a bit string.
pub const BIT_STRING: u8 = 0x03;
/// The tag of bytes.
pub const OCTET_STRING: u8 = 0x04;
/// The tag of nothing.
pub const NULL: u8 = 0x05;
/// The tag of an object identifier.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// The tag of a sequence.
pub const SEQUENCE: u8 = 0x30;
/// The tag of a set.
pub const SET: u8 = 0x31;

/// Reads values one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes from their beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next value, as its tag and its content; none at the end, and for what is not DER.
    #[expect(
        clippy::should_implement_trait,
        reason = "an end and a fault are the same to readers of one value after the other"
    )]
    pub fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match first {
            short @ 0..=0x7f => usize::from(short),
            // Keys and certificates are shorter than 16 MB.
            0x81..=0x83 => {
                let (bytes, after) = rest.split_at_checked(usize::from(first - 0x80))?;
                rest = after;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                // DER has one form of a length: the shortest. Two readers must not disagree about a second one.
                if length < 0x80 || bytes.first() == Some(&0) {
                    return None;
                }
                length
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value whole: with its tag and its length.
    pub fn whole(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.next()?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// The content of the next value, if it has this tag.
    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The values of the next sequence.
    pub fn sequence(&mut self) -> Option<Reader<'a>> {
        self.expect(SEQUENCE).map(Reader)
    }

    /// The bytes of the next bit string, which must be whole bytes.
    pub fn bits(&mut self) -> Option<&'a [u8]> {
        self.expect(BIT_STRING)?.strip_prefix(&[0])
    }
}

/// A value of a tag and a content.
pub fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let written = value(OCTET_STRING, &content);
            assert_eq!(Reader::new(&written).expect(OCTET_STRING), Some(&*content), "{length}");
            assert!(Reader::new(&written[..written.len() - 1]).next().is_none(), "{length}");
        }
        assert!(Reader::new(&[0x30, 0x80]).next().is_none(), "an indefinite length");
        assert!(Reader::new(&[0x04, 0x81, 1, 7]).next().is_none(), "a length that is too long");
    }
}
