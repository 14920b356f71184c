//! Why reconciles ran: the newest runs of each key, for people who ask. In: a record of each run. Out: those that are
//! kept. Bounded: so many runs a key, so many keys; the key that ran longest ago is forgotten first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

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
    pub causes: Vec<Arc<Cause>>,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub verdict: Verdict,
}

/// The newest runs of the newest keys.
#[derive(Debug, Default)]
pub struct History(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    runs: HashMap<ObjectKey, VecDeque<Record>>,
    /// Keys by when they were first kept, oldest first.
    order: VecDeque<ObjectKey>,
}

impl History {
    /// Keeps a run.
    pub(crate) fn record(&self, key: &ObjectKey, record: Record) {
        let mut kept = self.0.lock();
        if !kept.runs.contains_key(key) {
            if kept.order.len() == KEYS
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.runs.remove(&oldest);
            }
            kept.order.push_back(key.clone());
        }
        let runs = kept.runs.entry(key.clone()).or_default();
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(record);
    }

    /// The newest runs of a key, oldest first.
    pub fn of(&self, key: &ObjectKey) -> Vec<Record> {
        self.0.lock().runs.get(key).map(|runs| runs.iter().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_no_more() {
        let history = History::default();
        let key = |at: usize| ObjectKey::new(None, &format!("k{at}"));
        let record = |ms| Record { causes: Vec::new(), took: Duration::from_millis(ms), verdict: Verdict::Success };
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
    }
}
