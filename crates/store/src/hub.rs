//! Who is to be woken. Each distinct prefix that is being watched is a topic; a commit wakes the topics it touches and
//! no others. A topic also remembers two revisions, so that a watcher of a quiet prefix neither scans the history for
//! nothing nor is told that it lost something when it did not. It never holds a change.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Revision, index::Row};

/// One prefix that is being watched, by one watcher or many.
///
/// Its revisions are written while the index is locked for writing and read while it is locked for reading: that lock
/// orders them, so relaxed atomics do.
pub(crate) struct Topic {
    prefix: Arc<str>,
    /// No change after this one touched the prefix.
    newest: AtomicU64,
    /// The newest change of the prefix that compaction took.
    lost: AtomicU64,
    /// Changed only under the hub's lock: whoever takes it to zero removes the topic before anyone else can join.
    watchers: AtomicUsize,
    wake: watch::Sender<()>,
}

impl Topic {
    pub fn newest(&self) -> Revision {
        Revision(self.newest.load(Relaxed))
    }

    pub fn lost(&self) -> Revision {
        Revision(self.lost.load(Relaxed))
    }

    pub fn wake(&self) {
        self.wake.send_replace(());
    }
}

type Topics = HashMap<Arc<str>, Arc<Topic>>;

#[derive(Default)]
pub(crate) struct Hub {
    topics: Arc<Mutex<Topics>>,
}

impl Hub {
    /// Call with the index locked, so that no commit falls between reading `newest` and the topic being there.
    pub fn subscribe(&self, prefix: &str, newest: Revision) -> Subscription {
        let mut topics = self.topics.lock();
        let topic = match topics.get(prefix) {
            Some(topic) => topic.clone(),
            None => {
                let prefix: Arc<str> = prefix.into();
                let topic = Arc::new(Topic {
                    prefix: prefix.clone(),
                    newest: AtomicU64::new(newest.0),
                    lost: AtomicU64::new(0),
                    watchers: AtomicUsize::new(0),
                    wake: watch::Sender::new(()),
                });
                topics.insert(prefix, topic.clone());
                topic
            }
        };
        topic.watchers.fetch_add(1, Relaxed);
        Subscription { woken: topic.wake.subscribe(), topic, topics: Arc::downgrade(&self.topics) }
    }

    /// Notes that these rows are about to be visible. Gives the topics to wake once they are.
    pub fn committed(&self, rows: &[Row]) -> Vec<Arc<Topic>> {
        let topics = self.topics.lock();
        let mut touched = Vec::new();
        for topic in topics.values() {
            if let Some(row) = rows.iter().rev().find(|row| row.key.starts_with(&*topic.prefix)) {
                topic.newest.store(row.revision().0, Relaxed);
                touched.push(topic.clone());
            }
        }
        touched
    }

    /// Notes that these rows left the history.
    pub fn compacted(&self, rows: &[Row]) {
        for topic in self.topics.lock().values() {
            if let Some(row) = rows.iter().rev().find(|row| row.key.starts_with(&*topic.prefix)) {
                topic.lost.fetch_max(row.revision().0, Relaxed);
            }
        }
    }

    #[cfg(test)]
    pub fn topics(&self) -> usize {
        self.topics.lock().len()
    }
}

/// A watcher's place in a topic. The last one to leave takes the topic along.
pub(crate) struct Subscription {
    topic: Arc<Topic>,
    woken: watch::Receiver<()>,
    topics: Weak<Mutex<Topics>>,
}

impl Subscription {
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    pub fn prefix(&self) -> &str {
        &self.topic.prefix
    }

    /// Forget wakeups so far. Call before looking: a commit after the look then wakes, and none is missed.
    pub fn settle(&mut self) {
        self.woken.borrow_and_update();
    }

    /// Wait for a wakeup since [`Subscription::settle`].
    pub async fn woken(&mut self) {
        self.woken.changed().await.expect("the topic that holds the sender is held by this subscription");
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(topics) = self.topics.upgrade() else { return };
        let mut topics = topics.lock();
        if self.topic.watchers.fetch_sub(1, Relaxed) == 1 {
            topics.remove(&self.topic.prefix);
        }
    }
}
