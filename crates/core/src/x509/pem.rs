//! PEM. In: a text. Out: its blocks, found as Go's `pem.Decode` finds them: a block begins at the beginning of a line and ends at the end
//! of one. Whatever else is in the text is passed over, and so are broken blocks.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// As Go: padding is needed, and the bits behind the last byte do not matter.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// One block of a PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock {
    /// What the block has, such as `CERTIFICATE`.
    pub label: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The blocks of a PEM text, in their order.
///
/// ```
/// let blocks: Vec<_> = konverge_core::x509::pem_blocks(b"-----BEGIN A-----\nAQI=\n-----END A-----\n").collect();
/// assert_eq!(blocks[0].bytes, [1, 2]);
/// ```
pub fn pem_blocks(text: &[u8]) -> impl Iterator<Item = PemBlock> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (block, after) = next(rest)?;
        rest = after;
        Some(block)
    })
}

/// The next block, and what follows it.
fn next(text: &[u8]) -> Option<(PemBlock, &[u8])> {
    let mut rest = text;
    loop {
        // The last beginning before the first end: a beginning without an end of its own is passed over.
        let end = find(rest, END)?;
        let after_end = &rest[end + END.len()..];
        if let Some(found) = block(&rest[..=end], after_end) {
            return Some(found);
        }
        rest = after_end;
    }
}

/// The last block that begins in `before`, which ends with the line break before an end. `after` follows the word END.
fn block<'t>(before: &[u8], after: &'t [u8]) -> Option<(PemBlock, &'t [u8])> {
    let begin = rfind(before, BEGIN).filter(|begin| *begin == 0 || before[begin - 1] == b'\n')?;
    let (label, mut content) = line(&before[begin + BEGIN.len()..]);
    let label = label.strip_suffix(DASHES)?;
    let mut headers = false;
    while line(content).0.contains(&b':') {
        content = line(content).1;
        headers = true;
    }
    if headers && content.is_empty() {
        return None;
    }
    let (last, following) = line(after.strip_prefix(label)?.strip_prefix(DASHES)?);
    if !last.is_empty() {
        return None;
    }
    let content: Vec<u8> = content.iter().copied().filter(|byte| !b" \t\r\n".contains(byte)).collect();
    let bytes = BASE64.decode(content).ok()?;
    Some((PemBlock { label: String::from_utf8_lossy(label).into_owned(), bytes }, following))
}

/// The first line without blanks at its end, and what follows it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = end.map_or((text, &[][..]), |end| (&text[..end], &text[end + 1..]));
    let line = line.strip_suffix(b"\r").filter(|_| end.is_some()).unwrap_or(line);
    let length = line.iter().rposition(|byte| !b" \t".contains(byte)).map_or(0, |last| last + 1);
    (&line[..length], rest)
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

fn rfind(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).rposition(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_as_in_go() {
        #[track_caller]
        fn check(text: &str, expect: &[(&str, &[u8])]) {
            let found: Vec<_> = pem_blocks(text.as_bytes()).map(|block| (block.label, block.bytes)).collect();
            let expect: Vec<_> = expect.iter().map(|(label, bytes)| ((*label).to_owned(), bytes.to_vec())).collect();
            assert_eq!(found, expect, "{text:?}");
        }
        let (a, b) = ("-----BEGIN A-----\nAQI=\n-----END A-----", "-----BEGIN B-----\nAw==\n-----END B-----\n");
        check(a, &[("A", &[1, 2])]);
        check(&format!("text\n{a}\ntext\n{b}"), &[("A", &[1, 2]), ("B", &[3])]);
        check(&format!("x{a}\n{b}"), &[("B", &[3])]);
        check(&format!(" {a}"), &[]);
        check(&format!("{a}x\n{b}"), &[("B", &[3])]);
        check(&a.replace('\n', "\r\n"), &[("A", &[1, 2])]);
        check(&a.replace("\n", " \t\n"), &[("A", &[1, 2])]);
        check(&a.replace("AQI", "Key: value\nOther: one\n\nA Q\tI"), &[("A", &[1, 2])]);
        check("-----BEGIN A-----\n-----END A-----", &[("A", &[])]);
        check("-----BEGIN A-----\nKey: value\n-----END A-----", &[]);
        check(&format!("-----BEGIN C-----\nAQ\n{a}"), &[("A", &[1, 2])]);
        // Neither a wrong end nor broken content hides the next block.
        check(&format!("-----BEGIN A-----\nAQI=\n-----END C-----\n{b}"), &[("B", &[3])]);
        check(&format!("-----BEGIN A-----\nAQ!=\n-----END A-----\n{b}"), &[("B", &[3])]);
        check("-----BEGIN A-----\nAQI\n-----END A-----", &[]);
        check("-----BEGIN A-----\nAQJ=\n-----END A-----", &[("A", &[1, 2])]);
        check("-----BEGIN A-----\nAQI=", &[]);
        check("", &[]);
    }
}
