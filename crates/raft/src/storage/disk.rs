//! Log, vote and snapshot in one file. In: entries and votes. Out: the same, also after `kill -9` and a loss of power: what is
//! acknowledged was synced first. The id of the member is in the file as well, so that it goes where the vote goes.

use std::fmt::Debug;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{ErrorVerb, LogState, OptionalSend, RaftLogReader};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{BATCH_BYTES, Entry, SnapshotStore, StorageResult, decode, encode, failed};
use crate::member::{LogId, MemberId, Types, Vote};

/// The name of the file.
const FILE: &str = "raft.redb";

/// What the file is called until it says whose it is. A member that is killed meanwhile leaves no file that looks like its own.
const NEW_FILE: &str = "raft.redb.new";

/// How values are encoded; a file with another one is refused.
const FORMAT: u64 = 1;

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Keys of the table `meta`.
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";
const IDENTITY: &str = "identity";
const SNAPSHOT: &str = "snapshot";
const SNAPSHOT_META: &str = "snapshot-meta";

/// The file. Clones of an `Arc` are the same.
pub(crate) struct Disk {
    database: Database,
    id: MemberId,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("cannot make the directory {}", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot open {}; another process may have it open, or it may be damaged", path.display())]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error(
        "{} belongs to the member with the ordinal {ordinal} of the cluster {cluster:?}; mount the volume of this instance, or remove \
         the file if this instance is to begin anew", path.display()
    )]
    Other { path: PathBuf, ordinal: u64, cluster: String },
    #[error(
        "{} is empty, so what this member has voted for and written is lost; restore the file, or remove it, and this instance joins \
         as a new member", path.display()
    )]
    Empty { path: PathBuf },
    #[error("{} has the format {found}, which this version does not know", path.display())]
    Format { path: PathBuf, found: u64 },
}

impl Disk {
    /// Opens the file of this member, or makes it with the id that it would have as a new one.
    pub(crate) fn open(directory: &Path, cluster: &str, new_id: MemberId) -> Result<Arc<Self>, OpenError> {
        std::fs::create_dir_all(directory)
            .map_err(|source| OpenError::Directory { path: directory.to_owned(), source })?;
        let path = directory.join(FILE);
        let unusable = |source| OpenError::Open { path: path.clone(), source: Box::new(source) };
        match std::fs::metadata(&path) {
            // redb would make a new database of it.
            Ok(file) if file.len() == 0 => return Err(OpenError::Empty { path }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let identity = postcard::to_allocvec(&(FORMAT, new_id, cluster)).unwrap_or_default();
                make(directory, &path, &identity).map_err(unusable)?;
            }
            Err(error) => return Err(unusable(error.into())),
        }
        let open = || -> Result<(Database, Vec<u8>), redb::Error> {
            let database = Database::open(&path)?;
            let meta = database.begin_read()?.open_table(META)?;
            let identity = meta.get(IDENTITY)?.map(|found| found.value().to_vec());
            Ok((database, identity.unwrap_or_default()))
        };
        let (database, identity) = open().map_err(unusable)?;
        let (format, id, known): (u64, MemberId, String) = postcard::from_bytes(&identity).unwrap_or_default();
        if format != FORMAT {
            return Err(OpenError::Format { path, found: format });
        }
        let ordinal = crate::member::ordinal_of(id);
        if known != cluster || ordinal != crate::member::ordinal_of(new_id) {
            return Err(OpenError::Other { path, ordinal, cluster: known });
        }
        Ok(Arc::new(Self { database, id }))
    }

    /// The id of the member that has written here.
    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    fn read<T>(&self, read: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>) -> StorageResult<T> {
        let transaction = self.database.begin_read().map_err(|error| failed(ErrorVerb::Read, &error))?;
        read(&transaction).map_err(|error| failed(ErrorVerb::Read, &error))
    }

    /// Writes, and returns when it is on the disk.
    fn write(
        &self,
        durability: Durability,
        write: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> StorageResult<()> {
        let all = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(durability)?;
            write(&transaction)?;
            Ok(transaction.commit()?)
        };
        all().map_err(|error| failed(ErrorVerb::Write, &error))
    }

    fn meta(&self, key: &str) -> StorageResult<Option<Vec<u8>>> {
        self.read(|transaction| Ok(transaction.open_table(META)?.get(key)?.map(|found| found.value().to_vec())))
    }
}

/// Makes the file of a new member, whole or not at all.
fn make(directory: &Path, path: &Path, identity: &[u8]) -> Result<(), redb::Error> {
    let new = directory.join(NEW_FILE);
    if let Err(error) = std::fs::remove_file(&new)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let database = Database::create(&new)?;
    let write = database.begin_write()?;
    write.open_table(ENTRIES)?;
    write.open_table(META)?.insert(IDENTITY, identity)?;
    write.commit()?;
    drop(database);
    std::fs::rename(&new, path)?;
    // The new name has to survive a loss of power as well.
    File::open(directory)?.sync_all()?;
    Ok(())
}

