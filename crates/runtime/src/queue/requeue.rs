//! What the queue does with a key after its reconcile, and what became of the key. In: the decision of the retry policy.
//! Out: plain values.

use std::time::{Duration, Instant};

/// What the queue does with a key after its reconcile. Whatever is asked for, a key that was woken meanwhile runs once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing until something wakes the key. Its failures are forgotten: client-go's `Forget`.
    Forget,
    /// Run again after this long, or earlier when something wakes the key. Its failures are forgotten: client-go's
    /// `AddAfter`.
    After(Duration),
    /// It failed: run again after the next delay of the [`Backoff`](crate::Backoff), or rest if the retries are used up:
    /// client-go's `AddRateLimited`.
    RateLimited,
    /// Others were in the way: the server was away, another writer was faster. Run again after the next delay of the
    /// backoff, but at most [`Requeue::MAX_AFTER_OUTAGE_OR_CONFLICT`] after this run began. The key is not given up for it,
    /// however often it happens, and its retries are left as they were.
    AfterOutageOrConflict,
    /// The server turned it away (HTTP 429 or 503 with `Retry-After`): run again after this long and not before that, not
    /// even for a change. This is no failure of the key: its count stays as it was. Shorter than the backoff's `initial`
    /// counts as that, so that a server which asks for no delay does not get a hot loop.
    NotBefore(Duration),
    /// It failed in a way that trying again does not cure: rest until something wakes the key.
    GiveUp,
}

impl Requeue {
    /// The longest a key waits because others were in its way. It is short because a server that was away comes back for
    /// all keys at once. It counts from the beginning of a run, or a server that hangs would be waited for twice.
    pub const MAX_AFTER_OUTAGE_OR_CONFLICT: Duration = Duration::from_secs(30);
}

/// What became of a key that was handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Nothing is left to do for it.
    Idle,
    /// It was woken meanwhile and is ready.
    Ready,
    /// It waits.
    Waits {
        /// For this instant, unless something wakes it earlier.
        until: Instant,
        /// With this many runs in a row behind it that did not end well, those included in which others were in the way.
        failures: u32,
    },
    /// It rests until something wakes it: its retries are used up, or it was given up.
    GaveUp {
        /// After this many failures in a row.
        failures: u32,
    },
}
