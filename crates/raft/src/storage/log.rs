//! A log in memory, gone with the process: whoever begins anew has another id. In: entries and votes. Out: the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;

use super::{BATCH_BYTES, Entry, StorageResult, encode};
use crate::member::{LogId, Types, Vote};

/// Clones are the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryLog(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

#[cfg(test)]
impl MemoryLog {
    /// What need not be durable is older after a crash.
    pub(crate) fn forget_committed(&self) {
        let mut inner = self.0.lock();
        let older = inner.committed.map_or(0, |committed| committed.index.saturating_sub(2));
        inner.committed = inner.entries.range(..=older).next_back().map(|(_, entry)| entry.log_id);
    }
}

impl RaftLogReader<Types> for MemoryLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> StorageResult<Vec<Entry>> {
        Ok(self.0.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> StorageResult<Vec<Entry>> {
        let inner = self.0.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        for entry in inner.entries.range(start..end).map(|(_, entry)| entry) {
            bytes += encode(entry)?.len();
            if !taken.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }
}

impl RaftLogStorage<Types> for MemoryLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> StorageResult<LogState<Types>> {
        let inner = self.0.lock();
        let last = inner.entries.last_key_value().map(|(_, entry)| entry.log_id);
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: last.or(inner.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> StorageResult<()> {
        self.0.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> StorageResult<Option<Vote>> {
        Ok(self.0.lock().vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> StorageResult<()> {
        self.0.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> StorageResult<Option<LogId>> {
        Ok(self.0.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> StorageResult<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(|entry| (entry.log_id.index, entry));
        self.0.lock().entries.extend(entries);
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> StorageResult<()> {
        self.0.lock().entries.split_off(&since.index);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> StorageResult<()> {
        let mut inner = self.0.lock();
        inner.entries = inner.entries.split_off(&(upto.index + 1));
        inner.purged = Some(upto);
        Ok(())
    }
}
