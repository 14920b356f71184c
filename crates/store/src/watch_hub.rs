//! Wakes watchers. Each distinct prefix that is watched is a topic; a commit wakes the topics that its keys belong to, and no
//! others. A topic also remembers two revisions, so that a watcher of a quiet prefix neither scans the history in vain nor
//! gets an error about compacted changes that did not concern it. A topic never holds a change.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
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
/// orders them, so relaxed atomics are enough.
pub(crate) struct Topic {
    prefix: Arc<str>,
    /// No change after this one touched the prefix.
    newest: AtomicU64,
    /// The newest change of the prefix that compaction removed.
    lost: AtomicU64,
    /// Changed only under the hub's lock: the last subscriber removes the topic before another one can join.
    watchers: AtomicUsize,
    wake: watch::Sender<()>,
}

impl Topic {
    pub(crate) fn newest(&self) -> Revision {
        Revision(self.newest.load(Relaxed))
    }

    pub(crate) fn lost(&self) -> Revision {
        Revision(self.lost.load(Relaxed))
    }

    pub(crate) fn watchers(&self) -> usize {
        self.watchers.load(Relaxed)
    }

    pub(crate) fn wake(&self) {
        self.wake.send_replace(());
    }
}

/// By prefix, so that a commit finds those of its keys without looking at all others.
type Topics = BTreeMap<Arc<str>, Arc<Topic>>;

/// The topics that a search for the topics of `key` visits, longest first, and whether `key` belongs to each.
///
/// All prefixes of a key sort before it. So the last topic up to the key either is one of them, or tells by what it has
/// in common with the key how long the next one can be at most.
fn search<'a>(topics: &'a Topics, key: &'a str) -> impl Iterator<Item = (&'a Arc<Topic>, bool)> {
    let mut end = Some(Included(key));
    std::iter::from_fn(move || {
        let (prefix, topic) = topics.range::<str, _>((Unbounded, end?)).next_back()?;
        let mut common = prefix.bytes().zip(key.bytes()).take_while(|(left, right)| left == right).count();
        let found = common == prefix.len();
        while !key.is_char_boundary(common) {
            common -= 1;
        }
        end = match found {
            true if common == 0 => None,
            true => Some(Excluded(&key[..common])),
            false => Some(Included(&key[..common])),
        };
        Some((topic, found))
    })
}

fn topics_of<'a>(topics: &'a Topics, key: &'a str) -> impl Iterator<Item = &'a Arc<Topic>> {
    search(topics, key).filter_map(|(topic, found)| found.then_some(topic))
}

#[derive(Default)]
pub(crate) struct WatchHub {
    topics: Arc<Mutex<Topics>>,
}

impl WatchHub {
    /// Call it with the index locked, so that no commit comes between reading `newest` and adding the topic.
    pub(crate) fn subscribe(&self, prefix: &str, newest: Revision) -> Subscription {
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

    /// Records that the rows of one commit are about to become visible. Returns the topics to wake after that.
    pub(crate) fn committed(&self, rows: &[Row]) -> Vec<Arc<Topic>> {
        let topics = self.topics.lock();
        let mut touched = Vec::new();
        for row in rows {
            let revision = row.revision().0;
            // All rows share the revision: a topic that has it already was found by an earlier one.
            let new = topics_of(&topics, &row.key).filter(|topic| topic.newest.swap(revision, Relaxed) != revision);
            touched.extend(new.cloned());
        }
        touched
    }

    /// Records that compaction removed these rows from the history.
    pub(crate) fn compacted(&self, rows: &[Row]) {
        let topics = self.topics.lock();
        for row in rows {
            for topic in topics_of(&topics, &row.key) {
                topic.lost.fetch_max(row.revision().0, Relaxed);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn topics(&self) -> usize {
        self.topics.lock().len()
    }
}

/// A watcher's subscription to a topic. Dropping the last subscription removes the topic.
pub(crate) struct Subscription {
    topic: Arc<Topic>,
    woken: watch::Receiver<()>,
    topics: Weak<Mutex<Topics>>,
}

impl Subscription {
    pub(crate) fn topic(&self) -> &Topic {
        &self.topic
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.topic.prefix
    }

    /// Discards the wakeups so far. Call it before reading the index: a commit after the read then wakes the watcher, so none is
    /// missed.
    pub(crate) fn mark_seen(&mut self) {
        self.woken.borrow_and_update();
    }

    /// Waits for a wakeup since [`Subscription::mark_seen`].
    pub(crate) async fn woken(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The prefixes that are found for a key, and how many topics were looked at.
    fn find(hub: &WatchHub, key: &str) -> (Vec<String>, usize) {
        let topics = hub.topics.lock();
        let looked = search(&topics, key).count();
        (topics_of(&topics, key).map(|topic| topic.prefix.to_string()).collect(), looked)
    }

    #[test]
    fn a_key_finds_all_its_prefixes() {
        let all = ["", "/", "/a", "/a/", "/a/a", "/a/b/", "/a/b/cc", "/b", "/a/b/ö", "/a/b/ü", "/a/b/üx", "z"];
        let hub = WatchHub::default();
        let _watchers: Vec<_> = all.iter().map(|prefix| hub.subscribe(prefix, Revision::ZERO)).collect();
        for key in
            ["", "/", "/a", "/a/b", "/a/b/", "/a/b/c", "/a/b/cc", "/a/b/ccc", "/a/b/ü", "/a/b/üxy", "/a/b/ä", "x", "zz"]
        {
            let mut expect: Vec<&str> = all.into_iter().filter(|prefix| key.starts_with(prefix)).collect();
            expect.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
            assert_eq!(find(&hub, key).0, expect, "{key}");
        }
    }

    #[test]
    fn a_commit_does_not_look_at_all_topics() {
        let hub = WatchHub::default();
        let kinds = (0..1000).flat_map(|kind| [format!("/{kind}/"), format!("/{kind}/default/")]);
        let names = (0..10_000).map(|name| format!("/7/default/n{name}"));
        let _watchers: Vec<_> = kinds.chain(names).map(|prefix| hub.subscribe(&prefix, Revision::ZERO)).collect();
        for (key, found) in [("/7/default/n77", 4), ("/7/default/x", 2), ("/999/other/x", 1), ("/none/x", 0)] {
            let (prefixes, looked) = find(&hub, key);
            assert_eq!(prefixes.len(), found, "{key}: {prefixes:?}");
            assert!(looked <= found + 8, "{key}: looked at {looked} topics for {found}");
        }
    }
}
