//! A controller that reconciles a part of the objects: those of the shards that this instance holds. In: shards that come and go. Out:
//! wakeups of all objects of a shard that came, and none for a shard that went.
//!
//! Shards come by themselves: each is worked on as soon as its objects are in the caches, whatever others wait for.
//!
//! Nothing is lost while a shard moves. A wakeup of an object whose shard is not held, or whose objects are not in the caches yet, is
//! dropped; so if the shard is taken later, that is after the change was put into the cache, and the shard's objects are woken from there.

use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use konverge_leadership::Term;

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
        // At most one for each shard that is held, because it ends with its term.
        let mut coming = FuturesUnordered::new();
        loop {
            changes.borrow_and_update();
            let terms: Vec<Option<Arc<Term>>> =
                (0..shards.count()).map(|shard| shards.leadership(shard).term()).collect();
            let numbers: Vec<Option<u64>> = terms.iter().map(|term| term.as_ref().map(|term| term.number)).collect();
            let moved = Moved::between(&known, &numbers);
            known = numbers;
            self.forget(objects, &moved).await;
            let came = terms.into_iter().enumerate().filter(|(shard, _)| moved.came[*shard]);
            came.filter_map(|(shard, term)| Some((shard, term?))).for_each(|(shard, term)| {
                coming.push(self.read(objects, shard, term));
            });
            // A shard that is read is worked on although others come and go meanwhile.
            loop {
                tokio::select! {
                    // The sender is in `objects`, so it is never gone.
                    _ = changes.changed() => break,
                    Some(first) = coming.next() => {
                        // Those that are read at the same time are woken together, as that looks at all objects.
                        let more = std::iter::from_fn(|| coming.next().now_or_never().flatten());
                        let read: Vec<(usize, u64)> = std::iter::once(first).chain(more).flatten().collect();
                        self.begin_work(objects, &read).await;
                    }
                }
            }
        }
    }

    /// Waits until everything of a shard is in the caches that can be read: the objects, and their children. A cache that was opened
    /// later and is not filled is waited for by whoever reads it, and so is one that cannot be read. None if the term is over.
    async fn read(&self, objects: &ShardedObjects, shard: usize, term: Arc<Term>) -> Option<(usize, u64)> {
        let over = objects.shards.leadership(shard).ended(&term);
        let read = async {
            for cache in self.primaries().iter().filter(|cache| cache.is_synced()) {
                cache.has_shard(shard, term.number).await;
            }
            let others: Vec<Cache> = self.watched.lock().iter().map(|(cache, _)| cache.clone()).collect();
            for cache in others.iter().filter(|cache| cache.is_synced()) {
                cache.has_shard_if_readable(shard, term.number).await;
            }
        };
        tokio::select! {
            // What is read in a term that is over counts no more, also if both are so at the same time.
            biased;
            () = over => None,
            () = read => Some((shard, term.number)),
        }
    }

    /// Begins the work on shards that are read, each in its term.
    async fn begin_work(&self, objects: &ShardedObjects, read: &[(usize, u64)]) {
        // Work begins before the wakeups, so that none of them is dropped.
        read.iter().for_each(|(shard, term)| objects.read.set(*shard, *term));
        let mut is_read = vec![false; objects.shards.count()];
        read.iter().for_each(|(shard, _)| is_read[*shard] = true);
        if is_read.contains(&true) {
            self.wake_those(|object| is_read[objects.shards.of(object.uid())]).await;
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
