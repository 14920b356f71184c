//! Loads a database file into an index, or says why the file cannot be trusted. A file is loaded only if redb's page
//! checksums, the checksum in each record, and the number and the sum of all records agree, and if its history has no gap
//! and replays to the same state.

use std::{
    any::Any,
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use redb::{AccessGuard, Builder, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, StorageError};

use super::{
    FORMAT,
    error::OpenError,
    faults::{Opener, Unwritten},
    log,
    record::{decode, stored_checksum},
    tables::{CACHE, META, Meta, RECORDS, Tables},
};
use crate::{
    Commit, Revision, Write,
    index::{Batch, Decided, Index, RecordId, Row, Version},
};

/// What a file holds.
pub(crate) struct Loaded {
    pub tables: Tables,
    pub index: Index,
    /// Records that compaction meant to remove and did not come to.
    pub leftover: Vec<RecordId>,
}

/// Opens and verifies a file. `now` is when its history begins to age.
pub(crate) fn load(path: &Path, now: Instant) -> Result<Loaded, OpenError> {
    load_through(path, now, |builder| Ok(builder.open(path)?))
}

/// The same on a disk that is full: what redb has to repair is repaired in memory. The tables are closed, because nothing can be
/// written through them.
pub(super) fn load_unwritten(path: &Path, now: Instant, opener: &Opener) -> Result<Loaded, OpenError> {
    let mut loaded =
        load_through(path, now, |builder| Ok(builder.create_with_backend(Unwritten::new(opener(path)?)?)?))?;
    loaded.tables.close();
    Ok(loaded)
}

fn load_through(
    path: &Path,
    now: Instant,
    open: impl Fn(&Builder) -> Result<Database, LoadFailure>,
) -> Result<Loaded, OpenError> {
    let load = || -> Result<Loaded, LoadFailure> {
        let database = verified(&open)?;
        let transaction = database.begin_read()?;
        let mut meta = read_meta(&transaction)?;
        let (index, leftover) = read_records(&transaction.open_table(RECORDS)?, &mut meta, now)?;
        drop(transaction);
        Ok(Loaded { tables: Tables::new(database, path, meta), index, leftover })
    };
    // A database library may panic over pages that make no sense; for us that is one more kind of damage.
    catch_unwind(AssertUnwindSafe(load))
        .unwrap_or_else(|panic| {
            Err(LoadFailure::Found(format!("its pages make no sense ({})", panic_message(&*panic))))
        })
        .map_err(|distrust| distrust.of(path))
}

/// Brings an index up to what the log has beyond it: after a crash, the commits that were acknowledged last. Gives their rows, which
/// the database does not have yet.
pub(super) fn load_log(path: &Path, index: &mut Index, now: Instant) -> Result<Vec<Row>, OpenError> {
    let logged = log::read(path, index.newest())?;
    let (mut rows, mut replay) = (Vec::new(), Replay::default());
    let mut apply = |replay: &mut Replay| -> Result<(), OpenError> {
        if let Some(decided) = replay.decide(index).map_err(|failure| failure.of(path))? {
            rows.extend_from_slice(&decided.rows);
            index.apply(decided, now);
        }
        Ok(())
    };
    for (key, version) in logged {
        if replay.revision() != Some(version.revision) {
            apply(&mut replay)?;
        }
        replay.add(key, version);
    }
    apply(&mut replay)?;
    Ok(rows)
}

/// The message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Why a file is not loaded; [`LoadFailure::of`] adds which file.
enum LoadFailure {
    Found(String),
    Newer(u64),
    Redb(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for LoadFailure {
    fn from(error: E) -> Self {
        LoadFailure::Redb(error.into())
    }
}

impl LoadFailure {
    fn of(self, path: &Path) -> OpenError {
        match self {
            LoadFailure::Found(found) => OpenError::damaged(path, found),
            LoadFailure::Newer(format) => OpenError::Newer { file: path.into(), format, known: FORMAT },
            LoadFailure::Redb(redb::Error::DatabaseAlreadyOpen) => {
                OpenError::Held { dir: path.parent().unwrap_or(path).into() }
            }
            // The disk failed to answer. A file that ends too early is damage instead: the disk did answer.
            LoadFailure::Redb(redb::Error::Io(source))
                if !matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) =>
            {
                OpenError::io(path)(source)
            }
            LoadFailure::Redb(other) => {
                OpenError::damaged(path, format!("it is not the database that was written ({other})"))
            }
        }
    }
}

/// After a crash redb verifies every page while it repairs; after a clean end we ask it to, for it otherwise trusts
/// what it finds, and so would we.
fn verified(open: impl Fn(&Builder) -> Result<Database, LoadFailure>) -> Result<Database, LoadFailure> {
    let verified = Arc::new(AtomicBool::new(false));
    let repairing = verified.clone();
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_repair_callback(move |_| repairing.store(true, Relaxed));
    let mut database = open(&builder)?;
    if !verified.load(Relaxed) {
        database.check_integrity()?;
    }
    Ok(database)
}

fn read_meta(transaction: &ReadTransaction) -> Result<Meta, LoadFailure> {
    let table = transaction.open_table(META)?;
    let number = |name: &str| -> Result<u64, LoadFailure> {
        let row = table.get(name)?.map(|number| number.value());
        row.ok_or_else(|| LoadFailure::Found(format!("it does not say its {name}")))
    };
    match number("format")? {
        FORMAT => {}
        format if format > FORMAT => return Err(LoadFailure::Newer(format)),
        format => return Err(LoadFailure::Found(format!("there never was a format {format}"))),
    }
    // Files from before this was noted do not have it.
    let begin = Revision(table.get("begin")?.map_or(0, |number| number.value()));
    let (newest, compacted) = (Revision(number("newest")?), Revision(number("compacted")?));
    Ok(Meta { begin, newest, compacted, records: number("records")?, sum: number("sum")?, bytes: 0 })
}

/// Up to the compacted revision the newest record of a key counts, and older ones are left over. After it, every
/// record is a step of the history.
fn read_records(
    records: &ReadOnlyTable<(u64, u32), &[u8]>,
    meta: &mut Meta,
    now: Instant,
) -> Result<(Index, Vec<RecordId>), LoadFailure> {
    let mut found = Meta::default();
    let mut index = Index::resume(meta.compacted);

    let mut leftover = Vec::new();
    for item in records.range(..=(meta.compacted.0, u32::MAX))? {
        let (key, version) = read_record(item, &mut found)?;
        leftover.extend(index.load(&key, version));
    }
    leftover.extend(index.drop_loaded_deletions());

    let mut replay = Replay::default();
    for item in records.range((meta.compacted.next().0, 0)..)? {
        let (key, version) = read_record(item, &mut found)?;
        if replay.revision() != Some(version.revision)
            && let Some(decided) = replay.decide(&index)?
        {
            index.apply(decided, now);
        }
        replay.add(key, version);
    }
    if let Some(decided) = replay.decide(&index)? {
        index.apply(decided, now);
    }

    if index.newest() != meta.newest {
        let found = format!("it ends at revision {} instead of {}", index.newest(), meta.newest);
        return Err(LoadFailure::Found(found));
    }
    if (found.records, found.sum) != (meta.records, meta.sum) {
        let found = format!("it has {} records instead of {}, or other ones", found.records, meta.records);
        return Err(LoadFailure::Found(found));
    }
    meta.bytes = found.bytes;
    Ok((index, leftover))
}

type Item<'a> = (AccessGuard<'a, (u64, u32)>, AccessGuard<'a, &'static [u8]>);

fn read_record(item: Result<Item<'_>, StorageError>, found: &mut Meta) -> Result<(Arc<str>, Version), LoadFailure> {
    let (id, record) = item?;
    let (revision, place) = id.value();
    found.add(stored_checksum(record.value()).unwrap_or_default(), record.value().len());
    decode((Revision(revision), place), record.value())
        .map_err(|why| LoadFailure::Found(format!("record {revision}.{place} cannot be trusted: {why}")))
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

    /// The commit that was added, as the index decides it.
    fn decide(&mut self, index: &Index) -> Result<Option<Decided>, LoadFailure> {
        let Replay { commit, versions } = std::mem::take(self);
        let Some(Version { revision, .. }) = versions.first() else { return Ok(None) };
        if *revision != index.newest().next() {
            let found = format!("the commits between revision {} and {revision} are missing", index.newest());
            return Err(LoadFailure::Found(found));
        }
        let impossible =
            |error| LoadFailure::Found(format!("the commit of revision {revision} is impossible: {error}"));
        let decided = Batch::new(index).decide(commit).map_err(impossible)?;
        let same =
            |(row, version): (&Row, &Version)| row.after.id() == version.id() && row.after.created == version.created;
        if decided.rows.len() != versions.len() || !decided.rows.iter().zip(&versions).all(same) {
            let found = format!("the commit of revision {revision} does not follow from those before it");
            return Err(LoadFailure::Found(found));
        }
        Ok(Some(decided))
    }
}
