//! Every limit of the listener, each with its reason. Nothing here acts; `connection` and `deadlines` do.

use std::time::Duration;

/// How long the listener waits for a client and how much it keeps for it.
///
/// The defaults suit an API server whose longest answers are watches that may be silent for minutes.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at one time. When all are taken, those that never asked for anything are closed for new ones, then those
    /// that have been idle longest; if all are used, more wait in the kernel's queue until one ends. 10,000 idle HTTP/1.1 connections cost
    /// about 200 MB with TLS, which a server for that many clients has.
    pub connections: usize,
    /// From the accepted connection to the end of the TLS handshake. Go's server uses its header timeout here too.
    pub handshake: Duration,
    /// From the connection (or, on a kept connection, from the first byte of a request) to the end of the request's
    /// head. Ten seconds is long for any real network and short for a slow-loris.
    pub header: Duration,
    /// Bytes of a request's head. Real ones have 2 KB; tokens and client certificates in headers make 16 KB.
    /// HTTP/1.1 has the same bound for what waits in memory for a slow peer. Less than 8 KiB counts as 8 KiB.
    pub header_bytes: usize,
    /// Header fields of one request (HTTP/1.1; HTTP/2 is bounded by `header_bytes`).
    pub header_count: usize,
    /// How long a connection without requests is kept. Go's and hyper's client pools give up after 90 s, so the client
    /// is usually first, and a request does not meet a closing connection.
    pub idle: Duration,
    /// The longest pause within a request body.
    pub body_idle: Duration,
    /// The longest a request body may take in all, or a byte every nine seconds would hold a connection for days.
    /// Kubernetes gives a whole request 60 s.
    pub body_total: Duration,
    /// How long a peer may take none of the bytes that wait for it: then the connection is closed (HTTP/2: the stream
    /// reset if only the stream is stuck with more than the end of its answer). Long enough for a laptop that changes
    /// networks.
    pub write_stall: Duration,
    /// Bytes of answers that may wait in memory for the peer of one connection, on all its streams together; then its
    /// other answers wait, too. Enough for 60 streams that stall with one piece each.
    pub connection_unread: usize,
    /// The same for all connections together. Over half of it, those that stall longest are cut sooner than
    /// `write_stall` says, down to two seconds.
    pub unread: usize,
    /// Paths, with all below them, whose answers are small and wait for neither budget: whoever asks whether the server
    /// lives must hear that it does while others hold all there is.
    pub probes: &'static [&'static str],
    /// Bytes that may wait in memory for a slow peer on each HTTP/2 stream.
    pub stream_buffer: usize,
    /// Bytes the kernel may hold for a peer that does not read. Left alone Linux grows this to 4 MiB; 256 KiB still
    /// fills a gigabit link over 2 ms.
    pub socket_buffer: u32,
    /// HTTP/2 requests at one time on one connection: Go's default. What they pin together, `connection_unread` says.
    pub streams: u32,
    /// HTTP/2 streams that were reset before the server looked at them; more is the rapid-reset attack.
    pub pending_resets: usize,
    /// HTTP/2 frames that carry no request and no data (RST_STREAM, PING, SETTINGS, PRIORITY, empty DATA, unknown, and
    /// WINDOW_UPDATE beyond what the data it got can explain) in each window of `flood_window`. A client that cancels a
    /// thousand watches a second does not exist.
    pub flood_frames: u32,
    /// The window of `flood_frames`.
    pub flood_window: Duration,
    /// Bytes of one message of a WebSocket client, if the service reads them. kubectl sends 32 KiB at a time; other clients send
    /// what their program gives them at once, such as a file.
    pub message: usize,
    /// A PING of HTTP/2 or WebSocket, or a probe of TCP, after this silence, so that a peer that lost power is noticed while a watch has nothing to say.
    pub ping_after: Duration,
    /// How long the answer to that may take.
    pub ping_answer: Duration,
}

impl Limits {
    /// Whether this path is that of a probe, or below it.
    pub(crate) fn is_probe(&self, path: &str) -> bool {
        let mut rests = self.probes.iter().filter_map(|probe| path.strip_prefix(probe));
        rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            header_bytes: 64 << 10,
            header_count: 128,
            idle: Duration::from_secs(90),
            body_idle: Duration::from_secs(10),
            body_total: Duration::from_secs(60),
            write_stall: Duration::from_secs(30),
            connection_unread: 4 << 20,
            unread: 256 << 20,
            probes: &["/livez", "/readyz", "/healthz"],
            stream_buffer: 64 << 10,
            socket_buffer: 256 << 10,
            streams: 250,
            pending_resets: 20,
            flood_frames: 10_000,
            flood_window: Duration::from_secs(10),
            message: 4 << 20,
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_paths_are_probes() {
        for (path, expect) in [
            ("/livez", true),
            ("/readyz/ping", true),
            ("/healthz", true),
            ("/livezz", false),
            ("/", false),
            ("/api/v1/livez", false),
        ] {
            assert_eq!(Limits::default().is_probe(path), expect, "{path}");
        }
    }
}
