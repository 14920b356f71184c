//! Why reconciles ran: the newest runs of each key, for people who ask. In: a record of each run. Out: those that are
//! kept. Bounded: so many runs a key, so many keys; the key that was kept first is forgotten first.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};
use konverge_core::ObjectKey;
use parking_lot::Mutex;

use crate::trigger::Cause;
use crate::worker::Verdict;

/// Enough to see a pattern; a key's history then takes a few kilobytes.
const RUNS: usize = 8;
/// Enough for what a person looks at; more would be a log.
const KEYS: usize = 1024;

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
    /// The slot whose key was kept first; the next new key takes it, once all are taken.
    oldest: usize,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    key: ObjectKey,
    runs: VecDeque<Record>,
}

impl History {
    /// Keeps a run. Every reconcile comes by here, so nothing is allocated once the history is full.
    pub(crate) fn record(&self, key: &ObjectKey, record: Record) {
        let hash = self.hasher.hash_one(key);
        let mut kept = self.kept.lock();
        let slot = kept.find(hash, key).unwrap_or_else(|| kept.place(hash, key));
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

    /// A slot for a key that has none.
    fn place(&mut self, hash: u64, key: &ObjectKey) -> usize {
        let slot = if self.slots.len() < KEYS {
            self.slots.push(Slot { hash, key: key.clone(), runs: VecDeque::new() });
            self.slots.len() - 1
        } else {
            let slot = self.oldest;
            self.oldest = (slot + 1) % KEYS;
            if let Ok(former) = self.index.find_entry(self.slots[slot].hash, |other| *other == slot) {
                former.remove();
            }
            let taken = &mut self.slots[slot];
            (taken.hash, taken.key) = (hash, key.clone());
            taken.runs.clear();
            slot
        };
        let slots = &self.slots;
        self.index.insert_unique(hash, slot, |slot| slots[*slot].hash);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_no_more() {
        let history = History::default();
        let key = |at: usize| ObjectKey::new(None, &format!("k{at}"));
        let record = |ms| Record { causes: Arc::default(), took: Duration::from_millis(ms), verdict: Verdict::Success };
        for run in 0..20 {
            history.record(&key(0), record(run));
        }
        let kept: Vec<u128> = history.of(&key(0)).iter().map(|record| record.took.as_millis()).collect();
        assert_eq!(kept, [12, 13, 14, 15, 16, 17, 18, 19]);
        for other in 1..=KEYS {
            history.record(&key(other), record(0));
        }
        assert!(history.of(&key(0)).is_empty());
        assert_eq!(history.of(&key(KEYS)).len(), 1);
        assert_eq!(history.of(&key(1)).len(), 1);
        // Whoever comes back begins anew, in the place of the next.
        history.record(&key(0), record(20));
        assert_eq!((history.of(&key(0)).len(), history.of(&key(1)).len(), history.of(&key(2)).len()), (1, 0, 1));
    }
}
