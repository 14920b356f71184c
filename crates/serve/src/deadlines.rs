//! The deadlines of a connection. In: what happens on the wire, with its time. Out: the next deadline and what it means. It
//! never reads a clock, sleeps or closes anything.
//!
//! ```text
//!   accepted ─▶ Opening ─request▶ Busy ─last answer▶ Idle ─first byte▶ Header ─request▶ Busy …
//!               header timeout    none               idle timeout      header timeout
//! ```
//!
//! Beside that, at any time: bytes that wait for the peer, a half-sent HTTP/2 frame, a flood of empty ones.

use std::time::Duration;

use tokio::time::Instant;

use crate::eviction::Unused;
use crate::http2_frames::Frames;
use crate::limits::Limits;

/// One connection's state, as far as time matters.
#[derive(Debug)]
pub(crate) struct Deadlines {
    limits: Limits,
    phase: Phase,
    accepted: Instant,
    requests: usize,
    /// Whether any request was answered.
    is_served: bool,
    frames: Frames,
    /// When the half-sent HTTP/2 frame or header block began.
    frame_since: Option<Instant>,
    /// Since when the peer takes none of the bytes that wait for it.
    blocked_since: Option<Instant>,
    /// The server needs the room of this connection.
    evicted: bool,
    /// When the peer closed its side.
    left_at: Option<Instant>,
    /// Since when it is known that the peer does not take the end of an HTTP/2 answer.
    stuck_since: Option<Instant>,
    window_since: Instant,
    window_frames: u32,
    /// What goes to the peer, on HTTP/2.
    sent: Frames,
    /// Bytes of data that the peer has not yet said it took, with `UPDATE_EACH` twice for each frame of them.
    unexplained: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Opening(Instant),
    Idle(Instant),
    Header(Instant),
    Busy,
    /// The server has announced that it closes the connection.
    Closing(Instant),
}

/// How long a peer may take to answer the announced close (HTTP/2 answers GOAWAY with a PING).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of data that explain one WINDOW_UPDATE. Some clients send two of them for each frame of data, one for its stream
/// and one for the connection. Go's client sends them for each 4 KiB that its user reads, and for each read when the
/// window is nearly used up; its JSON decoder reads at least 512 bytes.
const UPDATE_EACH: u64 = 512;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The connection was idle for too long: close it.
    Idle,
    /// A request's head or an HTTP/2 frame took too long.
    Header,
    /// The peer closed the connection while its request is being answered.
    PeerLeft,
    /// The peer does not read.
    WriteStall,
    /// Too many frames that ask for nothing.
    Flood,
}

