//! The shared part of all backends: the index and the hub behind one lock. In: decided and durable commits. Out: reads and
//! watches. It never decides when a commit is durable, and never holds its lock for the time of a large list.

use std::{sync::Arc, time::Instant};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    Commit, CommitError, Entry, Page, Range, ReadError, Retention, Revision, Watch,
    index::{Batch, Decided, Forgotten, Index, RecordId, Version},
    watch_hub::WatchHub,
};

/// How many keys are read, or changes compacted, under one hold of the lock: some tenths of a millisecond.
const SLICE: usize = 1024;

pub(crate) struct Ledger {
    index: RwLock<Index>,
    hub: WatchHub,
    retention: Retention,
}

impl Ledger {
    pub(crate) fn new(index: Index, retention: Retention) -> Arc<Self> {
        Arc::new(Ledger { index: RwLock::new(index), hub: WatchHub::default(), retention })
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    pub(crate) fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.read().get(key, at)
    }

    pub(crate) fn range(&self, range: Range<'_>) -> Result<Page, ReadError> {
        let limit = range.limit.unwrap_or(usize::MAX);
        let (entries, revision, more) =
            self.collect(range, limit, |key, version| version.entry(key).expect("a walk shows what can be read"))?;
        Ok(Page { entries, revision, more })
    }

    pub(crate) fn count(&self, range: Range<'_>) -> Result<usize, ReadError> {
        let (units, _, _) = self.collect(range, usize::MAX, |_, _| ())?;
        Ok(units.len())
    }

    pub(crate) fn watch(self: &Arc<Self>, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
        let index = self.read();
        index.readable(Some(after))?;
        let subscription = self.hub.subscribe(prefix, index.newest());
        drop(index);
        Ok(Watch::new(self.clone(), subscription, after))
    }

    /// Decides and publishes in one step, for a backend that has nothing to wait for in between.
    pub(crate) fn commit(&self, commit: Commit, now: Instant) -> Result<Revision, CommitError> {
        let index = self.index.write();
        let decided = Batch::new(&index).decide(commit)?;
        let revision = decided.revision;
        self.apply(index, decided, now, |_, _| {});
        Ok(revision)
    }

    /// Makes a durable commit visible and wakes its watchers. Passes records that are now unreachable to `retire`.
    pub(crate) fn publish(&self, decided: Decided, now: Instant, retire: impl FnOnce(Vec<RecordId>, Revision)) {
        self.apply(self.index.write(), decided, now, retire);
    }

    /// Compacts the history before `before`. Passes records that are now unreachable to `retire`.
    pub(crate) fn compact(&self, before: Revision, retire: impl FnOnce(Vec<RecordId>, Revision)) {
        let mut index = self.index.write();
        let mut forgotten = index.compact(before);
        self.forget(&mut forgotten, index.compacted(), retire);
        // Memory is freed outside of the lock.
        drop(index);
    }

    /// Compacts the history that the retention does not keep, slice by slice. Passes records that are now
    /// unreachable to `retire`.
    pub(crate) fn trim(&self, now: Instant, mut retire: impl FnMut(Vec<RecordId>, Revision)) {
        loop {
            let mut index = self.index.write();
            let mut forgotten = index.trim(&self.retention, now, SLICE);
            self.forget(&mut forgotten, index.compacted(), &mut retire);
            drop(index);
            if forgotten.rows.is_empty() {
                return;
            }
        }
    }

    /// All entries at the newest revision, for a backup.
    pub(crate) fn snapshot(&self) -> Page {
        self.range(Range::default()).expect("the newest revision is always readable")
    }

    fn apply(
        &self,
        mut index: RwLockWriteGuard<'_, Index>,
        decided: Decided,
        now: Instant,
        retire: impl FnOnce(Vec<RecordId>, Revision),
    ) {
        let topics = self.hub.committed(&decided.rows);
        // Trimming is faster than the history grows, so that the history stays within its bounds, and each step is short.
        let budget = SLICE.max(2 * decided.rows.len());
        index.apply(decided, now);
        let mut forgotten = index.trim(&self.retention, now, budget);
        self.forget(&mut forgotten, index.compacted(), retire);
        // Watchers are woken after the lock is released, because they read the index. Memory is freed after that.
        drop(index);
        topics.iter().for_each(|topic| topic.wake());
    }

