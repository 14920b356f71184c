//! A controller that reconciles a part of the objects: those of the shards that this instance holds. In: shards that come and go. Out:
//! wakeups of all objects of a shard that came, and none for a shard that went.
//!
//! Nothing is lost while a shard moves. A wakeup of an object whose shard is not held, or whose objects are not in the caches yet, is
//! dropped; so if the shard is taken later, that is after the change was put into the cache, and the shard's objects are woken from there.

use std::sync::Arc;

use super::{Controller, Ended};
use crate::cache::Cache;
use crate::ownership::{Ownership, ShardedObjects};
use crate::reconciler::Reconciler;

/// The shards whose term began or ended since the last look.
struct Moved {
    came: Vec<bool>,
    went: Vec<bool>,
}

impl Controller {
    /// Reconciles the objects of the shards that are held, until `stop` resolves.
    pub(super) async fn reconcile_shards(
        &self,
        objects: &ShardedObjects,
        reconciler: &Arc<dyn Reconciler>,
        stop: impl Future<Output = ()> + Send,
    ) {
        tracing::info!(controller = &*self.name, "the caches are filled; reconciling begins with the first shard");
        objects.shards.caches_filled();
        let ownership = Ownership::Shards(objects.clone());
        let follow = self.follow_shards(objects);
        // Each reconcile ends with the term of its shard, so there is no term that all of them end with.
        let (Ended::TermOver | Ended::Stopped) = self.reconcile_in(ownership, reconciler, follow, stop).await;
    }

    /// Wakes the objects of shards that come, and forgets those of shards that go; never ends.
    async fn follow_shards(&self, objects: &ShardedObjects) {
        let shards = &objects.shards;
        let mut changes = shards.changes();
        let mut known = vec![None; shards.count()];
        loop {
            changes.borrow_and_update();
            let terms = (0..shards.count()).map(|shard| shards.leadership(shard).term().map(|term| term.number));
            let terms: Vec<Option<u64>> = terms.collect();
            let moved = Moved::between(&known, &terms);
            known = terms;
            self.forget(objects, &moved).await;
            if moved.came.contains(&true) {
                self.completed().await;
                // Work begins before the wakeups, so that none of them is dropped.
                let came = |shard: &usize| moved.came[*shard];
                (0..shards.count()).filter(came).for_each(|shard| objects.read.set(shard, known[shard]));
                self.wake_those(|object| moved.came[shards.of(object.uid())]).await;
            }
            // The sender is in `objects`, so it is never gone.
            let _ = changes.changed().await;
        }
    }

    /// Waits until everything of the shards that are held is in the caches: the objects and their children. A cache that was opened later
    /// and is not filled is waited for by whoever reads it.
    async fn completed(&self) {
        let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
        for cache in self.primaries().iter().chain(&others).filter(|cache| cache.is_synced()) {
            cache.complete().await;
        }
    }

    /// Forgets the keys of shards that went: another instance reconciles them.
    async fn forget(&self, objects: &ShardedObjects, moved: &Moved) {
        if !moved.went.contains(&true) {
            return;
        }
        let mut forgotten = 0;
        for object in self.primaries().iter().flat_map(Cache::with_stubs) {
            if moved.went[objects.shards.of(object.uid())] {
                forgotten += usize::from(self.queue.forget(&object.key()));
            }
            // There may be many objects, and other tasks want to run.
            tokio::task::consume_budget().await;
        }
        tracing::debug!(controller = &*self.name, forgotten, "forgot objects of shards that another instance holds");
    }
}

impl Moved {
    /// A term with another number is another stay of the shard here: whoever had it meanwhile may have left any object half done.
    fn between(before: &[Option<u64>], after: &[Option<u64>]) -> Self {
        let pairs = || before.iter().zip(after);
        Self {
            came: pairs().map(|(before, after)| after.is_some() && before != after).collect(),
            went: pairs().map(|(before, after)| before.is_some() && after.is_none()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_comes_with_each_of_its_terms() {
        let check = |before: [Option<u64>; 1], after: [Option<u64>; 1], came: bool, went: bool| {
            let moved = Moved::between(&before, &after);
            assert_eq!((moved.came[0], moved.went[0]), (came, went), "{before:?} {after:?}");
        };
        check([None], [None], false, false);
        check([None], [Some(3)], true, false);
        check([Some(3)], [Some(3)], false, false);
        check([Some(3)], [Some(5)], true, false);
        check([Some(5)], [None], false, true);
    }
}
