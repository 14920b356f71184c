//! The database file: one append-ordered table of records, and a few numbers about it. Decided commits come in and are
//! durable when [`Tables::write`] returns; an index comes out of [`Tables::load`], or the reason why the file cannot be
//! trusted. Nothing is loaded that does not agree with all of its witnesses: redb's page checksums, a checksum in each
//! record, the number and the sum of all records, and revisions without a gap.
//!
//! ```text
//!   records  (revision, place) ─▶ record         in the order of commits, like the history
//!   meta     format · newest · compacted · records · sum
//! ```

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use redb::{Builder, Database, Durability, ReadTransaction, ReadableDatabase, StorageError, Table, TableDefinition};

use super::{
    FORMAT,
    error::OpenError,
    record::{decode, encode, stored_checksum},
};
use crate::{
    Commit, Entry, Page, Revision, Write,
    index::{Batch, Decided, Index, RecordId, Version},
};

const RECORDS: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("records");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// redb's page cache. Reads never come here, so it only needs to hold what one transaction touches.
const CACHE: usize = 8 << 20;

/// What the file says about itself.
#[derive(Clone, Copy, Default)]
struct Meta {
    newest: Revision,
    /// History up to here is forgotten; records up to here may linger until they are removed.
    compacted: Revision,
    /// How many records there are.
    records: u64,
    /// The wrapping sum of their checksums.
    sum: u64,
}

impl Meta {
    fn add(&mut self, checksum: u32) {
        self.records += 1;
        self.sum = self.sum.wrapping_add(checksum.into());
    }

    fn remove(&mut self, checksum: u32) {
        self.records -= 1;
        self.sum = self.sum.wrapping_sub(checksum.into());
    }

    fn write(&self, mut table: Table<'_, &str, u64>) -> Result<(), StorageError> {
        let Meta { newest, compacted, records, sum } = self;
        let rows = [
            ("format", FORMAT),
            ("newest", newest.0),
            ("compacted", compacted.0),
            ("records", *records),
            ("sum", *sum),
        ];
        for (name, number) in rows {
            table.insert(name, number)?;
        }
        Ok(())
    }
}

/// An open, verified database file.
pub(crate) struct Tables {
    database: Database,
    path: PathBuf,
    meta: Meta,
    buffer: Vec<u8>,
}

/// What [`Tables::load`] finds.
pub(crate) struct Loaded {
    pub tables: Tables,
    pub index: Index,
    /// Records that compaction meant to remove and did not come to.
    pub leftover: Vec<RecordId>,
}

impl Tables {
    /// A new file holding these entries, without history. It is complete and synced when this returns.
    pub fn create(path: &Path, page: &Page) -> Result<(), redb::Error> {
        let database = Builder::new().set_cache_size(CACHE).create(path)?;
        let meta = Meta { newest: page.revision, compacted: page.revision, ..Meta::default() };
        let mut tables = Tables { database, path: path.into(), meta, buffer: Vec::new() };
        // By revision, which is the order of the table; places are given anew, since they only tell apart.
        let mut entries: Vec<&Entry> = page.entries.iter().collect();
        entries.sort_by_key(|entry| entry.revision);
        let mut last = (Revision::ZERO, 0);
        let versions = entries.into_iter().map(|entry| {
            last = if entry.revision == last.0 { (last.0, last.1 + 1) } else { (entry.revision, 0) };
            let value = Some(entry.value.clone());
            (&*entry.key, Version { revision: last.0, created: entry.created, place: last.1, value })
        });
        tables.transact(versions, &[], meta)
    }

    /// Makes commits durable and removes records, in one transaction with one fsync.
    pub fn write<'a>(
        &mut self,
        commits: impl Iterator<Item = &'a Decided>,
        retired: &[RecordId],
        compacted: Revision,
    ) -> Result<(), redb::Error> {
        let mut meta = Meta { compacted: self.meta.compacted.max(compacted), ..self.meta };
        let rows = commits.flat_map(|decided| &decided.rows).map(|row| {
            meta.newest = row.revision();
            (&*row.key, &*row.after)
        });
        let rows: Vec<_> = rows.collect();
        self.transact(rows.into_iter(), retired, meta)
    }

    fn transact<'a, V: std::borrow::Borrow<Version>>(
        &mut self,
        versions: impl Iterator<Item = (&'a str, V)>,
        retired: &[RecordId],
        mut meta: Meta,
    ) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for (key, version) in versions {
                let version = version.borrow();
                meta.add(encode(key, version, &mut self.buffer));
                records.insert((version.revision.0, version.place), self.buffer.as_slice())?;
            }
            for (revision, place) in retired {
                let gone = records.remove((revision.0, *place))?;
                let checksum = gone
                    .and_then(|record| stored_checksum(record.value()))
                    .ok_or_else(|| redb::Error::Corrupted(format!("record {revision}.{place} is missing or cut")))?;
                meta.remove(checksum);
            }
            drop(records);
            meta.write(transaction.open_table(META)?)?;
        }
        transaction.commit()?;
        self.meta = meta;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn newest(&self) -> Revision {
        self.meta.newest
    }

    /// Opens and verifies a file. `now` is when its history begins to age.
    pub fn load(path: &Path, now: Instant) -> Result<Loaded, OpenError> {
        // A database library may panic over pages that make no sense; for us that is one more kind of damage.
        catch_unwind(AssertUnwindSafe(|| load(path, now))).unwrap_or_else(|panic| {
            Err(OpenError::damaged(path, format!("its pages make no sense ({})", said(&panic))))
        })
    }

    /// The same file through another way to the disk.
    #[cfg(test)]
    pub fn through(self, open: impl FnOnce(&PathBuf) -> Database) -> Tables {
        let Tables { database, path, meta, buffer } = self;
        drop(database);
        Tables { database: open(&path), path, meta, buffer }
    }
}

