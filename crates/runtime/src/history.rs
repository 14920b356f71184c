//! Why reconciles ran: the newest runs of each key, for people who ask. In: a record of each run. Out: the records that are
//! kept. Bounded: a number of runs a key, and a number of keys. A new key takes the place of the key that was kept first, but
//! not before that key was kept for a while: otherwise a mass resync would replace everything that people look for. Every
//! worker records every reconcile here, so the keys are spread over parts with a lock each.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};
use konverge_core::ObjectKey;
use parking_lot::Mutex;

use crate::reconciler::Verdict;
use crate::trigger::Cause;

/// Enough to see a pattern; a key's history then takes a few kilobytes.
const RUNS: usize = 8;
/// Enough for what a person looks at, unless one says otherwise; more would be a log.
pub(crate) const KEYS: usize = 1024;
/// Enough that two workers seldom meet.
const PARTS: usize = 16;
/// How long a key is kept at least. Runs of keys that find no room meanwhile are not kept.
const STAYS: Duration = Duration::from_secs(10);

/// One run of a reconcile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReconcileRecord {
    /// Why it ran.
    pub causes: Arc<[Arc<Cause>]>,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub verdict: Verdict,
}

/// The newest runs of the newest keys.
#[derive(Debug)]
pub struct History {
    hasher: DefaultHashBuilder,
    parts: [Part; PARTS],
    /// How many keys a part has.
    share: usize,
}

/// A share of the keys, so far from the next one in memory that whoever locks it does not disturb that.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(Mutex<Kept>);

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
    runs: VecDeque<ReconcileRecord>,
}

impl History {
    /// Keeps the runs of about so many keys: as many in each part, and at least one.
    pub(crate) fn keeping(keys: usize) -> Self {
        Self { hasher: DefaultHashBuilder::default(), parts: Default::default(), share: keys.div_ceil(PARTS).max(1) }
    }

    /// Keeps a run that ended now. Every reconcile comes by here, so nothing is allocated once the history is full.
    pub(crate) fn record(&self, key: &ObjectKey, record: ReconcileRecord, now: Instant) {
        let hash = self.hasher.hash_one(key);
        let mut kept = self.part(hash).lock();
        let Some(slot) = kept.find(hash, key).or_else(|| kept.place(hash, key, self.share, now)) else { return };
        let runs = &mut kept.slots[slot].runs;
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(record);
    }

    /// The newest runs of a key, oldest first.
    pub fn of(&self, key: &ObjectKey) -> Vec<ReconcileRecord> {
        let hash = self.hasher.hash_one(key);
        let kept = self.part(hash).lock();
        let slot = kept.find(hash, key);
        slot.map(|slot| kept.slots[slot].runs.iter().cloned().collect()).unwrap_or_default()
    }

    fn part(&self, hash: u64) -> &Mutex<Kept> {
        // Bits from the middle: the table inside a part goes by those at both ends.
        &self.parts[(hash >> 32) as usize % PARTS].0
    }
}

impl Kept {
    fn find(&self, hash: u64, key: &ObjectKey) -> Option<usize> {
        self.index.find(hash, |slot| self.slots[*slot].key == *key).copied()
    }

    /// A slot for a key that has none; none if all are taken, and the oldest only just.
    fn place(&mut self, hash: u64, key: &ObjectKey, share: usize, now: Instant) -> Option<usize> {
        let slot = if self.slots.len() < share {
            self.slots.push(Slot { hash, key: key.clone(), since: now, runs: VecDeque::new() });
            self.slots.len() - 1
        } else {
            let slot = self.oldest;
            let taken = &mut self.slots[slot];
            if now.saturating_duration_since(taken.since) < STAYS {
                return None;
            }
            self.oldest = (slot + 1) % share;
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

    fn record(ms: u64) -> ReconcileRecord {
        ReconcileRecord { causes: Arc::default(), took: Duration::from_millis(ms), verdict: Verdict::Success }
    }

    fn kept(history: &History, at: usize) -> Vec<u128> {
        history.of(&key(at)).iter().map(|record| record.took.as_millis()).collect()
    }

    /// Of so many keys, those that have something kept, and how many runs there are of the first of them.
    fn survivors(history: &History, keys: impl IntoIterator<Item = usize>) -> (usize, Option<usize>) {
        let kept: Vec<usize> = keys.into_iter().map(|at| kept(history, at).len()).filter(|runs| *runs > 0).collect();
        (kept.len(), kept.first().copied())
    }

    #[test]
    fn keeps_the_newest_and_no_more() {
        let (history, start) = (History::keeping(KEYS), Instant::now());
        for run in 0..20 {
            history.record(&key(0), record(run), start);
        }
        assert_eq!(kept(&history, 0), [12, 13, 14, 15, 16, 17, 18, 19]);
        // Ten for each place: every part is filled, and the last ones have come to stay.
        for at in 1..=10 * KEYS {
            history.record(&key(at), record(0), start + STAYS * at as u32);
        }
        assert_eq!(survivors(&history, 0..=10 * KEYS), (KEYS, Some(1)));
        assert_eq!((kept(&history, 0), kept(&history, 10 * KEYS)), (vec![], vec![0]));
        // Whoever comes back begins anew, in the place of another.
        history.record(&key(0), record(20), start + STAYS * (20 * KEYS) as u32);
        assert_eq!(kept(&history, 0), [20]);
        assert_eq!(survivors(&history, 0..=10 * KEYS), (KEYS, Some(1)));
    }

    #[test]
    fn a_flood_does_not_wash_away_what_was_kept() {
        let (history, start) = (History::keeping(KEYS), Instant::now());
        for at in 0..10 * KEYS {
            history.record(&key(at), record(0), start);
        }
        let first: Vec<usize> = (0..10 * KEYS).filter(|at| !kept(&history, *at).is_empty()).collect();
        assert_eq!(first.len(), KEYS);
        let soon = start + STAYS - Duration::from_millis(1);
        for at in (0..20 * KEYS).rev() {
            history.record(&key(at), record(1), soon);
        }
        let still: Vec<usize> = (0..20 * KEYS).filter(|at| kept(&history, *at) == [0, 1]).collect();
        assert_eq!(still, first);
        assert_eq!(survivors(&history, 0..20 * KEYS).0, KEYS);
    }
}
