//! The replicated state and its snapshot. In: committed entries, snapshots of the leader. Out: how commands ended, snapshots for
//! members that lag, and changes for whoever watches. The state is in memory; on disk it is the newest snapshot and the log after it,
//! and a snapshot is stored before the log that it replaces is purged.

use std::io::Cursor;
use std::sync::Arc;

use openraft::storage::RaftStateMachine;
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta as OpenraftMeta, StoredMembership,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::changes::{Changes, Found};
use super::{Entry, StorageResult, decode, encode};
use crate::member::{LogId, Member, MemberId, Types};
use crate::state::{Outcome, State, Versioned};

type SnapshotMeta = OpenraftMeta<MemberId, Member>;
type Membership = StoredMembership<MemberId, Member>;

/// Where snapshots are kept besides memory.
#[cfg_attr(not(feature = "persist"), allow(dead_code, reason = "nothing is kept without the feature"))]
pub(crate) trait SnapshotStore: Send + Sync {
    fn save(&self, meta: &[u8], data: &[u8]) -> StorageResult<()>;
    fn load(&self) -> StorageResult<Option<(Vec<u8>, Vec<u8>)>>;
}

/// Clones are the same machine.
#[derive(Clone)]
pub(crate) struct Machine {
    inner: Arc<Mutex<Inner>>,
    store: Option<Arc<dyn SnapshotStore>>,
    /// What the newest stored snapshot has in it. Held while one is stored: an older one that was built meanwhile must not replace it,
    /// because the log is purged up to the newest.
    stored: Arc<tokio::sync::Mutex<Option<LogId>>>,
    changes: Changes,
    /// Bytes of the commands that were carried out since the newest snapshot, and that the log therefore has.
    logged: Arc<watch::Sender<u64>>,
    /// The index of the newest entry that was carried out.
    advanced: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Inner {
    state: State,
    applied: Option<LogId>,
    membership: Membership,
    snapshot: Option<(SnapshotMeta, Arc<Vec<u8>>)>,
    built: u64,
}

impl Machine {
    pub(crate) fn in_memory() -> Self {
        let changes = Changes::new();
        Self {
            inner: Arc::default(),
            store: None,
            stored: Arc::default(),
            changes,
            logged: Arc::default(),
            advanced: Arc::default(),
        }
    }

    /// The state of the newest snapshot in the store. What was committed after it is in the log.
    #[cfg(feature = "persist")]
    pub(crate) fn restored(store: Arc<dyn SnapshotStore>) -> StorageResult<Self> {
        let machine = Self { store: Some(store.clone()), ..Self::in_memory() };
        if let Some((meta, data)) = store.load()? {
            let meta: SnapshotMeta = decode(&meta)?;
            let mut inner = machine.inner.lock();
            inner.restore(&meta, Arc::new(data))?;
            machine.advance(&inner);
        }
        Ok(machine)
    }

    /// Looks at the state.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.inner.lock().state)
    }

    /// The index of the newest command that was carried out.
    pub(crate) fn applied(&self) -> u64 {
        self.inner.lock().applied.map_or(0, |applied| applied.index)
    }

    /// Waits until the entry with this index is carried out.
    pub(crate) async fn has_applied(&self, index: u64) {
        // The sender is in this machine.
        let _ = self.advanced.subscribe().wait_for(|applied| *applied >= index).await;
    }

    fn advance(&self, inner: &Inner) {
        self.advanced.send_replace(inner.applied.map_or(0, |applied| applied.index));
    }

    /// Bytes of the commands that were carried out since the newest snapshot.
    pub(crate) fn logged(&self) -> watch::Receiver<u64> {
        self.logged.subscribe()
    }

    /// The keys that begin with this, and the number of the change that comes next.
    pub(crate) fn list(&self, prefix: &str) -> (Vec<(String, Versioned)>, u64) {
        // Changes are added under this lock.
        let inner = self.inner.lock();
        let now = inner.state.list(prefix).map(|(key, value)| (key.clone(), value.clone())).collect();
        (now, *self.changes.subscribe().borrow())
    }

    /// The change with this number.
    pub(crate) fn change(&self, number: u64) -> Found {
        self.changes.find(number)
    }

    /// The number of the change that comes next, and when it changes. Changes are kept while somebody has one of these.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Runs work on the disk where it holds up nobody.
    async fn save(&self, meta: SnapshotMeta, data: Arc<Vec<u8>>) -> StorageResult<()> {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let mut stored = self.stored.lock().await;
        if *stored > meta.last_log_id {
            return Ok(());
        }
        let newest = meta.last_log_id;
        let saved = tokio::task::spawn_blocking(move || store.save(&encode(&meta)?, &data)).await;
        saved.map_err(|error| super::failed(openraft::ErrorVerb::Write, &error))??;
        *stored = newest;
        Ok(())
    }
}

impl Inner {
    fn restore(&mut self, meta: &SnapshotMeta, data: Arc<Vec<u8>>) -> StorageResult<()> {
        self.state = decode(&data)?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.snapshot = Some((meta.clone(), data));
        Ok(())
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> StorageResult<(Option<LogId>, Membership)> {
        let inner = self.inner.lock();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> StorageResult<Vec<Outcome>>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut inner = self.inner.lock();
        let (mut outcomes, mut bytes) = (Vec::new(), 0);
        for entry in entries {
            inner.applied = Some(entry.log_id);
            outcomes.push(match entry.payload {
                EntryPayload::Blank => Outcome::None,
                EntryPayload::Membership(membership) => {
                    inner.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Outcome::None
                }
                EntryPayload::Normal(command) => {
                    bytes += command.size();
                    let (outcome, change) = inner.state.apply(entry.log_id.index, command);
                    if let Some(change) = change {
                        self.changes.add(change);
                    }
                    outcome
                }
            });
        }
        self.logged.send_modify(|logged| *logged += bytes);
        self.advance(&inner);
        Ok(outcomes)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> StorageResult<Box<Cursor<Vec<u8>>>> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Box<Cursor<Vec<u8>>>) -> StorageResult<()> {
        let data = Arc::new(snapshot.into_inner());
        self.save(meta.clone(), data.clone()).await?;
        let mut inner = self.inner.lock();
        inner.restore(meta, data)?;
        self.advance(&inner);
        self.logged.send_replace(0);
        self.changes.forget();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> StorageResult<Option<Snapshot<Types>>> {
        let snapshot = self.inner.lock().snapshot.clone();
        Ok(snapshot.map(|(meta, data)| Snapshot { meta, snapshot: Box::new(Cursor::new(data.to_vec())) }))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> StorageResult<Snapshot<Types>> {
        let (meta, data, logged) = {
            let mut inner = self.inner.lock();
            inner.built += 1;
            let at = inner.applied.map_or_else(|| "0".to_owned(), |applied| applied.to_string());
            let meta = SnapshotMeta {
                last_log_id: inner.applied,
                last_membership: inner.membership.clone(),
                snapshot_id: format!("{at}-{}", inner.built),
            };
            (meta, Arc::new(encode(&inner.state)?), *self.logged.borrow())
        };
        self.save(meta.clone(), data.clone()).await?;
        let mut inner = self.inner.lock();
        // A newer one may have been installed meanwhile.
        if inner.snapshot.as_ref().is_none_or(|(known, _)| known.last_log_id <= meta.last_log_id) {
            inner.snapshot = Some((meta.clone(), data.clone()));
        }
        // What was carried out meanwhile stays.
        self.logged.send_modify(|now| *now = now.saturating_sub(logged));
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(data.to_vec())) })
    }
}
