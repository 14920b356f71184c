//! Replaces what is not Unicode in JSON: Go reads it as U+FFFD, and our parser refuses it. In: bytes that could not be read. Out:
//! the same with U+FFFD for each byte that is no UTF-8 and for each lone surrogate, or nothing if there is none.

const REPLACEMENT: &[u8] = b"\\ufffd";

/// JSON without anything that is not Unicode; `None` if the body has nothing of the kind.
pub(super) fn replaced(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    let mut found = false;
    for chunk in body.utf8_chunks() {
        found |= copy(chunk.valid().as_bytes(), &mut out);
        for _ in chunk.invalid() {
            found = true;
            out.extend_from_slice(REPLACEMENT);
        }
    }
    found.then_some(out)
}

/// Copies text with U+FFFD for lone surrogates, and says whether there were any.
fn copy(text: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut at, mut found) = (0, false);
    while let Some(byte) = text.get(at) {
        let length = match (byte, escape(text, at)) {
            (b'\\', Some(0xd800..=0xdbff)) if matches!(escape(text, at + 6), Some(0xdc00..=0xdfff)) => 12,
            (b'\\', Some(0xd800..=0xdfff)) => {
                found = true;
                out.extend_from_slice(REPLACEMENT);
                at += 6;
                continue;
            }
            (b'\\', _) => 2,
            _ => 1,
        };
        let end = text.len().min(at + length);
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
    found
}

/// The number of a `\uXXXX` that begins here.
fn escape(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