/// What a panic said.
pub(super) fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn load(path: &Path, now: Instant) -> Result<Loaded, OpenError> {
    let damaged = |found: String| OpenError::damaged(path, found);
    let refused = |error: redb::Error| refused(path, error);

    // After a crash redb verifies every page while it repairs; after a clean end we ask it to, for it otherwise
    // trusts what it finds, and so would we.
    let verified = Arc::new(AtomicBool::new(false));
    let repairing = verified.clone();
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_repair_callback(move |_| repairing.store(true, Relaxed));
    let mut database = builder.open(path).map_err(|error| refused(error.into()))?;
    if !verified.load(Relaxed) {
        database.check_integrity().map_err(|error| refused(error.into()))?;
    }

    let transaction = database.begin_read().map_err(|error| refused(error.into()))?;
    let meta = read_meta(path, &transaction)?;
    let records = transaction.open_table(RECORDS).map_err(|error| refused(error.into()))?;
    let mut found = Meta { newest: meta.compacted, compacted: meta.compacted, ..Meta::default() };
    let mut next = |item: Result<_, StorageError>| -> Result<(Arc<str>, Version), OpenError> {
        let (id, record): (redb::AccessGuard<'_, (u64, u32)>, redb::AccessGuard<'_, &[u8]>) =
            item.map_err(|error| refused(error.into()))?;
        let (revision, place) = id.value();
        found.add(stored_checksum(record.value()).unwrap_or_default());
        decode((Revision(revision), place), record.value())
            .map_err(|why| damaged(format!("record {revision}.{place} cannot be trusted: {why}")))
    };

    let mut index = Index::resume(meta.compacted);
    let mut leftover = Vec::new();
    let settled = records.range(..=(meta.compacted.0, u32::MAX)).map_err(|error| refused(error.into()))?;
    for item in settled {
        let (key, version) = next(item)?;
        leftover.extend(index.load(&key, version));
    }
    leftover.extend(index.drop_loaded_deletions());

    let history = records.range((meta.compacted.0 + 1, 0)..).map_err(|error| refused(error.into()))?;
    let mut replay = Replay::default();
    for item in history {
        let (key, version) = next(item)?;
        if replay.revision() != Some(version.revision) {
            replay.finish(&mut index, now).map_err(damaged)?;
        }
        replay.add(key, version);
    }
    replay.finish(&mut index, now).map_err(damaged)?;

    if index.newest() != meta.newest {
        return Err(damaged(format!("it ends at revision {} instead of {}", index.newest(), meta.newest)));
    }
    if (found.records, found.sum) != (meta.records, meta.sum) {
        return Err(damaged(format!("it has {} records instead of {}, or other ones", found.records, meta.records)));
    }
    drop((records, transaction));
    let tables = Tables { database, path: path.into(), meta, buffer: Vec::new() };
    Ok(Loaded { tables, index, leftover })
}

/// History goes through the machine that decided it, and must come out the same.
#[derive(Default)]
struct Replay {
    commit: Commit,
    versions: Vec<Version>,
}

impl Replay {
    fn revision(&self) -> Option<Revision> {
        self.versions.first().map(|version| version.revision)
    }

    fn add(&mut self, key: Arc<str>, version: Version) {
        self.commit.writes.push(match &version.value {
            Some(value) => Write::Put(key, value.clone()),
            None => Write::Delete(key),
        });
        self.versions.push(version);
    }

    fn finish(&mut self, index: &mut Index, now: Instant) -> Result<(), String> {
        let Replay { commit, versions } = std::mem::take(self);
        let Some(Version { revision, .. }) = versions.first() else { return Ok(()) };
        if *revision != index.newest().next() {
            return Err(format!("the commits between revision {} and {revision} are missing", index.newest()));
        }
        let decided = Batch::new(index)
            .decide(commit)
            .map_err(|error| format!("the commit of revision {revision} cannot have happened: {error}"))?;
        let same = |(row, version): (&crate::index::Row, &Version)| {
            row.after.id() == version.id() && row.after.created == version.created
        };
        if decided.rows.len() != versions.len() || !decided.rows.iter().zip(&versions).all(same) {
            return Err(format!("the commit of revision {revision} does not follow from those before it"));
        }
        index.apply(decided, now);
        Ok(())
    }
}

fn read_meta(path: &Path, transaction: &ReadTransaction) -> Result<Meta, OpenError> {
    let table = transaction.open_table(META).map_err(|error| refused(path, error.into()))?;
    let number = |name: &str| -> Result<u64, OpenError> {
        let row = table.get(name).map_err(|error| refused(path, error.into()))?;
        row.map(|number| number.value()).ok_or_else(|| OpenError::damaged(path, format!("it does not say its {name}")))
    };
    match number("format")? {
        FORMAT => {}
        format if format > FORMAT => return Err(OpenError::Newer { file: path.into(), format, known: FORMAT }),
        format => return Err(OpenError::damaged(path, format!("there never was a format {format}"))),
    }
    let (newest, compacted) = (Revision(number("newest")?), Revision(number("compacted")?));
    Ok(Meta { newest, compacted, records: number("records")?, sum: number("sum")? })
}

fn refused(path: &Path, error: redb::Error) -> OpenError {
    match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::Held { dir: path.parent().unwrap_or(path).into() },
        // Not the disk's fault: the file ends before it should.
        redb::Error::Io(source)
            if !matches!(source.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData) =>
        {
            OpenError::Io { path: path.into(), source }
        }
        other => OpenError::damaged(path, format!("it is not the database that was written ({other})")),
    }
}
