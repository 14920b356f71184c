//! Counts the reconciles of a subject. In: the spec of each reconciled object. Out: the number of reconciles, a digest that is
//! the same for two rounds over the same objects, and the latency of each change. All implementations use it, and it costs
//! little compared to what is measured.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use hashbrown::DefaultHashBuilder;
use tokio::sync::Notify;

use crate::latency::Latencies;

/// The weight of a reconcile in the sum: below it, sixteen million digests of sixteen bits can be added without overflow, and
/// above it as many reconciles.
const ONE: u64 = 1 << 40;

/// Counts reconciles.
#[derive(Default)]
pub(super) struct ReconcileCounter {
    hasher: DefaultHashBuilder,
    /// The number of reconciles times [`ONE`], plus the sum of their digests: one atomic operation for both.
    sum: CacheAligned<AtomicU64>,
    goal: AtomicUsize,
    reached: Notify,
    seen: Mutex<Seen>,
}

/// A value on a cache line of its own, so that counting does not slow down readers of neighbouring fields.
#[derive(Default)]
#[repr(align(128))]
struct CacheAligned<T>(T);

/// Changes that were seen.
#[derive(Default)]
struct Seen {
    stamps: HashSet<u64>,
    latencies: Latencies,
}

impl ReconcileCounter {
    /// Counts a reconcile that read this spec.
    pub(super) fn reconciled(&self, spec: &str) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(spec.as_bytes());
        let before = self.sum.0.fetch_add(ONE + (hasher.finish() & 0xffff), Relaxed);
        let count = (before / ONE) as usize + 1;
        if count == self.goal.load(Relaxed) {
            self.reached.notify_one();
        }
    }

    /// Records the latency of a change that was due at this time. Each change counts once. Objects that never changed have
    /// the time zero.
    pub(super) fn change_seen(&self, stamp: u64) {
        if stamp == 0 {
            return;
        }
        let latency = now().saturating_sub(stamp);
        let mut seen = self.seen.lock().expect("no thread panics while it holds the lock");
        if seen.stamps.insert(stamp) {
            seen.latencies.record(Duration::from_nanos(latency));
        }
    }

    /// Waits until this number of reconciles is reached.
    pub(super) async fn reach(&self, goal: usize) {
        self.goal.store(goal, Relaxed);
        while self.count() < goal {
            // The goal may have been reached before it was set; then there is no notification.
            let _ = tokio::time::timeout(Duration::from_millis(20), self.reached.notified()).await;
        }
    }

    /// The number of reconciles.
    pub(super) fn count(&self) -> usize {
        (self.sum.0.load(Relaxed) / ONE) as usize
    }

    /// The sum of the digests of their specs.
    pub(super) fn digest(&self) -> u64 {
        self.sum.0.load(Relaxed) % ONE
    }

    /// The number of changes that were seen.
    pub(super) fn changes(&self) -> usize {
        self.seen.lock().expect("no thread panics while it holds the lock").latencies.len()
    }

    /// The latencies of all changes.
    pub(super) fn latencies(&self) -> Latencies {
        self.seen.lock().expect("no thread panics while it holds the lock").latencies.clone()
    }
}

/// The time in nanoseconds, comparable between processes of this machine.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
