//! Changes inputs at random. In: an input, another one of the same target, and the words of the target. Out: the input with some
//! bytes flipped, cut, repeated, exchanged, or with pieces put in that parsers stumble over.

use crate::random::Random;

/// The longest input: long enough for a whole object, short enough for thousands of runs a second.
pub(crate) const LONGEST: usize = 64 * 1024;

/// What many parsers stumble over.
const TRAPS: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\xc0\xaf",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x92\xa9",
    b"\\u0000",
    b"\\ud800",
    b"-1",
    b"0",
    b"-0",
    b"1e400",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"0.1",
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"\n",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
];

/// Changes an input in a few places.
pub(crate) fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => input.truncate(at),
            3 => {
                input.drain(piece(random, at, input.len(), 40));
            }
            4 => {
                let repeated = input[piece(random, at, input.len(), 60)].to_vec();
                let to = random.below(input.len() + 1);
                let times = if random.below(20) == 0 { 50 } else { 1 };
                input.splice(to..to, repeated.repeat(times));
            }
            5 => {
                let from = random.below(other.len() + 1);
                let taken = other[piece(random, from, other.len(), 120)].to_vec();
                let end = piece(random, at, input.len(), 120).end;
                input.splice(at..end, taken);
            }
            6 => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                let Some(first) = input[at..].iter().position(digits).map(|found| at + found) else { continue };
                let end =
                    input[first..].iter().position(|byte| !digits(byte)).map_or(input.len(), |found| first + found);
                let number = random.next() >> random.below(64);
                input.splice(first..end, number.to_string().into_bytes());
            }
            7 | 8 if !words.is_empty() => {
                let word = random.pick(words).copied().unwrap_or_default();
                input.splice(at..at, word.bytes());
            }
            _ => {
                let trap = random.pick(&TRAPS).copied().unwrap_or_default();
                input.splice(at..at, trap.iter().copied());
            }
        }
    }
    input.truncate(LONGEST);
}

/// A piece of something so long, from `at` on, of at most so many bytes.
fn piece(random: &mut Random, at: usize, length: usize, most: usize) -> std::ops::Range<usize> {
    at..at + random.below((length - at).min(most) + 1)
}