    /// Calls `retire` under the lock, so that it gets records in the order in which they were compacted.
    fn forget(&self, forgotten: &mut Forgotten, compacted: Revision, retire: impl FnOnce(Vec<RecordId>, Revision)) {
        if !forgotten.rows.is_empty() {
            self.hub.compacted(&forgotten.rows);
            retire(std::mem::take(&mut forgotten.records), compacted);
        }
    }

    /// The results of `of` for the first `limit` entries of a range, the revision of the read, and whether there are more.
    ///
    /// Reads slice by slice at one revision. If compaction removes that revision in between (which takes as many commits as
    /// the history keeps, within milliseconds), a read of the newest state starts again under one hold of the lock.
    fn collect<T>(
        &self,
        range: Range<'_>,
        limit: usize,
        of: impl Fn(&Arc<str>, &Version) -> T,
    ) -> Result<(Vec<T>, Revision, bool), ReadError> {
        let (mut found, mut more) = (Vec::new(), false);
        let (mut at, mut after, mut budget) = (self.read().readable(range.at)?, range.after.map(Arc::from), SLICE);
        loop {
            let index = self.read();
            if let Err(compacted) = index.readable(Some(at)) {
                if range.at.is_some() {
                    return Err(compacted);
                }
                found.clear();
                (at, after, budget) = (index.newest(), range.after.map(Arc::from), usize::MAX);
            }
            after = index.walk(range.prefix, after.as_deref(), at, budget, |key, version| {
                more = found.len() == limit;
                if !more {
                    found.push(of(key, version));
                }
                !more
            });
            if after.is_none() {
                return Ok((found, at, more));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_watcher_of_a_prefix_takes_its_topic_along() {
        let ledger = Ledger::new(Index::default(), Retention::default());
        let watch = |prefix| ledger.watch(prefix, Revision::ZERO).expect("can begin");
        let (first, second, other) = (watch("/a"), watch("/a"), watch("/b"));
        assert_eq!(ledger.hub.topics(), 2);
        drop(first);
        assert_eq!(ledger.hub.topics(), 2);
        drop(second);
        assert_eq!(ledger.hub.topics(), 1);
        drop(other);
        assert_eq!(ledger.hub.topics(), 0);
    }

    /// Ten thousand objects came and went: when their history is old, nothing is left of them, without another commit.
    #[test]
    fn an_idle_store_gives_back_what_is_too_old() {
        let retention = Retention { age: Duration::from_secs(300), ..Retention::default() };
        let ledger = Ledger::new(Index::default(), retention);
        let begin = Instant::now();
        ledger.commit(Commit::default().put("/stays", "x"), begin).expect("commits");
        for key in 0..10_000 {
            ledger.commit(Commit::default().put(format!("/{key}"), "x"), begin).expect("commits");
            ledger.commit(Commit::default().delete(format!("/{key}")), begin).expect("commits");
        }
        assert_eq!(ledger.read().sizes(), (10_001, 20_001, 20_001));
        let mut retired = 0;
        let mut trim = |after| ledger.trim(begin + Duration::from_secs(after), |records, _| retired += records.len());
        trim(299);
        assert_eq!(ledger.read().sizes(), (10_001, 20_001, 20_001));
        trim(302);
        // The newest commit stays, or no watch could see it.
        assert_eq!(ledger.read().sizes(), (2, 3, 1));
        assert_eq!(retired, 19_998);
    }

    /// With hardly any history, compaction overtakes a list at every commit.
    #[test]
    fn a_list_that_is_overtaken_by_compaction_is_still_of_one_moment() {
        let ledger = Ledger::new(Index::default(), Retention { changes: 0, ..Retention::default() });
        let keys = 5 * SLICE;
        let write = |round: u32| {
            let all = (0..keys).fold(Commit::default(), |all, key| all.put(format!("/{key}"), round.to_string()));
            ledger.commit(all, Instant::now()).expect("commits");
        };
        write(0);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| (1..40).for_each(write));
            while !writing.is_finished() {
                let page = ledger.range(Range::default()).expect("the newest is always readable");
                assert_eq!(page.entries.len(), keys);
                assert!(page.entries.iter().all(|entry| entry.revision == page.revision));
                assert_eq!(ledger.count(Range::default()), Ok(keys));
            }
        });
    }
}
