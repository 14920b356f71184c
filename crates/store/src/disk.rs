//! The durable backend: a directory with one redb file, which is read into memory at the start and written by one thread. In:
//! commits, which are acknowledged after an fsync. [`Disk::open`] refuses a file that it cannot trust, with the reason, and
//! never starts with an empty store where one existed.
//!
//! ```text
//!   commit ─▶ queue ─▶ writer: decide ─┬▶ few: one frame of the log ────────────┬▶ one fsync ─▶ high-water mark ─▶ ledger ─▶ acknowledge
//!                        ▲             └▶ many: one transaction, with the log's ─┘                                  │
//!                        └────────────────── records that no read can reach any more ◀─────────────────────────────┘
//! ```

mod error;
mod faults;
mod files;
mod high_water_mark;
mod load;
mod log;
mod queue;
mod record;
mod tables;
mod writer;

use std::{
    fs::{File, TryLockError},
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub use error::OpenError;

pub(crate) use files::{Files, make_dir, private, sync_parent};
pub(crate) use high_water_mark::HighWaterMark;
pub(crate) use load::{Loaded, load};
pub(crate) use tables::Tables;

use tokio::sync::watch;

use self::{
    faults::{FileIdentities, Opener, Reserve, is_full},
    load::{load_log, load_unwritten},
    log::Log,
    writer::{IDLE, Repair, Writer, WriterShared},
};
use crate::{
    BackupError, BoxFuture, Commit, CommitError, Entry, Health, Page, Range, ReadError, Retention, Revision, Store,
    Watch, backup, index::Row, ledger::Ledger,
};

/// The format this program writes and reads.
const FORMAT: u64 = 1;

/// A store on disk. An acknowledged commit survives the death of the process, and of the machine if its disk is honest
/// about fsync.
///
/// ```
/// use konverge_store::{Commit, Disk, Retention, Revision, Store};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let begin = Revision::begin(std::time::SystemTime::now());
/// let store = Disk::open(dir, Retention::default(), begin)?;
/// let revision = store.commit(Commit::default().put("/a", "1")).await?;
/// drop(store);
///
/// let store = Disk::open(dir, Retention::default(), begin)?;
/// assert_eq!(store.revision(), revision);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Disk {
    ledger: Arc<Ledger>,
    shared: Arc<WriterShared>,
    writer: Option<JoinHandle<()>>,
}

/// How much was written since the store was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskStats {
    /// Commits that changed something.
    pub commits: u64,
    /// Transactions and frames of the log, each with one fsync, that made them durable or removed what is no longer needed.
    pub transactions: u64,
}

impl Disk {
    /// Opens the store in a directory, or creates an empty one if there is none. Reads everything into memory and verifies it.
    ///
    /// `begin` is the first revision of an empty store, usually [`Revision::begin`], so that a store which replaces a deleted
    /// one never uses a revision twice. An existing store continues from its newest revision.
    pub fn open(dir: impl AsRef<Path>, retention: Retention, begin: Revision) -> Result<Disk, OpenError> {
        let dir = dir.as_ref();
        make_dir(dir).map_err(OpenError::io(dir))?;
        let files = Files::of(dir);
        let lock = hold(dir, &files)?;
        let opener = faults::opener();
        let found = find_or_create(&files, begin, Instant::now(), &opener)?;
        Disk::start(&files, found, lock, retention, opener, IDLE).map_err(OpenError::io(dir))
    }

    fn start(
        files: &Files,
        Found { loaded, unfolded, high_water_mark, full }: Found,
        lock: File,
        retention: Retention,
        opener: Opener,
        idle: Duration,
    ) -> std::io::Result<Disk> {
        let shared = WriterShared::new(loaded.index.compacted(), loaded.leftover);
        let ledger = Ledger::new(loaded.index, retention);
        let reserve = Reserve(files.reserve.clone());
        if full.is_none() {
            // If the disk has no space for it, the first commit that needs space reports that.
            let _ = reserve.hold();
        }
        let sync_failed = Arc::default();
        let has_logged = !unfolded.is_empty();
        let log = match Log::open(&files.log, &opener, &sync_failed, unfolded) {
            Ok(log) => Some(log),
            Err(error) if has_logged => return Err(error),
            // Without a log, because the disk has no space for it, every commit is a transaction.
            Err(_) => None,
        };
        let logged = log.is_some().then_some(&*files.log);
        let file_identities = FileIdentities::of([&*files.store, &*files.high_water_mark].into_iter().chain(logged))?;
        let repair = Repair::new(opener, file_identities, reserve, sync_failed);
        let mut writer = Writer {
            shared: shared.clone(),
            ledger: ledger.clone(),
            tables: loaded.tables,
            log,
            high_water_mark,
            repair,
            idle,
            _lock: lock,
        };
        writer.begin(full, Instant::now())?;
        let thread = std::thread::Builder::new().name("store-writer".into()).spawn(move || writer.run())?;
        Ok(Disk { ledger, shared, writer: Some(thread) })
    }

