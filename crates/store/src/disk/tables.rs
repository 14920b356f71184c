//! The database file: a table of records in the order of commits, and a header. In: decided commits, which are durable when
//! [`Tables::write`] returns. [`super::load`] reads the file.
//!
//! ```text
//!   records  (revision, place) ─▶ record         in the order of commits, like the history
//!   meta     format · begin · newest · compacted · records · sum
//! ```

use std::{
    borrow::Borrow,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, StorageError, Table,
    TableDefinition, backends::FileBackend,
};

use super::{
    FORMAT,
    faults::{Opener, SyncTracker},
    record::{encode, stored_checksum},
};
use crate::{
    Entry, Page, Revision,
    index::{RecordId, Row, Version},
};

pub(super) const RECORDS: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("records");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The size of redb's page cache. Reads do not use the file, so the cache only holds what one transaction touches.
pub(super) const CACHE: usize = 8 << 20;

/// A smaller file is not shrunk: the next burst of writes would make it as large again.
const WORTH_SHRINKING: u64 = 8 << 20;

/// The header of the file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Meta {
    /// The revision at which the empty store began. Zero for a copy of another store, and for older files.
    pub begin: Revision,
    pub newest: Revision,
    /// The history up to here is compacted; its records may remain in the file for a while.
    pub compacted: Revision,
    /// How many records there are.
    pub records: u64,
    /// The wrapping sum of their checksums.
    pub sum: u64,
    /// Their size in bytes. It is not stored in the file, but counted when the file is loaded.
    pub bytes: u64,
}

impl Meta {
    pub(super) fn add(&mut self, checksum: u32, bytes: usize) {
        self.records += 1;
        self.sum = self.sum.wrapping_add(checksum.into());
        self.bytes += bytes as u64;
    }

    fn remove(&mut self, checksum: u32, bytes: usize) {
        self.records -= 1;
        self.sum = self.sum.wrapping_sub(checksum.into());
        self.bytes -= bytes as u64;
    }

    /// Whether the header agrees with the one that was found in the file.
    fn agrees(&self, found: &Meta) -> bool {
        *self == Meta { bytes: self.bytes, ..*found }
    }

    fn read(table: &impl ReadableTable<&'static str, u64>) -> Result<Meta, StorageError> {
        let number = |name: &str| Ok::<_, StorageError>(table.get(name)?.map_or(0, |number| number.value()));
        let revision = |name: &str| number(name).map(Revision);
        let (begin, newest, compacted) = (revision("begin")?, revision("newest")?, revision("compacted")?);
        Ok(Meta { begin, newest, compacted, records: number("records")?, sum: number("sum")?, bytes: 0 })
    }

    fn write(&self, mut table: Table<'_, &str, u64>) -> Result<(), StorageError> {
        let Meta { begin, newest, compacted, records, sum, bytes: _ } = self;
        let rows = [
            ("format", FORMAT),
            ("begin", begin.0),
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
    /// `None` only if it could not be opened again after a failure.
    database: Option<Database>,
    path: PathBuf,
    meta: Meta,
    /// The header if the last transaction was rolled back, and if it was committed. Both are equal once the outcome is known.
    before: Meta,
    attempted: Meta,
    /// The size of the file after it was last shrunk; zero if it was not.
    shrunk_to: u64,
    /// The maximum size of all records since then.
    most: u64,
    buffer: Vec<u8>,
}

/// The outcome of a transaction whose commit returned an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Committed,
    RolledBack,
}

impl Tables {
    /// A file that was opened and verified.
    pub(super) fn new(database: Database, path: &Path, meta: Meta) -> Tables {
        let (database, path) = (Some(database), path.into());
        Tables {
            database,
            path,
            meta,
            before: meta,
            attempted: meta,
            shrunk_to: 0,
            most: meta.bytes,
            buffer: Vec::new(),
        }
    }

    /// Fills a new, empty file with these entries, without history. It is complete and synced when this returns.
    pub(crate) fn create(path: &Path, page: &Page, begin: Revision) -> Result<(), redb::Error> {
        let file = File::options().read(true).write(true).open(path)?;
        let whole = file.try_clone()?;
        let backend = Unnamed(FileBackend::new(file)?);
        let database = Builder::new().set_cache_size(CACHE).create_with_backend(backend)?;
        let meta = Meta { begin, newest: page.revision, compacted: page.revision, ..Meta::default() };
        let mut tables = Tables::new(database, path, meta);
        // Sorted by revision, the order of the table. Places within a revision are assigned again, because they only have to
        // be unique.
        let mut entries: Vec<&Entry> = page.entries.iter().collect();
        entries.sort_by_key(|entry| entry.revision);
        let mut last = (Revision::ZERO, 0);
        let versions = entries.into_iter().map(|entry| {
            last = if entry.revision == last.0 { (last.0, last.1 + 1) } else { (entry.revision, 0) };
            let value = Some(entry.value.clone());
            (&*entry.key, Version { revision: last.0, created: entry.created, place: last.1, value })
        });
        tables.commit_durably(versions, &[], meta)?;
        drop(tables);
        Ok(whole.sync_all()?)
    }

