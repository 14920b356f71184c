//! What one subscriber has yet to be told. In: changes from the watch, which never waits. Out: the same changes in order
//! of the first of each object. While a subscriber is slow, changes to one object become one up to its deletion, so that
//! there is never more than one entry for each object, and two for each time it was deleted: whom it led to before, and
//! that it is gone. Nothing is ever dropped.

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

/// The changes of one name, each from where the one before it ended. No two that are no deletion follow each other. Most have
/// one, which takes no memory of its own: a first list has one for every object, and would leave the heap in crumbs.
#[derive(Default)]
struct Pending {
    earlier: Vec<Change>,
    latest: Option<Change>,
}

impl Mailbox {
    /// Adds changes. The subscriber is woken.
    pub(super) fn push(&self, changes: impl Iterator<Item = Change>) {
        let mut waiting = self.waiting.lock();
        for change in changes {
            waiting.push(change);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// The next changes, at least one.
    pub(super) async fn next(&self) -> Vec<Change> {
        loop {
            let taken = self.waiting.lock().take();
            if !taken.is_empty() {
                return taken;
            }
            self.filled.notified().await;
        }
    }

    /// How many objects' changes wait.
    pub(super) fn len(&self) -> usize {
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
            let Pending { earlier, latest } = self.changes.remove(&key).unwrap_or_default();
            taken.extend(earlier.into_iter().chain(latest));
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
        let Some(latest) = self.latest.take_if(|latest| !latest.is_delete() && !change.is_delete()) else {
            self.earlier.extend(self.latest.replace(change));
            return;
        };
        let after = change.object().clone();
        // The freshest origin counts: who is told of a change of now must not take it for an old one.
        let origin = match (latest.origin(), change.origin()) {
            (Origin::Initial, Origin::Initial | Origin::Relist) if latest.before().is_none() => Origin::Initial,
            (_, origin) => origin,
        };
        self.latest = Some(match latest.before() {
            Some(before) => Change::updated(before.clone(), after, origin),
            None => Change::created(after, origin),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ApiResource;

    use super::*;
    use crate::object::{Mode, Object};

    fn version(uid: u8, version: u8) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#);
        Arc::new(Object::parse(&ApiResource::erase::<ConfigMap>(&()), &json, Mode::Full).unwrap())
    }

    /// What a slow subscriber is told fits together: each change begins where the one before it ended.
    #[test]
    fn changes_become_one_up_to_a_deletion() {
        let at = |n: u8| version(n / 10, n);
        let created = |after| Change::created(at(after), Origin::Watch);
        let updated = |before, after| Change::updated(at(before), at(after), Origin::Watch);
        let deleted = |before| Change::deleted(at(before), Origin::Watch);
        for (pushed, expect) in [
            (vec![created(11), updated(11, 12), updated(12, 13)], "+13"),
            (vec![updated(11, 12), updated(12, 13)], "11>13"),
            (vec![created(11), updated(11, 12), deleted(12)], "+12 -12"),
            (vec![updated(11, 12), deleted(12)], "11>12 -12"),
            (vec![deleted(12), created(21), updated(21, 22), deleted(22), created(31)], "-12 +22 -22 +31"),
        ] {
            let mailbox = Mailbox::default();
            mailbox.push(pushed.into_iter());
            assert_eq!(mailbox.len(), 1);
            let taken = mailbox.waiting.lock().take();
            let version =
                |object: Option<&Arc<Object>>| object.map_or(String::new(), |o| o.resource_version().to_owned());
            let words = taken.iter().map(|change| match (change.before(), change.after()) {
                (None, after) => format!("+{}", version(after)),
                (before, None) => format!("-{}", version(before)),
                (before, after) => format!("{}>{}", version(before), version(after)),
            });
            assert_eq!(words.collect::<Vec<_>>().join(" "), expect);
        }
    }
}
