//! The settings of a queue, and what it shows of itself. Plain values with defaults; nothing here acts.

use std::time::Duration;

use super::{Backoff, Priority};

/// The settings of a [`Queue`](crate::Queue).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueOptions {
    /// How failing keys wait.
    pub backoff: Backoff,
    /// How low priorities get their share.
    pub ageing: Ageing,
    /// The most reconciles over time, for all keys together; no limit without it.
    pub rate: Option<Rate>,
    /// The most keys the queue holds, the waiting, running and given-up ones included. One entry a key bounds it by the
    /// number of objects already, so there is none by default; it guards against a mapping that makes names up. When it
    /// is reached, the key that was given up longest ago is forgotten; if there is none, the wakeup is refused with
    /// [`Added::Full`](crate::Added::Full) and counted. Wakeups of keys that are in the queue are always taken.
    pub max_keys: Option<usize>,
}

/// At most one reconcile per `every` in the long run, and `burst` at once after a rest: a token bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// A token comes back after this long.
    pub every: Duration,
    /// How many tokens the bucket holds; 0 counts as 1.
    pub burst: u32,
}

/// How low priorities get their share: one take out of `every` goes to the key that has been ready longest, whatever
/// its priority, once it has been ready for `patience`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ageing {
    /// Until then, a higher priority always goes first.
    pub patience: Duration,
    /// From then on, a higher priority goes first all but one time out of this many; 1 is first in, first out for
    /// whatever has waited that long.
    pub every: u32,
}

impl Default for Ageing {
    /// One take out of eight for what has been ready for a second.
    fn default() -> Self {
        Self { patience: Duration::from_secs(1), every: 8 }
    }
}

/// What a queue shows of itself, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Keys that could run now, by priority, in the order of [`Priority::ALL`].
    pub ready: [usize; Priority::ALL.len()],
    /// Keys that wait for a time: a delay, a requeue, a backoff.
    pub waiting: usize,
    /// Keys that are handed out.
    pub running: usize,
    /// Keys that were given up until something wakes them.
    pub resting: usize,
    /// How long the longest of the running has been running.
    pub longest_running: Option<Duration>,
    /// How long the oldest ready key has had its place; a key takes a new one when its priority rises.
    pub oldest_ready: Option<Duration>,
    /// How often a key became ready so far: by a wakeup, or because its time had come. Wakeups that joined a key which was
    /// ready already are not counted, as in client-go.
    pub adds: u64,
    /// Failures that led to a retry so far.
    pub retries: u64,
    /// Wakeups refused so far because the queue was full.
    pub refused: u64,
}
