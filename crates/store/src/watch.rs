//! One reader's way through the changes: a cursor over the shared history and a wakeup. Comes from
//! [`crate::Store::watch`]; hands out batches; holds no queue, so a watch that nobody reads costs nothing.

use std::sync::Arc;

use crate::{Change, ReadError, Revision, hub::Subscription, ledger::Ledger};

/// Every change of the keys under a prefix after a revision: each once, in order, or [`ReadError::Compacted`].
///
/// It outlives the store it came from, but then nothing new arrives.
pub struct Watch {
    ledger: Arc<Ledger>,
    subscription: Subscription,
    /// Every matching change up to here was handed out.
    cursor: Revision,
}

/// History rows looked at under one hold of the lock: some hundred microseconds at worst, so that a watcher far behind
/// on a quiet prefix does not keep a commit waiting.
const SLICE: usize = 4096;

impl Watch {
    pub(crate) fn new(ledger: Arc<Ledger>, subscription: Subscription, after: Revision) -> Self {
        Watch { ledger, subscription, cursor: after }
    }

    /// The next changes, waiting if there are none yet. At least one and at most `max`, but a commit is never split:
    /// if one alone has more matching changes, it comes whole.
    ///
    /// Cancel-safe: a call that is dropped took nothing. [`ReadError::Compacted`] means that changes were forgotten
    /// before this reader took them; it comes again with every further call.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Change>, ReadError> {
        loop {
            self.subscription.resolve_in_doubt();
            let changes = self.take(max)?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            self.subscription.woken().await;
        }
    }

    /// The changes that are there already, perhaps none. Otherwise like [`Watch::next`].
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
            // What was compacted since did not match, or it would have been lost.
            let from = self.cursor.max(index.compacted());
            let (changes, seen) = index.changes(self.subscription.prefix(), from, max.max(1), SLICE);
            self.cursor = seen;
            if !changes.is_empty() || seen == index.newest() {
                return Ok(changes);
            }
        }
    }

    /// Every matching change up to here was handed out: what a bookmark may promise. It moves on with the store also
    /// when nothing matches, and stands still while matching changes wait to be taken.
    pub fn position(&self) -> Revision {
        let index = self.ledger.read();
        if self.subscription.topic().newest() <= self.cursor { index.newest() } else { self.cursor }
    }
}
