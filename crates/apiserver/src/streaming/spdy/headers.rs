//! The headers of SPDY streams: a zlib stream over all frames of a connection, which begins with a dictionary that both sides
//! know. In: compressed headers. Out: names and values, within limits. What a server sends is not compressed, which zlib allows:
//! clients want a reply and read nothing in it. Pure.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::streaming::ProtocolError;

/// The farthest that compressed data refers back.
const WINDOW: usize = 32 << 10;

/// The most that the headers of one frame may have; those of Kubernetes clients have 100 bytes.
const MAX_BYTES: usize = 64 << 10;
const MAX_HEADERS: u32 = 100;

/// The method and window size of a zlib stream without a dictionary.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// In the second byte of a zlib stream: it begins with a dictionary.
const HAS_DICTIONARY: u8 = 0x20;
/// The Adler-32 checksum of the dictionary.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;

/// The dictionary begins with these words, each behind its length,
const DICTIONARY_WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent \
    vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin";
/// and goes on with this text.
const DICTIONARY_TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
    Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec \
    00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, \
    GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,\
    publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let words = DICTIONARY_WORDS.split_whitespace().map(|word| word.replace('_', " "));
    let mut dictionary: Vec<u8> =
        words.flat_map(|word| [&(word.len() as u32).to_be_bytes()[..], word.as_bytes()].concat()).collect();
    dictionary.extend_from_slice(DICTIONARY_TEXT.as_bytes());
    dictionary
}

/// Reads the headers of a client, frame by frame.
pub(super) struct Decompressor {
    /// The first bytes of the stream, until they are whole: two, and the id of the dictionary if there is one.
    preamble: Option<Vec<u8>>,
    inflate: Box<DecompressorOxide>,
    /// The newest bytes that came out, in a ring.
    window: Vec<u8>,
    at: usize,
}

impl Default for Decompressor {
    fn default() -> Self {
        Self { preamble: Some(Vec::new()), inflate: Box::default(), window: vec![0; WINDOW], at: 0 }
    }
}

impl Decompressor {
    /// The headers in one frame; their names in lower case.
    pub(super) fn headers(&mut self, mut block: &[u8]) -> Result<Vec<(String, String)>, ProtocolError> {
        self.begin(&mut block)?;
        let text = self.inflate(block)?;
        parse(&text).ok_or(ProtocolError("headers that are none"))
    }

    /// Takes the beginning of the stream.
    fn begin(&mut self, block: &mut &[u8]) -> Result<(), ProtocolError> {
        while let Some(preamble) = &mut self.preamble {
            let Some((byte, rest)) = block.split_first() else { return Ok(()) };
            preamble.push(*byte);
            *block = rest;
            match preamble.as_slice() {
                [_] => {}
                [method, flags, ..]
                    if method & 0xf != 8 || !u16::from_be_bytes([*method, *flags]).is_multiple_of(31) =>
                {
                    return Err(ProtocolError("headers that are not compressed by zlib"));
                }
                [_, flags] if flags & HAS_DICTIONARY == 0 => self.preamble = None,
                [_, _, id @ ..] if id.len() < 4 => {}
                [_, _, id @ ..] => {
                    if id != DICTIONARY_ID.to_be_bytes() {
                        return Err(ProtocolError("headers with an unknown dictionary"));
                    }
                    let dictionary = dictionary();
                    self.window[..dictionary.len()].copy_from_slice(&dictionary);
                    (self.at, self.preamble) = (dictionary.len(), None);
                }
                [] => {}
            }
        }
        Ok(())
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let mut text = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.inflate, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            block = &block[read..];
            text.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            if text.len() > MAX_BYTES {
                return Err(ProtocolError("headers that are too long"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput => return Ok(text),
                _ => return Err(ProtocolError("headers that are not compressed")),
            }
        }
    }
}

/// Names and values: their number, and each behind its length.
fn parse(mut text: &[u8]) -> Option<Vec<(String, String)>> {
    let count = number(&mut text).filter(|count| *count <= MAX_HEADERS)?;
    (0..count).map(|_| Some((word(&mut text)?.to_ascii_lowercase(), word(&mut text)?))).collect()
}

fn number(text: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = text.split_first_chunk::<4>()?;
    *text = rest;
    Some(u32::from_be_bytes(*bytes))
}

fn word(text: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(number(text)?).ok()?;
    let (word, rest) = text.split_at_checked(length)?;
    *text = rest;
    Some(String::from_utf8_lossy(word).into_owned())
}

/// Writes headers, of which there are none.
#[derive(Default)]
pub(super) struct Compressor {
    begun: bool,
}

impl Compressor {
    /// A block that says that there are no headers: a part that is stored as it is, and an empty one, at which readers hand out
    /// what they have.
    pub(super) fn no_headers(&mut self) -> Vec<u8> {
        let mut block = if std::mem::replace(&mut self.begun, true) { Vec::new() } else { ZLIB_HEADER.to_vec() };
        block.extend([0, 4, 0, !4, !0, 0, 0, 0, 0]);
        block.extend([0, 0, 0, !0, !0]);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let dictionary = dictionary();
        let (mut a, mut b) = (1u32, 0u32);
        for byte in &dictionary {
            a = (a + u32::from(*byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!((dictionary.len(), b << 16 | a), (1423, DICTIONARY_ID));
    }

    /// What Go's framer writes for the first streams of an exec: each refers back to those before it.
    #[test]
    fn headers_of_a_go_client() {
        let mut decompressor = Decompressor::default();
        for (block, expect) in [
            (&b"\x78\xf9\xe3\xc6\xa7\xc2\x62\x60\x60\x60\x04\xa7\xb3\x92\xa2\xd4\xc4\x5c\x68\x51\xc2\x9a\x0a\x0a\x68\0\0\0\0\xff\xff"[..], "error"),
            (b"\xc2\x2e\x55\x5c\x92\x92\x99\x07\0\0\0\xff\xff", "stdin"),
            (b"\xc2\x2a\xc5\x56\x5c\x92\x92\x5f\x5a\x02\0\0\0\xff\xff", "stdout"),
        ] {
            assert_eq!(decompressor.headers(block), Ok(vec![("streamtype".to_owned(), expect.to_owned())]));
        }
    }

    #[test]
    fn bad_headers_are_refused() {
        let bomb = {
            let mut block = ZLIB_HEADER.to_vec();
            let compressed = miniz_oxide::deflate::compress_to_vec(&vec![0; 4 << 20], 9);
            block.extend(compressed);
            block
        };
        let stored = |text: &[u8]| {
            let length = (text.len() as u16).to_le_bytes();
            [&ZLIB_HEADER[..], &[0], &length, &length.map(|byte| !byte), text].concat()
        };
        for (block, expect) in [
            (vec![0x1f, 0x8b, 0, 0], "headers that are not compressed by zlib"),
            (vec![0x78, 0xbb, 1, 2, 3, 4], "headers with an unknown dictionary"),
            (vec![0x78, 0x01, 0xff, 0xff], "headers that are not compressed"),
            (bomb, "headers that are too long"),
            (stored(&[0, 0, 0]), "headers that are none"),
            (stored(&[0, 0, 0, 1, 0, 0, 0, 9]), "headers that are none"),
            (stored(&[0xff; 64]), "headers that are none"),
        ] {
            let got = Decompressor::default().headers(&block);
            assert_eq!(got, Err(ProtocolError(expect)), "{:?}", &block[..block.len().min(16)]);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
        for _ in 0..3 {
            assert_eq!(decompressor.headers(&compressor.no_headers()), Ok(vec![]));
        }
    }
}
