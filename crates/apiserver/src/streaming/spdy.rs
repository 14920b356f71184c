//! Streams of SPDY/3.1, as far as Kubernetes clients use it: they open streams, both sides send data on them, and nothing limits
//! its flow but the connection. In: bytes as they come. Out: events, and frames for the client. Pure.

mod headers;

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use super::{Event, PIECE, ProtocolError, Wire};
use headers::{Compressor, Decompressor};

/// A frame begins with eight bytes: its kind and its length.
const HEAD: usize = 8;
/// The first bit of a frame that is no data.
const CONTROL: u32 = 1 << 31;
const VERSION: u32 = 3;
/// The largest control frame that is read: the headers of a stream have a few hundred bytes.
const MAX_CONTROL: usize = 64 << 10;
/// How many streams a client may have open. A forwarded connection takes two.
const MAX_STREAMS: usize = 512;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// The flag of the last frame of a stream in its direction.
const FIN: u8 = 1;

const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;

/// The id of our pings: a server's are even.
const OUR_PING: u32 = 2;

/// Whether pings are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pings {
    Sent,
    /// The connection is within another one, which has its own.
    None,
}

/// One connection.
pub(crate) struct Spdy {
    /// The head of a frame and, if it is no data, its payload, as far as they are here.
    frame: Vec<u8>,
    /// The data frame that is being read: its stream, whether it is the last one, and what is still to come.
    data: Option<(u32, bool, usize)>,
    decompressor: Decompressor,
    compressor: Compressor,
    streams: BTreeMap<u32, Closed>,
    last_opened: u32,
    pings: Pings,
    output: VecDeque<Bytes>,
}

/// Which sides of a stream have sent all.
#[derive(Clone, Copy, Debug, Default)]
struct Closed {
    client: bool,
    server: bool,
}

impl Spdy {
    pub(crate) fn new(pings: Pings) -> Self {
        Self {
            frame: Vec::new(),
            data: None,
            decompressor: Decompressor::default(),
            compressor: Compressor::default(),
            streams: BTreeMap::new(),
            last_opened: 0,
            pings,
            output: VecDeque::new(),
        }
    }

    fn data(&mut self, bytes: &mut &[u8], events: &mut Vec<Event>) {
        let Some((stream, last, left)) = self.data.take() else { return };
        let (part, rest) = bytes.split_at(left.min(bytes.len()));
        *bytes = rest;
        let open = self.streams.get(&stream).is_some_and(|closed| !closed.client);
        if open && !part.is_empty() {
            events.push(Event::Data { stream, bytes: part.to_vec() });
        }
        if part.len() < left {
            self.data = Some((stream, last, left - part.len()));
        } else if open && last {
            self.client_closed(stream, events);
        }
    }

    fn client_closed(&mut self, stream: u32, events: &mut Vec<Event>) {
        if let Some(closed) = self.streams.get_mut(&stream) {
            closed.client = true;
            events.push(Event::Closed { stream });
            self.forget_if_closed(stream);
        }
    }

    fn forget_if_closed(&mut self, stream: u32) {
        if self.streams.get(&stream).is_some_and(|closed| closed.client && closed.server) {
            self.streams.remove(&stream);
        }
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8], events: &mut Vec<Event>) -> Result<(), ProtocolError> {
        let number = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or(ProtocolError("a frame that is too short"))
        };
        match kind {
            SYN_STREAM => {
                let stream = number(0)? & !CONTROL;
                let block = payload.get(10..).ok_or(ProtocolError("a frame that is too short"))?;
                let headers = self.decompressor.headers(block)?;
                if stream.is_multiple_of(2) || stream <= self.last_opened {
                    return Err(ProtocolError("an invalid stream id"));
                }
                self.last_opened = stream;
                if self.streams.len() >= MAX_STREAMS {
                    self.push(RST_STREAM, 0, &[stream, REFUSED_STREAM]);
                    return Ok(());
                }
                self.streams.insert(stream, Closed::default());
                events.push(Event::Opened { stream, headers });
                if flags & FIN != 0 {
                    self.client_closed(stream, events);
                }
            }
            RST_STREAM => {
                let stream = number(0)? & !CONTROL;
                number(4)?;
                if self.streams.remove(&stream).is_some() {
                    events.push(Event::Reset { stream });
                }
            }
            PING => {
                let id = number(0)?;
                // An answer to ours has our id.
                if !id.is_multiple_of(2) {
                    self.push(PING, 0, &[id]);
                }
            }
            HEADERS | SYN_REPLY => {
                // They share the state of the compression with all others, so they have to be read.
                let block = payload.get(4..).ok_or(ProtocolError("a frame that is too short"))?;
                self.decompressor.headers(block)?;
            }
            GOAWAY => events.push(Event::GoneAway),
            SETTINGS | WINDOW_UPDATE => {}
            _ => return Err(ProtocolError("an unknown frame")),
        }
        Ok(())
    }

    fn push(&mut self, kind: u16, flags: u8, numbers: &[u32]) {
        let payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        self.output.push_back(control_frame(kind, flags, &payload));
    }
}

