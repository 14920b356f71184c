//! The body of an HTTP/1.1 response, parsed while it arrives. In: bytes from the socket. Out: the bytes of the body, and whether
//! it is complete. Buffers only a few bytes of framing.

use crate::invalid_run::InvalidRun;

/// How far a body has been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyReader {
    /// This number of bytes is still missing.
    Length(usize),
    /// In a chunked body: the line with the size of a chunk is being read.
    Size(Vec<u8>),
    /// In a chunked body: this number of bytes of a chunk is still missing.
    Chunk(usize),
    /// In a chunked body: this number of bytes of the line break behind a chunk is still missing.
    ChunkEnd(usize),
    /// In a chunked body: this number of bytes of the line break behind the last chunk is still missing.
    Trailer(usize),
    /// The body is complete.
    Done,
}

impl BodyReader {
    /// A body of this length.
    pub(crate) fn of_length(length: usize) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }

    /// A chunked body.
    pub(crate) fn chunked() -> Self {
        Self::Size(Vec::new())
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Appends the content in `input` to `out`. Returns how many bytes of `input` belong to the body: all, unless it ends before.
    pub(crate) fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, InvalidRun> {
        let all = input.len();
        let mut input = input;
        while !input.is_empty() {
            match self {
                Self::Done => break,
                Self::Length(left) => {
                    let taken = (*left).min(input.len());
                    out.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    *self = Self::of_length(*left - taken);
                }
                Self::Size(line) => {
                    let end = input.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
                    let taken = end.unwrap_or(input.len());
                    line.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    if end.is_some() {
                        *self = match size(line)? {
                            0 => Self::Trailer(2),
                            size => Self::Chunk(size),
                        };
                    } else if line.len() > 64 {
                        return Err(InvalidRun::new("a chunk without a size"));
                    }
                }
                Self::Chunk(left) => {
                    let taken = (*left).min(input.len());
                    out.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    *self = if taken == *left { Self::ChunkEnd(2) } else { Self::Chunk(*left - taken) };
                }
                Self::ChunkEnd(left) | Self::Trailer(left) => {
                    let taken = (*left).min(input.len());
                    input = &input[taken..];
                    *left -= taken;
                    *self = match self {
                        Self::ChunkEnd(0) => Self::chunked(),
                        Self::Trailer(0) => Self::Done,
                        _ => continue,
                    };
                }
            }
        }
        Ok(all - input.len())
    }
}

fn size(line: &[u8]) -> Result<usize, InvalidRun> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let digits = text.trim_end().split(';').next().unwrap_or_default();
    usize::from_str_radix(digits, 16).map_err(|_| InvalidRun::new(format!("{text:?} is not the size of a chunk")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut reader: impl FnMut() -> BodyReader, wire: &str, expect: Result<&str, ()>) {
        // The result does not depend on how the bytes are split.
        for step in 1..=wire.len() {
            let (mut reader, mut out) = (reader(), Vec::new());
            let read = wire.as_bytes().chunks(step).try_for_each(|piece| reader.feed(piece, &mut out).map(drop));
            let got = read.map_err(drop).and_then(|()| if reader.is_done() { Ok(&out[..]) } else { Err(()) });
            assert_eq!(got, expect.map(str::as_bytes), "{wire:?} by {step}");
        }
    }

    #[test]
    fn bodies_are_put_together() {
        check(|| BodyReader::of_length(5), "hello", Ok("hello"));
        check(|| BodyReader::of_length(5), "hell", Err(()));
        check(|| BodyReader::of_length(5), "hello!", Ok("hello"));
        check(BodyReader::chunked, "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", Ok("abc0123456789"));
        check(BodyReader::chunked, "0\r\n\r\n", Ok(""));
        check(BodyReader::chunked, "3\r\nabc\r\n", Err(()));
        check(BodyReader::chunked, "xyz\r\n", Err(()));
        assert!(BodyReader::of_length(0).is_done());
        assert_eq!(BodyReader::of_length(5).feed(b"hello!", &mut Vec::new()).unwrap(), 5);
    }
}