impl SnapshotStore for Disk {
    fn save(&self, meta: &[u8], data: &[u8]) -> StorageResult<()> {
        self.write(Durability::Immediate, |transaction| {
            let mut table = transaction.open_table(META)?;
            table.insert(SNAPSHOT_META, meta)?;
            table.insert(SNAPSHOT, data)?;
            Ok(())
        })
    }

    fn load(&self) -> StorageResult<Option<(Vec<u8>, Vec<u8>)>> {
        Ok(self.meta(SNAPSHOT_META)?.zip(self.meta(SNAPSHOT)?))
    }
}

/// The log in a file. Clones are the same log.
#[derive(Clone)]
pub(crate) struct DiskLog(pub Arc<Disk>);

impl DiskLog {
    /// Runs work on the disk where it holds up nobody. openraft waits for each write before it begins the next.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Disk) -> StorageResult<T> + Send + 'static,
    ) -> StorageResult<T> {
        let disk = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&disk)).await;
        done.map_err(|error| failed(ErrorVerb::Write, &error))?
    }

    async fn set(&self, durability: Durability, key: &'static str, value: Vec<u8>) -> StorageResult<()> {
        self.on_disk(move |disk| {
            disk.write(durability, |transaction| {
                transaction.open_table(META)?.insert(key, value.as_slice())?;
                Ok(())
            })
        })
        .await
    }

    async fn entries(&self, from: Bound<u64>, to: Bound<u64>, bytes: usize) -> StorageResult<Vec<Entry>> {
        let found = self.on_disk(move |disk| {
            disk.read(|transaction| {
                let mut taken: Vec<Vec<u8>> = Vec::new();
                let mut sum = 0;
                for row in transaction.open_table(ENTRIES)?.range::<u64>((from, to))? {
                    let (_, entry) = row?;
                    sum += entry.value().len();
                    if !taken.is_empty() && sum > bytes {
                        break;
                    }
                    taken.push(entry.value().to_vec());
                }
                Ok(taken)
            })
        });
        found.await?.iter().map(|entry| decode(entry)).collect()
    }
}

impl RaftLogReader<Types> for DiskLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> StorageResult<Vec<Entry>> {
        self.entries(range.start_bound().cloned(), range.end_bound().cloned(), usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> StorageResult<Vec<Entry>> {
        self.entries(Bound::Included(start), Bound::Excluded(end), BATCH_BYTES).await
    }
}

impl RaftLogStorage<Types> for DiskLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> StorageResult<LogState<Types>> {
        let (purged, last) = self
            .on_disk(|disk| {
                let last = disk.read(|transaction| {
                    let table = transaction.open_table(ENTRIES)?;
                    Ok(table.last()?.map(|(_, entry)| entry.value().to_vec()))
                })?;
                Ok((disk.meta(PURGED)?, last))
            })
            .await?;
        let purged: Option<LogId> = purged.as_deref().map(decode).transpose()?;
        let last: Option<Entry> = last.as_deref().map(decode).transpose()?;
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.map(|entry| entry.log_id).or(purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> StorageResult<()> {
        self.set(Durability::Immediate, VOTE, encode(vote)?).await
    }

    async fn read_vote(&mut self) -> StorageResult<Option<Vote>> {
        self.on_disk(|disk| disk.meta(VOTE)).await?.as_deref().map(decode).transpose()
    }

    /// Only so that a member that starts again knows sooner what was committed: it need not be durable.
    async fn save_committed(&mut self, committed: Option<LogId>) -> StorageResult<()> {
        self.set(Durability::None, COMMITTED, encode(&committed)?).await
    }

    async fn read_committed(&mut self) -> StorageResult<Option<LogId>> {
        let committed = self.on_disk(|disk| disk.meta(COMMITTED)).await?;
        Ok(committed.as_deref().map(decode).transpose()?.flatten())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> StorageResult<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = |entry: Entry| Ok((entry.log_id.index, encode(&entry)?));
        let entries: Vec<(u64, Vec<u8>)> = entries.into_iter().map(encoded).collect::<StorageResult<_>>()?;
        self.on_disk(move |disk| {
            disk.write(Durability::Immediate, |transaction| {
                let mut table = transaction.open_table(ENTRIES)?;
                for (index, entry) in &entries {
                    table.insert(index, entry.as_slice())?;
                }
                Ok(())
            })
        })
        .await?;
        callback.log_io_completed(Ok(()));
        Ok(())
    }

    async fn truncate(&mut self, since: LogId) -> StorageResult<()> {
        self.on_disk(move |disk| {
            disk.write(Durability::Immediate, |transaction| {
                transaction.open_table(ENTRIES)?.retain_in(since.index.., |_, _| false)?;
                Ok(())
            })
        })
        .await
    }

    async fn purge(&mut self, upto: LogId) -> StorageResult<()> {
        let purged = encode(&upto)?;
        self.on_disk(move |disk| {
            disk.write(Durability::Immediate, |transaction| {
                transaction.open_table(META)?.insert(PURGED, purged.as_slice())?;
                transaction.open_table(ENTRIES)?.retain_in(..=upto.index, |_, _| false)?;
                Ok(())
            })
        })
        .await
    }
}
