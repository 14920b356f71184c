//! What one subscriber has yet to be told. In: changes from the watch, which never waits. Out: the same changes in order
//! of the first of each object. While a subscriber is slow, changes to one object become one, so that there is never more
//! than one entry for each object, and one for each time it was deleted. Nothing is ever dropped.

use std::collections::{HashMap, VecDeque};

use konverge_core::ObjectKey;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::change::{Change, Origin};

/// How many changes are taken out at a time: enough to be worth the lock.
const BATCH: usize = 64;

#[derive(Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<ObjectKey>,
    changes: HashMap<ObjectKey, Pending>,
}

/// Deletions of former objects of that name, and the latest of the one that is there.
#[derive(Default)]
struct Pending {
    deleted: Vec<Change>,
    latest: Option<Change>,
}

impl Mailbox {
    /// Adds changes. The subscriber is woken.
    pub fn push(&self, changes: impl Iterator<Item = Change>) {
        let mut waiting = self.waiting.lock();
        for change in changes {
            waiting.push(change);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// The next changes, at least one.
    pub async fn next(&self) -> Vec<Change> {
        loop {
            let taken = self.waiting.lock().take();
            if !taken.is_empty() {
                return taken;
            }
            self.filled.notified().await;
        }
    }

    /// How many objects' changes wait.
    pub fn len(&self) -> usize {
        self.waiting.lock().order.len()
    }
}

impl Waiting {
    fn push(&mut self, change: Change) {
        let key = change.key();
        let pending = self.changes.entry(key.clone()).or_insert_with(|| {
            self.order.push_back(key);
            Pending::default()
        });
        pending.merge(change);
    }

    fn take(&mut self) -> Vec<Change> {
        let mut taken = Vec::with_capacity(self.order.len().min(BATCH));
        while taken.len() < BATCH
            && let Some(key) = self.order.pop_front()
        {
            let pending = self.changes.remove(&key).unwrap_or_default();
            taken.extend(pending.deleted);
            taken.extend(pending.latest);
        }
        if self.order.is_empty() {
            // After a first list there is room for every object; it is not needed again soon.
            self.order.shrink_to(BATCH);
            self.changes.shrink_to(BATCH);
        }
        taken
    }
}

impl Pending {
    fn merge(&mut self, change: Change) {
        if change.is_delete() {
            self.latest = None;
            self.deleted.push(change);
            return;
        }
        let Some(latest) = self.latest.take() else {
            self.latest = Some(change);
            return;
        };
        let after = change.object().clone();
        // The freshest origin counts: who is told of a change of now must not take it for an old one.
        let origin = match (latest.origin(), change.origin()) {
            (Origin::Initial, _) if latest.before().is_none() && change.origin() != Origin::Watch => Origin::Initial,
            (_, origin) => origin,
        };
        self.latest = Some(match latest.before() {
            Some(before) => Change::updated(before.clone(), after, origin),
            None => Change::created(after, origin),
        });
    }
}
