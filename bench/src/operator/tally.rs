//! What the reconciles of a subject come to. In: the spec of each object that was reconciled. Out: how many there were, a
//! digest that two rounds over the same objects have to share, and how late each change was seen. The same for every
//! subject, and cheap beside what is measured.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use hashbrown::DefaultHashBuilder;
use tokio::sync::Notify;

use crate::latency::Latencies;

/// One reconcile in a sum: sixteen million digests of sixteen bits fit below it, and as many reconciles above.
const ONE: u64 = 1 << 40;

/// Reconciles so far.
#[derive(Default)]
pub struct Tally {
    hasher: DefaultHashBuilder,
    /// How many, and below [`ONE`] the sum of their digests: threads have to meet at one place only.
    sum: Apart<AtomicU64>,
    goal: AtomicUsize,
    reached: Notify,
    seen: Mutex<Seen>,
}

/// On a cache line of its own: threads that count must not hinder those that only read what lies beside it.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// Changes that were seen.
#[derive(Default)]
struct Seen {
    stamps: HashSet<u64>,
    latencies: Latencies,
}

impl Tally {
    /// A reconcile read this.
    pub fn took(&self, spec: &str) {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(spec.as_bytes());
        let before = self.sum.0.fetch_add(ONE + (hasher.finish() & 0xffff), Relaxed);
        let count = (before / ONE) as usize + 1;
        if count == self.goal.load(Relaxed) {
            self.reached.notify_one();
        }
    }

    /// A reconcile saw a change that was due at this time; each counts once. Objects that never changed have no time.
    pub fn saw(&self, stamp: u64) {
        if stamp == 0 {
            return;
        }
        let late = now().saturating_sub(stamp);
        let mut seen = self.seen.lock().expect("nobody panics while they count");
        if seen.stamps.insert(stamp) {
            seen.latencies.record(Duration::from_nanos(late));
        }
    }

    /// Waits for so many reconciles in all.
    pub async fn reach(&self, goal: usize) {
        self.goal.store(goal, Relaxed);
        while self.count() < goal {
            // The goal may have been reached before it was set; then nobody tells.
            let _ = tokio::time::timeout(Duration::from_millis(20), self.reached.notified()).await;
        }
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        (self.sum.0.load(Relaxed) / ONE) as usize
    }

    /// The sum of the digests of what they read.
    pub fn digest(&self) -> u64 {
        self.sum.0.load(Relaxed) % ONE
    }

    /// How many changes were seen.
    pub fn changes(&self) -> usize {
        self.seen.lock().expect("nobody panics while they count").latencies.len()
    }

    /// How late each was seen.
    pub fn latencies(&self) -> Latencies {
        self.seen.lock().expect("nobody panics while they count").latencies.clone()
    }
}

/// Nanoseconds that mean the same in all processes of this machine.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