fn control_frame(kind: u16, flags: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + payload.len());
    frame.put_u32(CONTROL | VERSION << 16 | u32::from(kind));
    frame.put_u32(u32::from(flags) << 24 | payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

fn data_frame(stream: u32, flags: u8, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEAD + payload.len());
    frame.put_u32(stream);
    frame.put_u32(u32::from(flags) << 24 | payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

impl Wire for Spdy {
    fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, ProtocolError> {
        let mut events = Vec::new();
        loop {
            if self.data.is_some() {
                self.data(&mut bytes, &mut events);
                if self.data.is_some() {
                    return Ok(events);
                }
            }
            let head = HEAD.saturating_sub(self.frame.len()).min(bytes.len());
            self.frame.extend_from_slice(&bytes[..head]);
            bytes = &bytes[head..];
            let Some((first, second)) = self.frame.split_first_chunk::<4>().and_then(|(first, rest)| {
                Some((u32::from_be_bytes(*first), u32::from_be_bytes(*rest.first_chunk::<4>()?)))
            }) else {
                return Ok(events);
            };
            let (flags, length) = ((second >> 24) as u8, (second & 0xff_ffff) as usize);
            if first & CONTROL == 0 {
                self.frame.clear();
                self.data = Some((first, flags & FIN != 0, length));
                continue;
            }
            if (first & !CONTROL) >> 16 != VERSION || length > MAX_CONTROL {
                return Err(ProtocolError("a frame of another protocol, or one that is too long"));
            }
            let payload = (HEAD + length - self.frame.len()).min(bytes.len());
            self.frame.extend_from_slice(&bytes[..payload]);
            bytes = &bytes[payload..];
            if self.frame.len() < HEAD + length {
                return Ok(events);
            }
            let frame = std::mem::take(&mut self.frame);
            self.control(first as u16, flags, &frame[HEAD..], &mut events)?;
        }
    }

    fn accept(&mut self, stream: u32) {
        let headers = self.compressor.no_headers();
        let payload = [&stream.to_be_bytes()[..], &headers].concat();
        self.output.push_back(control_frame(SYN_REPLY, 0, &payload));
    }

    fn send(&mut self, stream: u32, bytes: &[u8]) {
        if self.streams.get(&stream).is_some_and(|closed| !closed.server) {
            self.output.extend(bytes.chunks(PIECE).map(|piece| data_frame(stream, 0, piece)));
        }
    }

    fn close(&mut self, stream: u32) {
        if let Some(closed) = self.streams.get_mut(&stream).filter(|closed| !closed.server) {
            closed.server = true;
            self.output.push_back(data_frame(stream, FIN, &[]));
            self.forget_if_closed(stream);
        }
    }

    fn reset(&mut self, stream: u32) {
        if self.streams.remove(&stream).is_some() {
            self.push(RST_STREAM, 0, &[stream, CANCEL]);
        }
    }

    fn finish(&mut self) {
        self.push(GOAWAY, 0, &[self.last_opened, 0]);
    }

    fn can_ping(&self) -> bool {
        self.pings == Pings::Sent
    }

    fn ping(&mut self) {
        self.push(PING, 0, &[OUR_PING]);
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        self.output.pop_front()
    }
}

#[cfg(test)]
mod tests;
