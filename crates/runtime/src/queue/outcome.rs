//! How a reconcile ended, and what the queue made of it. In: the worker's verdict. Out: what happens to the key next.

use std::time::{Duration, Instant};

/// How a reconcile ended. Whatever it says, a key that was woken meanwhile runs once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is as wanted; the failures are forgotten.
    Done,
    /// All is as wanted; run again after this long, or earlier when something wakes the key. The failures are forgotten.
    Again(Duration),
    /// It failed; run again after the next delay of the [`Backoff`](crate::Backoff), or rest if the retries are used up.
    Failed,
    /// Others were in the way: the server was away, another writer was faster. Run again after the next delay of the
    /// backoff, but at most [`Outcome::HINDERED`] after this run began. However often, the key is not given up for it, and its retries are
    /// left as they were.
    Hindered,
    /// It was turned away (HTTP 429 or 503 with `Retry-After`): run again after this long and nothing before that, not
    /// even for a change. This is no failure of the key: its count stays as it was. Shorter than the backoff's
    /// `initial` counts as that, so that a server which asks for no delay does not get a hot loop.
    Hold(Duration),
    /// It failed in a way that trying again does not cure: rest until something wakes the key.
    GaveUp,
}

impl Outcome {
    /// The longest a key waits because others were in its way; short, because a server that was away comes back for all
    /// keys at once. It counts from the beginning of a run, or a server that hangs would be waited for twice.
    pub const HINDERED: Duration = Duration::from_secs(30);
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
