//! What the listener has seen, as plain numbers for a metrics page. Nothing is decided from them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counted since the listener was bound. All but `open` only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections open now.
    pub open: AtomicUsize,
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Times the listener was full and a new connection had to wait for another to end.
    pub full: AtomicU64,
    /// Connections without a request that were closed because the listener was full and a new connection waited.
    pub evicted: AtomicU64,
    /// Times the system refused to hand over a connection, most often for want of file descriptors.
    pub accept_failed: AtomicU64,
    /// Connections closed because the TLS handshake failed or took too long.
    pub handshake_failed: AtomicU64,
    /// Connections closed because a request's head, or an HTTP/2 frame, did not arrive in time.
    pub header_timeout: AtomicU64,
    /// Request bodies that stopped arriving.
    pub body_timeout: AtomicU64,
    /// Connections and HTTP/2 streams closed because the peer took nothing of what waited for it.
    pub write_stalled: AtomicU64,
    /// Connections closed because they sent only HTTP/2 frames that ask for nothing.
    pub flooded: AtomicU64,
    /// Requests handed to the service.
    pub requests: AtomicU64,
    /// Panics of the service; each ended one request (HTTP/2) or one connection (HTTP/1.1).
    pub panics: AtomicU64,
}

impl Counters {
    /// Connections that were turned away or cut for their behaviour.
    pub fn rejected(&self) -> u64 {
        [&self.handshake_failed, &self.header_timeout, &self.body_timeout, &self.write_stalled, &self.flooded]
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