    /// Makes commits durable and removes records, in one transaction with one fsync.
    pub(crate) fn write(
        &mut self,
        rows: &[&Row],
        retired: &[RecordId],
        compacted: Revision,
    ) -> Result<(), redb::Error> {
        let mut meta = Meta { compacted: self.meta.compacted.max(compacted), ..self.meta };
        if let Some(last) = rows.last() {
            meta.newest = last.revision();
        }
        self.commit_durably(rows.iter().map(|row| (&*row.key, &*row.after)), retired, meta)
    }

    fn commit_durably<'a, V: Borrow<Version>>(
        &mut self,
        versions: impl Iterator<Item = (&'a str, V)>,
        retired: &[RecordId],
        mut meta: Meta,
    ) -> Result<(), redb::Error> {
        (self.before, self.attempted) = (self.meta, self.meta);
        let database = self.database.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            for (key, version) in versions {
                let version = version.borrow();
                let checksum = encode(key, version, &mut self.buffer);
                meta.add(checksum, self.buffer.len());
                records.insert((version.revision.0, version.place), self.buffer.as_slice())?;
            }
            for (revision, place) in retired {
                let gone = records.remove((revision.0, *place))?;
                let (checksum, bytes) = gone
                    .and_then(|record| Some((stored_checksum(record.value())?, record.value().len())))
                    .ok_or_else(|| redb::Error::Corrupted(format!("record {revision}.{place} is missing or cut")))?;
                meta.remove(checksum, bytes);
            }
            drop(records);
            meta.write(transaction.open_table(META)?)?;
        }
        self.attempted = meta;
        // The fsync is in here.
        transaction.commit()?;
        self.meta = meta;
        self.most = self.most.max(meta.bytes);
        Ok(())
    }

    /// Whether most of the file is free pages, and its records have at most this many bytes.
    ///
    /// A record can take a page of almost twice its size, so half of such a file or more can be given back. A file that
    /// was shrunk is checked again when its size has doubled, because redb may not be able to make it smaller.
    pub(crate) fn mostly_free(&self, at_most: u64) -> io::Result<bool> {
        let length = std::fs::metadata(&self.path)?.len();
        let bytes = self.meta.bytes;
        Ok(length >= WORTH_SHRINKING.max(2 * self.shrunk_to) && bytes < length / 4 && bytes <= at_most)
    }

    /// How many bytes of records were removed since the file was last shrunk.
    pub(crate) fn freed(&self) -> u64 {
        self.most.saturating_sub(self.meta.bytes)
    }

    /// Gives free pages back to the file system: moves records to the front of the file, in transactions of its own, and
    /// cuts the file. The content stays the same even if this fails halfway.
    pub(crate) fn shrink(&mut self) -> Result<(), redb::Error> {
        // Also set before, so that a failed attempt is not repeated at once.
        self.most = self.meta.bytes;
        self.shrunk_to = std::fs::metadata(&self.path)?.len();
        self.database.as_mut().ok_or(redb::Error::DatabaseClosed)?.compact()?;
        self.shrunk_to = std::fs::metadata(&self.path)?.len();
        Ok(())
    }

    /// Continues from `newest`, as if everything before it had been compacted. Only for a store that is not open yet.
    pub(crate) fn skip_to(&mut self, newest: Revision) -> Result<(), redb::Error> {
        self.commit_durably(std::iter::empty::<(&str, Version)>(), &[], Meta { newest, compacted: newest, ..self.meta })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The revision at which the empty store began.
    pub(crate) fn begin(&self) -> Revision {
        self.meta.begin
    }

    /// The newest revision that is durable.
    pub(crate) fn newest(&self) -> Revision {
        self.meta.newest
    }

    /// Closes the file, which has to be opened again before anything can be written.
    pub(super) fn close(&mut self) {
        drop(self.database.take());
    }

    /// Opens the same file again, through this opener. After a failure redb refuses everything until the file is reopened.
    /// Returns whether the failed transaction was committed after all.
    pub(super) fn reopen(&mut self, open: &Opener, sync_failed: &Arc<AtomicBool>) -> Result<Outcome, redb::Error> {
        drop(self.database.take());
        // redb would make a new database of an empty file.
        let mut magic = [0; 4];
        File::open(&self.path)?.read_exact(&mut magic)?;
        if &magic != b"redb" {
            return Err(redb::Error::Corrupted("it is not a database any more".into()));
        }
        let backend = SyncTracker { backend: open(&self.path)?, sync_failed: sync_failed.clone() };
        let database = Builder::new().set_cache_size(CACHE).create_with_backend(backend)?;
        let found = {
            let transaction = database.begin_read()?;
            Meta::read(&transaction.open_table(META)?)?
        };
        let (outcome, meta) = if self.before.agrees(&found) {
            (Outcome::RolledBack, self.before)
        } else if self.attempted.agrees(&found) {
            (Outcome::Committed, self.attempted)
        } else {
            return Err(redb::Error::Corrupted("its header is not what was written".into()));
        };
        (self.database, self.meta) = (Some(database), meta);
        self.resolve_in_doubt();
        Ok(outcome)
    }

    /// Marks the outcome of the last transaction as known.
    pub(super) fn resolve_in_doubt(&mut self) {
        (self.before, self.attempted) = (self.meta, self.meta);
    }
}

/// A file that is not in use yet: it gets its name when it is complete and synced. redb would sync it eight times before
/// that, which would only make the first start slow.
#[derive(Debug)]
struct Unnamed(FileBackend);

impl StorageBackend for Unnamed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