    /// How much was written since the store was opened.
    pub fn stats(&self) -> DiskStats {
        DiskStats { commits: self.shared.commits.load(Relaxed), transactions: self.shared.transactions.load(Relaxed) }
    }
}

/// Writes the queued commits, closes the file and unlocks the directory. Blocks for as long as the disk takes.
impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has dropped its answers, which its callers have noticed.
            let _ = writer.join();
        }
    }
}

impl Store for Disk {
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
        let shared = self.shared.clone();
        let answer = shared.queue.push(commit);
        Box::pin(async move {
            answer.await.unwrap_or_else(|| {
                let closed = || "the store was closed before this commit was written: open it again".into();
                Err(CommitError::Unavailable(shared.health.borrow().problem().cloned().unwrap_or_else(closed)))
            })
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
        self.ledger.watch(prefix, after)
    }

    fn compact(&self, before: Revision) {
        self.ledger.compact(before, |records, compacted| self.shared.retire(records, compacted));
        self.shared.queue.nudge();
    }

    fn maintain(&self, now: Instant) {
        self.ledger.trim(now, |records, compacted| self.shared.retire(records, compacted));
        self.shared.queue.nudge();
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn backup(&self, to: &Path) -> Result<Revision, BackupError> {
        backup::write(&self.ledger.snapshot(), to)
    }
}

fn hold(dir: &Path, files: &Files) -> Result<File, OpenError> {
    let lock = private().create(true).open(&files.lock).map_err(OpenError::io(&files.lock))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::Held { dir: dir.into() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&files.lock)(error)),
    }
}

/// A store that can be started.
struct Found {
    loaded: Loaded,
    /// What the index has of the log, and the database does not have yet.
    unfolded: Vec<Row>,
    high_water_mark: HighWaterMark,
    /// What could not be written, if the disk is full: then the store begins by refusing what takes space.
    full: Option<String>,
}

/// Opens the existing store or creates one. A store exists if its database or its high-water mark exists; the database is
/// created first.
fn find_or_create(files: &Files, begin: Revision, now: Instant, opener: &Opener) -> Result<Found, OpenError> {
    let exists = |path: &Path| path.try_exists().map_err(OpenError::io(path));
    if exists(&files.restoring)? {
        return Err(OpenError::damaged(&files.restoring, "restoring a backup into this directory was cut short"));
    }
    let high_water_mark = HighWaterMark::open(&files.high_water_mark)?;
    if !exists(&files.store)? {
        if let Some((_, durable)) = high_water_mark {
            let found = format!(
                "it is gone, yet {} says that the store reached revision {durable}",
                files.high_water_mark.display()
            );
            return Err(OpenError::damaged(&files.store, found));
        }
        create(files, begin)?;
    }
    let (mut loaded, mut full) = match load(&files.store, now) {
        // After an unclean end redb writes before it reads. What was acknowledged is in the file all the same.
        Err(OpenError::Full { path, source }) => {
            let why = format!("{}: {source}", path.display());
            (load_unwritten(&files.store, now, opener)?, Some(why))
        }
        loaded => (loaded?, None),
    };
    // After a crash: the commits that were acknowledged last.
    let unfolded = load_log(&files.log, &mut loaded.index, now)?;
    let newest = loaded.index.newest();
    match high_water_mark {
        Some((_, durable)) if newest < durable => {
            let found = format!("it ends at revision {newest}, yet revision {durable} was written");
            Err(OpenError::damaged(&files.store, found))
        }
        Some((mut high_water_mark, _)) => {
            match high_water_mark.advance(newest) {
                // It may lag, and the first transaction advances it.
                Err(error) if is_full(&error) => {
                    full.get_or_insert(format!("{}: {error}", files.high_water_mark.display()));
                }
                advanced => advanced.map_err(OpenError::io(&files.high_water_mark))?,
            }
            Ok(Found { loaded, unfolded, high_water_mark, full })
        }
        // Creation was interrupted before the high-water mark was written, so nothing can have been acknowledged.
        None if newest == loaded.tables.begin() => {
            let high_water_mark = HighWaterMark::create(&files.high_water_mark, newest)?;
            Ok(Found { loaded, unfolded, high_water_mark, full })
        }
        None => {
            let found = format!("it is gone, and {} alone cannot prove that it is the newest", files.store.display());
            Err(OpenError::damaged(&files.high_water_mark, found))
        }
    }
}

fn create(files: &Files, begin: Revision) -> Result<(), OpenError> {
    let fail = OpenError::io(&files.new);
    drop(private().create(true).truncate(true).open(&files.new).map_err(&fail)?);
    let nothing = Page { entries: Vec::new(), revision: begin, more: false };
    Tables::create(&files.new, &nothing, begin).map_err(|error| fail(std::io::Error::other(error)))?;
    std::fs::rename(&files.new, &files.store).map_err(OpenError::io(&files.store))?;
    sync_parent(&files.store).map_err(OpenError::io(&files.store))
}

#[cfg(test)]
mod tests;
