//! The newest changes of the replicated state, for whoever watches. In: changes, in the order of the log. Out: the change with a number,
//! or that it is not kept any more. All watches share what is kept, so a watch that nobody reads costs nothing, whatever is written.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::state::{Change, size};

/// Changes that are kept: enough for a burst while the task of a watch waits for its turn. A watch that is behind by more begins anew with
/// all keys.
const MOST_CHANGES: usize = 1024;
const MOST_BYTES: u64 = 4 << 20;

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Changes {
    kept: Arc<Mutex<Kept>>,
    /// The number of the next change.
    next: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Kept {
    /// The oldest first.
    changes: VecDeque<Arc<Change>>,
    bytes: u64,
}

/// What a watch that has come to a number finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing has changed since.
    Nothing,
    Change(Arc<Change>),
    /// Changes were missed.
    Missed,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self { kept: Arc::default(), next: Arc::new(watch::Sender::new(0)) }
    }

    /// Keeps a change if somebody watches.
    pub(crate) fn add(&self, change: Change) {
        let mut kept = self.kept.lock();
        if self.next.receiver_count() > 0 {
            kept.bytes += bytes_of(&change);
            kept.changes.push_back(Arc::new(change));
            while kept.changes.len() > MOST_CHANGES || kept.bytes > MOST_BYTES {
                let Some(oldest) = kept.changes.pop_front() else { break };
                kept.bytes -= bytes_of(&oldest);
            }
        } else {
            *kept = Kept::default();
        }
        self.next.send_modify(|next| *next += 1);
    }

    /// Everything may be different: whoever watches begins anew.
    pub(crate) fn forget(&self) {
        let mut kept = self.kept.lock();
        *kept = Kept::default();
        self.next.send_modify(|next| *next += 1);
    }

    /// The number of the next change, and when it changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    pub(crate) fn find(&self, number: u64) -> Found {
        let kept = self.kept.lock();
        let behind = self.next.borrow().saturating_sub(number);
        if behind == 0 {
            return Found::Nothing;
        }
        let at = (kept.changes.len() as u64).checked_sub(behind);
        at.and_then(|at| kept.changes.get(at as usize)).map_or(Found::Missed, |change| Found::Change(change.clone()))
    }
}

fn bytes_of(change: &Change) -> u64 {
    match change {
        Change::Put { key, value } => size(key, &value.value),
        Change::Deleted { key } => size(key, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Versioned;

    fn put(version: u64, bytes: usize) -> Change {
        Change::Put { key: "a".into(), value: Versioned { value: vec![7; bytes], version } }
    }

    /// After this many changes of this size, a watch from before all of them finds the first one, or that it has missed some; and never
    /// more is kept than the bound.
    #[test]
    fn what_is_kept_has_a_bound() {
        for (count, bytes, expect) in [
            (0, 1, Found::Nothing),
            (1, 1, Found::Change(Arc::new(put(0, 1)))),
            (MOST_CHANGES, 1, Found::Change(Arc::new(put(0, 1)))),
            (MOST_CHANGES + 1, 1, Found::Missed),
            (100, 1 << 19, Found::Missed),
            (1, MOST_BYTES as usize, Found::Missed),
        ] {
            let changes = Changes::new();
            let unread = changes.subscribe();
            (0..count).for_each(|version| changes.add(put(version as u64, bytes)));
            assert_eq!(changes.find(0), expect, "{count} of {bytes}");
            assert_eq!(*unread.borrow(), count as u64);
            let kept = changes.kept.lock();
            let sum: u64 = kept.changes.iter().map(|change| bytes_of(change)).sum();
            assert!(sum == kept.bytes && sum <= MOST_BYTES && kept.changes.len() <= MOST_CHANGES, "{sum} are kept");
        }
    }

    #[test]
    fn changes_are_found_in_order_until_everything_is_forgotten() {
        let changes = Changes::new();
        changes.add(put(0, 1));
        assert!(changes.kept.lock().changes.is_empty(), "nobody watches");
        let watch = changes.subscribe();
        let begin = *watch.borrow();
        for version in 1..4 {
            changes.add(put(version, 1));
        }
        for version in 1..4 {
            assert_eq!(changes.find(begin + version - 1), Found::Change(Arc::new(put(version, 1))));
        }
        assert_eq!(changes.find(begin + 3), Found::Nothing);
        changes.forget();
        assert_eq!(changes.find(begin + 3), Found::Missed);
        assert_eq!(changes.find(*watch.borrow()), Found::Nothing);
    }
}
