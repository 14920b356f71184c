//! The frame boundaries of HTTP/2, read along as bytes go by in either direction. Bytes come in; out come how many frames
//! ended, how many of them asked for nothing, and whether one is half-sent. It never looks into a frame and never stops one: hyper
//! parses them, but tells nobody how long one took to arrive.

/// What every HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const WINDOW_UPDATE: u8 = 0x8;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// Where in the stream of bytes the last one left off.
#[derive(Debug)]
pub(crate) enum Frames {
    /// So many bytes of the preface have matched.
    Preface(usize),
    /// Not HTTP/2; never looked at again.
    Other,
    /// Behind the preface.
    Http2 {
        /// The nine bytes before each frame, as far as they are here.
        head: [u8; 9],
        filled: usize,
        /// What is still to come of the frame's payload.
        payload: usize,
        /// Between HEADERS and the frame that ends its header block.
        in_headers: bool,
    },
}

/// What a run of bytes held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Frames that ended, where a header block counts once, at its end.
    pub ended: u32,
    /// Frames among them that ask for nothing and carry nothing.
    pub idle_talk: u32,
    /// Frames among them with data.
    pub data: u32,
    /// Bytes of data, also of frames that have not ended.
    pub data_bytes: u64,
    /// Frames among them that say that data was taken.
    pub window_updates: u32,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Frames::Preface(0)
    }

    /// For the side that sends no preface.
    pub(crate) fn behind_preface() -> Self {
        Frames::Http2 { head: [0; 9], filled: 0, payload: 0, in_headers: false }
    }

    /// Whether the preface has been seen.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Frames::Http2 { .. })
    }

    /// Whether a frame or a header block has begun and not ended.
    pub(crate) fn unfinished(&self) -> bool {
        matches!(self, Frames::Http2 { filled, payload, in_headers, .. } if *filled > 0 || *payload > 0 || *in_headers)
    }

    /// Reads along.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Seen {
        let mut seen = Seen::default();
        if let Frames::Preface(matched) = self {
            let take = bytes.len().min(PREFACE.len() - *matched);
            if bytes[..take] != PREFACE[*matched..*matched + take] {
                *self = Frames::Other;
                return seen;
            }
            *matched += take;
            if *matched < PREFACE.len() {
                return seen;
            }
            bytes = &bytes[take..];
            *self = Self::behind_preface();
        }
        let Frames::Http2 { head, filled, payload, in_headers } = self else { return seen };
        while !bytes.is_empty() {
            if *filled < head.len() {
                let take = bytes.len().min(head.len() - *filled);
                head[*filled..*filled + take].copy_from_slice(&bytes[..take]);
                *filled += take;
                bytes = &bytes[take..];
                if *filled < head.len() {
                    break;
                }
                *payload = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            }
            let take = bytes.len().min(*payload);
            *payload -= take;
            if head[3] == DATA {
                seen.data_bytes += take as u64;
            }
            bytes = &bytes[take..];
            if *payload == 0 {
                *filled = 0;
                let empty = head[..3] == [0; 3];
                match (head[3], head[4]) {
                    (HEADERS | CONTINUATION, flags) => {
                        *in_headers = flags & END_HEADERS == 0;
                        seen.ended += u32::from(!*in_headers);
                    }
                    (DATA, flags) => {
                        seen.ended += 1;
                        seen.idle_talk += u32::from(empty && flags & END_STREAM == 0);
                        seen.data += u32::from(!empty);
                    }
                    // A fast download needs tens of thousands of these a second, but no more than its data explains.
                    (WINDOW_UPDATE, _) => {
                        seen.ended += 1;
                        seen.window_updates += 1;
                    }
                    _ => {
                        seen.ended += 1;
                        seen.idle_talk += 1;
                    }
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize, ty: u8, flags: u8) -> Vec<u8> {
        let mut bytes = vec![(len >> 16) as u8, (len >> 8) as u8, len as u8, ty, flags, 0, 0, 0, 1];
        bytes.resize(9 + len, b'x');
        bytes
    }

    /// Fed whole and byte by byte, the same must come out.
    fn check(what: &str, parts: &[Vec<u8>], ended: u32, idle_talk: u32, unfinished: bool) {
        let bytes = [PREFACE.to_vec(), parts.concat()].concat();
        for step in [bytes.len(), 1, 7] {
            let mut frames = Frames::new();
            let mut total = Seen::default();
            for piece in bytes.chunks(step) {
                let seen = frames.feed(piece);
                total.ended += seen.ended;
                total.idle_talk += seen.idle_talk;
                total.data += seen.data;
                total.data_bytes += seen.data_bytes;
                total.window_updates += seen.window_updates;
            }
            assert_eq!((total.ended, total.idle_talk), (ended, idle_talk), "{what}, {step} bytes at a time");
            let whole =
                |part: &&Vec<u8>| part.len() > 9 && part.len() - 9 == usize::from(part[1]) << 8 | usize::from(part[2]);
            let count = |ty: u8| parts.iter().filter(whole).filter(|part| part[3] == ty).count() as u32;
            assert_eq!((total.data, total.window_updates), (count(DATA), count(WINDOW_UPDATE)), "{what}, {step}");
            let data = parts.iter().filter(|part| part.len() > 9 && part[3] == DATA).map(|part| part.len() as u64 - 9);
            assert_eq!(total.data_bytes, data.sum::<u64>(), "{what}, {step}");
            assert_eq!(frames.unfinished(), unfinished, "{what}, {step} bytes at a time");
            assert!(frames.is_http2(), "{what}");
        }
    }

    #[test]
    fn frames_are_told_apart() {
        check("nothing", &[], 0, 0, false);
        check("settings", &[frame(0, 4, 0), frame(18, 4, 0)], 2, 2, false);
        check("a request", &[frame(40, HEADERS, END_HEADERS | END_STREAM)], 1, 0, false);
        check("a header block in three", &[frame(9, 1, 0), frame(9, 9, 0), frame(9, 9, END_HEADERS)], 1, 0, false);
        check("a header block that goes on", &[frame(9, 1, END_STREAM), frame(9, 9, 0)], 0, 0, true);
        check("data", &[frame(16_384, DATA, 0), frame(0, DATA, END_STREAM)], 2, 0, false);
        check("empty data", &[frame(0, DATA, 0), frame(0, DATA, 0)], 2, 2, false);
        check("half a frame", &[frame(4, 8, 0), frame(100, DATA, 0)[..50].to_vec()], 1, 0, true);
        check("half a frame's head", &[frame(8, 6, 0)[..4].to_vec()], 0, 0, true);
        check("pings, resets, window updates", &[frame(8, 6, 0), frame(4, 3, 0), frame(4, 8, 0)], 3, 2, false);
    }

    #[test]
    fn other_protocols_are_left_alone() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", b"\0\0\0\0", b"P", b"PRI * "]
        {
            let mut frames = Frames::new();
            assert_eq!(frames.feed(bytes), Seen::default());
            assert!(!frames.is_http2() && !frames.unfinished());
        }
    }
}
