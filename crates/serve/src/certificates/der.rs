//! The outermost parts of a certificate's DER encoding. Bytes come in, the same bytes in pieces come out. It checks nothing
//! but lengths and tags: webpki does the rest.

pub(super) const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The fields of a certificate that follow the issuer: validity, subject, and more.
pub(super) fn after_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (mut fields, _) = value(value(certificate, SEQUENCE)?.0, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = value(fields, VERSION)?.1;
    }
    // The serial number, the algorithm and the issuer come first.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    Some(fields)
}

/// Tag, content and what follows.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut len = usize::from(first);
    if first >= 0x80 {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 3 {
            return None;
        }
        len = digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The content of an element with this tag, and what follows.
pub(super) fn value(bytes: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(bytes)?;
    (tag == expected).then_some((content, rest))
}