impl Deadlines {
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        Deadlines {
            limits,
            phase: Phase::Opening(now),
            accepted: now,
            requests: 0,
            is_served: false,
            frames: Frames::new(),
            frame_since: None,
            blocked_since: None,
            evicted: false,
            left_at: None,
            stuck_since: None,
            window_since: now,
            window_frames: 0,
            sent: Frames::behind_preface(),
            unexplained: 0,
        }
    }

    /// The handshake is over: the time for the first request begins now.
    pub(crate) fn opened(&mut self, now: Instant) {
        self.phase = Phase::Opening(now);
    }

    /// The server announces that it closes the connection. A request that was already on its way is still answered.
    pub(crate) fn closing(&mut self, now: Instant) {
        match self.phase {
            Phase::Idle(_) => self.phase = Phase::Closing(now),
            Phase::Opening(_) if self.evicted => self.phase = Phase::Closing(now),
            _ => {}
        }
    }

    /// The peer sent this.
    pub(crate) fn read(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() {
            return;
        }
        let seen = self.frames.feed(bytes);
        if self.frames.is_http2() {
            // Without a request an HTTP/2 connection still has things to say, so that a byte begins no header.
            if let Phase::Opening(since) = self.phase {
                self.phase = Phase::Idle(since);
            }
            self.frame_since = match self.frames.unfinished() {
                false => None,
                true if seen.ended > 0 => Some(now),
                true => self.frame_since.or(Some(now)),
            };
            if now.duration_since(self.window_since) > self.limits.flood_window {
                self.window_since = now;
                self.window_frames = 0;
            }
            let explained = u64::from(seen.window_updates).min(self.unexplained / UPDATE_EACH);
            self.unexplained -= explained * UPDATE_EACH;
            let idle_talk = seen.idle_talk + (seen.window_updates - explained as u32);
            self.window_frames = self.window_frames.saturating_add(idle_talk);
        } else if let Phase::Idle(_) = self.phase {
            self.phase = Phase::Header(now);
        }
    }

    /// The peer was sent this.
    pub(crate) fn wrote(&mut self, bytes: &[u8]) {
        if self.frames.is_http2() {
            let seen = self.sent.feed(bytes);
            let credit = seen.data_bytes + u64::from(seen.data) * 2 * UPDATE_EACH;
            self.unexplained = self.unexplained.saturating_add(credit);
        }
    }

    /// Whether nobody uses the connection; none also if it is being closed already.
    pub(crate) fn unused(&self) -> Option<Unused> {
        match self.phase {
            _ if self.evicted => None,
            Phase::Opening(_) => Some(Unused::Newcomer(self.accepted)),
            Phase::Idle(_) if !self.is_served => Some(Unused::Newcomer(self.accepted)),
            Phase::Idle(since) if self.blocked_since.is_none() => Some(Unused::Idle(since)),
            Phase::Idle(_) | Phase::Header(_) | Phase::Busy | Phase::Closing(_) => None,
        }
    }

    /// The time of a connection that nobody uses is over. False if somebody does.
    pub(crate) fn evict(&mut self) -> bool {
        let unused = self.unused().is_some();
        self.evicted |= unused;
        unused
    }

    /// Whether the connection is to be closed in favour of another one.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted
    }

    /// A request's head is complete.
    pub(crate) fn request_began(&mut self) {
        self.requests += 1;
        self.evicted = false;
        self.phase = Phase::Busy;
    }

    /// A response is complete or given up.
    pub(crate) fn request_ended(&mut self, now: Instant) {
        self.requests -= 1;
        self.is_served = true;
        if self.requests == 0 {
            self.phase = Phase::Idle(now);
        }
    }

    /// Bytes wait and the peer takes none.
    pub(crate) fn write_blocked(&mut self, now: Instant) {
        self.blocked_since.get_or_insert(now);
    }

    /// The peer took some.
    pub(crate) fn write_moved(&mut self, now: Instant) {
        if self.blocked_since.take().is_some() {
            // Nobody reads while a write is stuck, so the half-sent frame may be waiting for us.
            self.frame_since = self.frame_since.map(|_| now);
        }
    }

    /// The peer closed its side of the connection.
    pub(crate) fn peer_left(&mut self, now: Instant) {
        self.left_at.get_or_insert(now);
    }

    /// The peer had its time for the end of an HTTP/2 answer and did not take it.
    pub(crate) fn answer_stuck(&mut self, now: Instant) {
        self.stuck_since.get_or_insert(now);
    }

    /// The earliest deadline and what it means; a peer may take nothing for `write_stall`.
    pub(crate) fn due(&self, write_stall: Duration) -> Option<(Instant, Verdict)> {
        if self.window_frames > self.limits.flood_frames {
            return Some((self.window_since, Verdict::Flood));
        }
        let phase = match self.phase {
            Phase::Opening(since) if self.evicted => Some((since, Verdict::Idle)),
            Phase::Opening(since) | Phase::Header(since) => Some((since + self.limits.header, Verdict::Header)),
            Phase::Idle(since) if self.evicted => Some((since, Verdict::Idle)),
            Phase::Idle(since) => Some((since + self.limits.idle, Verdict::Idle)),
            Phase::Closing(since) => Some((since + CLOSE_TIMEOUT, Verdict::Idle)),
            // HTTP/2 is read all the time, and finds the end of the connection behind what the peer sent before it.
            Phase::Busy if self.frames.is_http2() => None,
            Phase::Busy => self.left_at.map(|at| (at, Verdict::PeerLeft)),
        };
        let write = self.blocked_since.map(|since| (since + write_stall, Verdict::WriteStall));
        let stuck = self.stuck_since.map(|since| (since, Verdict::WriteStall));
        let frame = match self.blocked_since {
            None => self.frame_since.map(|since| (since + self.limits.header, Verdict::Header)),
            Some(_) => None,
        };
        [phase, write, stuck, frame].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something happens so many seconds after the connection was accepted.
    #[derive(Clone, Copy)]
    enum Step {
        Read(u64, &'static [u8]),
        Began,
        Ended(u64),
        Blocked(u64),
        Moved(u64),
        Closing(u64),
        Wrote(&'static [u8]),
        Stuck(u64),
        Left(u64),
        Evicted(bool),
    }
    use Step::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const HALF_HEADERS: &[u8] = &[0, 0, 9, 1, 0, 0, 0, 0, 1, b'x'];
    const REST_HEADERS: &[u8] = b"xxxxxxxx";
    const END_HEADERS: &[u8] = &[0, 0, 0, 9, 4, 0, 0, 0, 1];
    const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    const WINDOW_UPDATES: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    const DATA: &[u8] = &[0, 0, 1, 0, 0, 0, 0, 0, 1, b'x'];

    /// A frame of 16 KiB, as much as one may have.
    const LARGE_DATA: &[u8] = &{
        let mut frame = [0; 9 + (16 << 10)];
        frame[1] = 0x40;
        frame[8] = 1;
        frame
    };

    /// With the default limits: header 10 s, idle 90 s, write stall 30 s.
    fn check(what: &str, steps: &[Step], expect: Option<(u64, Verdict)>) {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::new(Limits { flood_frames: 3, ..Limits::default() }, start);
        for step in steps {
            match *step {
                Read(s, bytes) => deadlines.read(bytes, at(s)),
                Began => deadlines.request_began(),
                Ended(s) => deadlines.request_ended(at(s)),
                Blocked(s) => deadlines.write_blocked(at(s)),
                Moved(s) => deadlines.write_moved(at(s)),
                Closing(s) => deadlines.closing(at(s)),
                Wrote(bytes) => deadlines.wrote(bytes),
                Stuck(s) => deadlines.answer_stuck(at(s)),
                Left(s) => deadlines.peer_left(at(s)),
                Evicted(expect) => assert_eq!(deadlines.evict(), expect, "{what}"),
            }
        }
        assert_eq!(deadlines.due(Duration::from_secs(30)), expect.map(|(s, verdict)| (at(s), verdict)), "{what}");
    }

    #[test]
    fn http1() {
        check("silence", &[], Some((10, Verdict::Header)));
        check("a slow head gains nothing by each byte", &[Read(4, b"G"), Read(9, b"E")], Some((10, Verdict::Header)));
        check("a request runs as long as it likes", &[Read(1, b"GET"), Began], None);
        check("kept alive", &[Read(1, b"GET"), Began, Ended(5)], Some((95, Verdict::Idle)));
        let next = [Read(1, b"GET"), Began, Ended(5), Read(80, b"G")];
        check("the next head has its own ten seconds", &next, Some((90, Verdict::Header)));
        check("a stuck answer", &[Read(1, b"GET"), Began, Blocked(7), Blocked(9)], Some((37, Verdict::WriteStall)));
        check(
            "a slow answer",
            &[Read(1, b"GET"), Began, Blocked(7), Moved(36), Blocked(37)],
            Some((67, Verdict::WriteStall)),
        );
        check("an answer that moves again", &[Read(1, b"GET"), Began, Blocked(7), Moved(36)], None);
        check("who asked and left", &[Read(1, b"GET"), Began, Left(7), Left(9)], Some((7, Verdict::PeerLeft)));
        check("who left before the request was seen", &[Left(1), Began], Some((1, Verdict::PeerLeft)));
        check("who left after the answer", &[Began, Ended(5), Left(6)], Some((95, Verdict::Idle)));
        check("the answer's tail is stuck", &[Began, Blocked(7), Ended(8)], Some((37, Verdict::WriteStall)));
    }

    #[test]
    fn announced_closes() {
        check("after silence", &[Began, Ended(5), Closing(95)], Some((96, Verdict::Idle)));
        check("a request that crossed it", &[Began, Ended(5), Closing(95), Began], None);
        check("not while busy", &[Began, Closing(95)], None);
    }

    #[test]
    fn evictions() {
        check("of an idle connection", &[Began, Ended(5), Evicted(true)], Some((5, Verdict::Idle)));
        check("not twice", &[Began, Ended(5), Evicted(true), Evicted(false)], Some((5, Verdict::Idle)));
        check("of a new one", &[Evicted(true), Evicted(false)], Some((0, Verdict::Idle)));
        check("of one with half a head", &[Read(2, b"GET"), Evicted(true)], Some((0, Verdict::Idle)));
        check("of one with HTTP/2 and no request", &[Read(2, PREFACE), Evicted(true)], Some((0, Verdict::Idle)));
        check("announced to a new one", &[Evicted(true), Closing(3)], Some((4, Verdict::Idle)));
        check("announced to a new one that asks after all", &[Evicted(true), Closing(3), Began], None);
        check("not of one that is used", &[Began, Evicted(false)], None);
        check(
            "not while a request arrives",
            &[Began, Ended(5), Read(6, b"G"), Evicted(false)],
            Some((16, Verdict::Header)),
        );
        check(
            "not while an answer is sent",
            &[Began, Blocked(4), Ended(5), Evicted(false)],
            Some((34, Verdict::WriteStall)),
        );
        check(
            "a request that crossed it",
            &[Began, Ended(5), Evicted(true), Began, Ended(8)],
            Some((98, Verdict::Idle)),
        );
    }

    #[test]
    fn http2() {
        check("half a preface", &[Read(2, b"PRI * HT")], Some((10, Verdict::Header)));
        check("no request yet", &[Read(2, PREFACE)], Some((90, Verdict::Idle)));
        check("half a head", &[Read(2, PREFACE), Read(3, HALF_HEADERS)], Some((13, Verdict::Header)));
        let trickle = [Read(2, PREFACE), Read(3, HALF_HEADERS), Read(9, REST_HEADERS)];
        check("an unended block", &trickle, Some((13, Verdict::Header)));
        let whole = [Read(2, PREFACE), Read(3, HALF_HEADERS), Read(9, REST_HEADERS), Read(9, END_HEADERS), Began];
        check("a whole one", &whole, None);
        check("pings do not keep it", &[Read(2, PREFACE), Read(60, PING)], Some((90, Verdict::Idle)));
        check("two requests", &[Read(2, PREFACE), Began, Began, Ended(4)], None);
        check("the end is found by reading", &[Read(2, PREFACE), Began, Left(3)], None);
        check("both done", &[Read(2, PREFACE), Began, Began, Ended(4), Ended(6)], Some((96, Verdict::Idle)));
        let busy = [Read(2, PREFACE), Began, Read(3, HALF_HEADERS)];
        check("half a head beside a request", &busy, Some((13, Verdict::Header)));
        let stuck = [Read(2, PREFACE), Began, Read(3, HALF_HEADERS), Blocked(4)];
        check("who cannot write does not read", &stuck, Some((34, Verdict::WriteStall)));
        let moved = [Read(2, PREFACE), Began, Read(3, HALF_HEADERS), Blocked(4), Moved(30)];
        check("and gets his time back", &moved, Some((40, Verdict::Header)));
        let end = [Read(2, PREFACE), Began, Began, Stuck(40), Stuck(50)];
        check("the end of an answer beside a request", &end, Some((40, Verdict::WriteStall)));
        let flood = [Read(2, PREFACE), Read(3, PING), Read(3, PING), Read(3, PING), Read(3, PING)];
        check("a flood", &flood, Some((0, Verdict::Flood)));
        let updates = [Read(2, PREFACE), Read(3, WINDOW_UPDATES), Read(3, WINDOW_UPDATES)];
        check("window updates for nothing", &updates, Some((0, Verdict::Flood)));
        let reader =
            [Read(2, PREFACE), Began, Wrote(DATA), Wrote(DATA), Read(3, WINDOW_UPDATES), Read(3, WINDOW_UPDATES)];
        check("window updates for data", &reader, None);
        // Two for each 4 KiB of a frame, as Go's client sends them.
        let in_parts = [&[Read(2, PREFACE), Began, Wrote(LARGE_DATA)][..], &[Read(3, WINDOW_UPDATES); 4]].concat();
        check("window updates for parts of a frame", &in_parts, None);
        let too_many = [&[Read(2, PREFACE), Began, Wrote(LARGE_DATA)][..], &[Read(3, WINDOW_UPDATES); 19]].concat();
        check("more of them than its bytes", &too_many, Some((0, Verdict::Flood)));
        let slow = [Read(2, PREFACE), Read(3, PING), Read(4, PING), Read(15, PING), Read(16, PING)];
        check("as many in more time", &slow, Some((90, Verdict::Idle)));
    }
}
