//! The backend that forgets: everything lives in the ledger, a commit is durable as soon as it is visible. For tests
//! and for servers whose state may go with them. Never touches a file except for a backup.

use std::{path::Path, sync::Arc, time::Instant};

use tokio::sync::watch;

use crate::{
    BackupError, BoxFuture, Commit, CommitError, Entry, Health, Page, Range, ReadError, Retention, Revision, Store,
    Watch, backup, index::Index, ledger::Ledger,
};

/// A store in memory.
pub struct Memory {
    ledger: Arc<Ledger>,
    health: watch::Sender<Health>,
}

impl Memory {
    /// An empty store that keeps so much history. Everything before `begin` counts as compacted; a server that clients
    /// remember begins at [`Revision::begin`].
    pub fn new(retention: Retention, begin: Revision) -> Self {
        Memory { ledger: Ledger::new(Index::resume(begin), retention), health: watch::Sender::default() }
    }
}

/// Begins at revision zero, for those who know all of its clients: tests.
impl Default for Memory {
    fn default() -> Self {
        Memory::new(Retention::default(), Revision::ZERO)
    }
}

impl Store for Memory {
    fn revision(&self) -> Revision {
        self.ledger.read().newest()
    }

    fn oldest(&self) -> Revision {
        self.ledger.read().compacted()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.ledger.get(key, at)
    }

    fn range(&self, range: Range<'_>) -> Result<Page, ReadError> {
        self.ledger.range(range)
    }

    fn count(&self, range: Range<'_>) -> Result<usize, ReadError> {
        self.ledger.count(range)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Revision, CommitError>> {
        Box::pin(std::future::ready(self.ledger.commit(commit, Instant::now())))
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
        self.ledger.watch(prefix, after)
    }

    fn compact(&self, before: Revision) {
        self.ledger.compact(before, |_, _| {});
    }

    fn maintain(&self, now: Instant) {
        self.ledger.trim(now, |_, _| {});
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn backup(&self, to: &Path) -> Result<Revision, BackupError> {
        backup::write(&self.ledger.snapshot(), to)
    }
}
