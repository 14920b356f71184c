//! As much of DER as keys and certificates need. In: bytes. Out: the parts of a sequence, and back.

/// The tags that keys and certificates have.
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const EXPLICIT_VERSION: u8 = 0xa0;

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next value, as its tag and its content.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match first {
            short @ 0..=0x7f => usize::from(short),
            // Keys and certificates are shorter than 16 MB.
            0x81..=0x83 => {
                let (bytes, after) = rest.split_at_checked(usize::from(first - 0x80))?;
                rest = after;
                bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value whole: with its tag and its length.
    pub(crate) fn whole(&mut self) -> Option<&'a [u8]> {
        let before = self.0;
        self.next()?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// The content of the next value, if it has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The values of the next sequence.
    pub(crate) fn sequence(&mut self) -> Option<Reader<'a>> {
        self.expect(SEQUENCE).map(Reader)
    }

    /// The bytes of the next bit string, which must be whole bytes.
    pub(crate) fn bits(&mut self) -> Option<&'a [u8]> {
        self.expect(BIT_STRING)?.strip_prefix(&[0])
    }
}

/// A value of a tag and a content.
pub(crate) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
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

/// The seconds since 1970 from which and until which a certificate is valid.
pub(crate) fn certificate_validity(certificate: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Reader::new(certificate).sequence()?.sequence()?;
    let mut first = fields;
    // The version is not there in certificates of the first version.
    if first.next()?.0 == EXPLICIT_VERSION {
        fields.next()?;
    }
    fields.expect(INTEGER)?;
    fields.sequence()?;
    fields.sequence()?;
    let mut validity = fields.sequence()?;
    Some((time(validity.next()?)?, time(validity.next()?)?))
}

fn time((tag, content): (u8, &[u8])) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?;
    let text = match tag {
        // Years of two digits are between 1950 and 2049.
        UTC_TIME if text < "5" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    u64::try_from(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second()).ok()
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
    }
}
