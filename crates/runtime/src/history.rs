//! Why reconciles ran: the newest runs of each key, for people who ask. In: a record of each run. Out: those that are
//! kept. Bounded: so many runs a key, so many keys. The key that was kept first makes room for a new one, but not at once:
//! a flood of keys, as of a mass resync, would wash away what people look for, and leave only its own end.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};
use konverge_core::ObjectKey;
use parking_lot::Mutex;

use crate::trigger::Cause;
use crate::worker::Verdict;

/// Enough to see a pattern; a key's history then takes a few kilobytes.
const RUNS: usize = 8;
/// Enough for what a person looks at; more would be a log.
const KEYS: usize = 1024;
/// How long a key is kept at least. Runs of keys that find no room meanwhile are not kept.
const STAYS: Duration = Duration::from_secs(10);

/// One run of a reconcile.
#[derive(Clone, Debug)]
pub struct Record {
    /// Why it ran.
    pub causes: Arc<[Arc<Cause>]>,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub verdict: Verdict,
}

/// The newest runs of the newest keys.
#[derive(Debug, Default)]
pub struct History {
    hasher: DefaultHashBuilder,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Which slot a key has.
    index: HashTable<usize>,
    slots: Vec<Slot>,
    /// The slot whose key was kept first; a new key takes it, once all are taken.
    oldest: usize,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    key: ObjectKey,
    since: Instant,
    runs: VecDeque<Record>,
}

impl History {
    /// Keeps a run that ended now. Every reconcile comes by here, so nothing is allocated once the history is full.
    pub(crate) fn record(&self, key: &ObjectKey, record: Record, now: Instant) {
        let hash = self.hasher.hash_one(key);
        let mut kept = self.kept.lock();
        let Some(slot) = kept.find(hash, key).or_else(|| kept.place(hash, key, now)) else { return };
        let runs = &mut kept.slots[slot].runs;
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(record);
    }

    /// The newest runs of a key, oldest first.
    pub fn of(&self, key: &ObjectKey) -> Vec<Record> {
        let kept = self.kept.lock();
        let slot = kept.find(self.hasher.hash_one(key), key);
        slot.map(|slot| kept.slots[slot].runs.iter().cloned().collect()).unwrap_or_default()
    }
}

impl Kept {
    fn find(&self, hash: u64, key: &ObjectKey) -> Option<usize> {
        self.index.find(hash, |slot| self.slots[*slot].key == *key).copied()
    }

    /// A slot for a key that has none; none if all are taken, and the oldest only just.
    fn place(&mut self, hash: u64, key: &ObjectKey, now: Instant) -> Option<usize> {
        let slot = if self.slots.len() < KEYS {
            self.slots.push(Slot { hash, key: key.clone(), since: now, runs: VecDeque::new() });
            self.slots.len() - 1
        } else {
            let slot = self.oldest;
            let taken = &mut self.slots[slot];
            if now.saturating_duration_since(taken.since) < STAYS {
                return None;
            }
            self.oldest = (slot + 1) % KEYS;
            if let Ok(former) = self.index.find_entry(taken.hash, |other| *other == slot) {
                former.remove();
            }
            (taken.hash, taken.key, taken.since) = (hash, key.clone(), now);
            taken.runs.clear();
            slot
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| slots[*slot].hash);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: usize) -> ObjectKey {
        ObjectKey::new(None, &format!("k{at}"))
    }

    fn record(ms: u64) -> Record {
        Record { causes: Arc::default(), took: Duration::from_millis(ms), verdict: Verdict::Success }
    }

    fn kept(history: &History, at: usize) -> Vec<u128> {
        history.of(&key(at)).iter().map(|record| record.took.as_millis()).collect()
    }

    #[test]
    fn keeps_the_newest_and_no_more() {
        let (history, start) = (History::default(), Instant::now());
        for run in 0..20 {
            history.record(&key(0), record(run), start);
        }
        assert_eq!(kept(&history, 0), [12, 13, 14, 15, 16, 17, 18, 19]);
        for other in 1..=KEYS {
            history.record(&key(other), record(0), start + STAYS);
        }
        assert_eq!((kept(&history, 0), kept(&history, 1), kept(&history, KEYS)), (vec![], vec![0], vec![0]));
        // Whoever comes back begins anew, in the place of the next.
        history.record(&key(0), record(20), start + STAYS * 2);
        assert_eq!((kept(&history, 0), kept(&history, 1), kept(&history, 2)), (vec![20], vec![], vec![0]));
    }

    #[test]
    fn a_flood_does_not_wash_away_what_was_kept() {
        let (history, start) = (History::default(), Instant::now());
        for at in 0..KEYS {
            history.record(&key(at), record(0), start);
        }
        let soon = start + STAYS - Duration::from_millis(1);
        for at in 0..2 * KEYS {
            history.record(&key(at), record(1), soon);
        }
        assert_eq!((kept(&history, 0), kept(&history, KEYS - 1)), (vec![0, 1], vec![0, 1]));
        assert_eq!((kept(&history, KEYS), kept(&history, 2 * KEYS - 1)), (vec![], vec![]));
    }
}
