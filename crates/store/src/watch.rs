//! A watch: a cursor over the shared history, and a wakeup. [`crate::Store::watch`] makes it; it returns changes in batches. It
//! has no queue, so a watch that nobody reads costs nothing.

use std::sync::Arc;

use crate::{Change, ReadError, Revision, ledger::Ledger, watch_hub::Subscription};

/// Every change of the keys under a prefix after a revision: each once, in order, or [`ReadError::Compacted`].
///
/// A watch may outlive its store, but then no new changes arrive.
pub struct Watch {
    ledger: Arc<Ledger>,
    subscription: Subscription,
    /// Every matching change up to here was returned.
    cursor: Revision,
}

/// How many rows of the history are read under one hold of the lock: some hundred microseconds at worst, so that a watcher
/// that is far behind does not block a commit for long.
const SLICE: usize = 4096;

impl Watch {
    pub(crate) fn new(ledger: Arc<Ledger>, subscription: Subscription, after: Revision) -> Self {
        Watch { ledger, subscription, cursor: after }
    }

    /// The next changes, waiting if there are none yet. At least one and at most `max`, but a commit is never split:
    /// if one alone has more matching changes, it comes whole.
    ///
    /// Cancel-safe: a call that is dropped took nothing. [`ReadError::Compacted`] means that changes were compacted
    /// before this watch read them; every further call returns it again.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Change>, ReadError> {
        loop {
            self.subscription.mark_seen();
            let changes = self.take(max)?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            self.subscription.woken().await;
        }
    }

    /// How many watches there are of the same prefix, this one included.
    pub fn watchers(&self) -> usize {
        self.subscription.topic().watchers()
    }

    /// The changes that are available now, perhaps none. Otherwise like [`Watch::next`].
    pub fn take(&mut self, max: usize) -> Result<Vec<Change>, ReadError> {
        let topic = self.subscription.topic();
        loop {
            let index = self.ledger.read();
            if topic.newest() <= self.cursor {
                self.cursor = index.newest();
                return Ok(Vec::new());
            }
            if topic.lost() > self.cursor {
                return Err(ReadError::Compacted { asked: self.cursor, oldest: index.compacted() });
            }
            // Changes that were compacted since did not match, or `lost` would be newer.
            let from = self.cursor.max(index.compacted());
            let (changes, seen) = index.changes(self.subscription.prefix(), from, max.max(1), SLICE);
            self.cursor = seen;
            if !changes.is_empty() || seen == index.newest() {
                return Ok(changes);
            }
        }
    }

    /// Every matching change up to this revision was returned, so it can be sent as a bookmark. It advances with the store even
    /// if nothing matches, and stays while matching changes wait to be read.
    pub fn position(&self) -> Revision {
        let index = self.ledger.read();
        if self.subscription.topic().newest() <= self.cursor { index.newest() } else { self.cursor }
    }
}
