//! What only the inside can show: a disk that fails, a file that is a sound database and yet not what was written, and
//! what compaction leaves on disk.

use std::{
    collections::HashSet,
    io,
    sync::atomic::{AtomicU8, Ordering::SeqCst},
};

use parking_lot::Mutex;
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend, TableDefinition,
    backends::FileBackend,
};

use super::*;
use crate::conformance::Rng;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

fn put(key: &str, value: &str) -> Commit {
    Commit::default().put(key, value.to_owned())
}

/// A store with a compacted past, some history, a deletion and a few keys.
fn sample(dir: &Path) -> Vec<Entry> {
    let store = Disk::open(dir, Retention::default(), Revision::ZERO).expect("a new store");
    block_on(async {
        for number in 0..12 {
            let commit = put(&format!("/{}", number % 5), &format!("value {number}"));
            let commit = if number == 2 { commit.put("/still", "never touched again") } else { commit };
            store.commit(commit).await.expect("commits");
        }
        store.compact(Revision(7));
        store.commit(Commit::default().delete("/1").put("/new", "x")).await.expect("commits");
    });
    store.range(Range::default()).expect("readable").entries
}

fn edit(dir: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = Database::open(Files::of(dir).store).expect("a sound database");
    let transaction = database.begin_write().expect("writable");
    change(&transaction);
    transaction.commit().expect("commits");
}

const RECORDS: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("records");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

#[test]
fn a_sound_database_with_other_content_is_refused_by_name() {
    let check = |expect: &str, change: fn(&redb::WriteTransaction)| {
        let dir = tempfile::tempdir().expect("a directory");
        sample(dir.path());
        edit(dir.path(), change);
        let error = Disk::open(dir.path(), Retention::default(), Revision::ZERO).err().expect("refused").to_string();
        assert!(error.contains(expect) && error.contains("store.redb"), "{error}");
    };
    check("record 13.1 cannot be trusted: its checksum", |transaction| {
        let mut records = transaction.open_table(RECORDS).expect("a table");
        let mut record = records.get((13, 1)).expect("readable").expect("there").value().to_vec();
        *record.iter_mut().rev().nth(4).expect("long enough") ^= 1;
        records.insert((13, 1), record.as_slice()).expect("writable");
    });
    check("ends at revision 12 instead of 13", |transaction| {
        let mut records = transaction.open_table(RECORDS).expect("a table");
        records.retain_in((13, 0)..=(13, 9), |_, _| false).expect("writable");
    });
    check("between revision 8 and 10 are missing", |transaction| {
        transaction.open_table(RECORDS).expect("a table").remove((9, 0)).expect("writable");
    });
    check("the commit of revision 13 does not follow", |transaction| {
        transaction.open_table(RECORDS).expect("a table").remove((13, 0)).expect("writable");
    });
    // Before the compacted revision only the sum can tell.
    check("records instead of", |transaction| {
        transaction.open_table(RECORDS).expect("a table").remove((3, 1)).expect("writable");
    });
    check("format 2, and this program knows formats up to 1", |transaction| {
        transaction.open_table(META).expect("a table").insert("format", 2).expect("writable");
    });
    check("does not say its sum", |transaction| {
        transaction.open_table(META).expect("a table").remove("sum").expect("writable");
    });
    check("is not the database that was written", |transaction| {
        transaction.delete_table(META).expect("writable");
    });
}

#[test]
fn an_older_state_that_is_sound_in_itself_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    sample(dir.path());
    let older = std::fs::read(Files::of(dir.path()).store).expect("readable");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    block_on(store.commit(put("/a", "newer"))).expect("commits");
    drop(store);
    std::fs::write(Files::of(dir.path()).store, older).expect("writable");
    let error = Disk::open(dir.path(), Retention::default(), Revision::ZERO).err().expect("refused").to_string();
    assert!(error.contains("it ends at revision 13, yet revision 14 was written"), "{error}");
}

#[test]
fn history_comes_back_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = sample(dir.path());
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    assert_eq!((store.oldest(), store.revision()), (Revision(7), Revision(13)));
    let changes = store.watch("", Revision(7)).expect("can begin").take(100).expect("not compacted");
    let changed: Vec<(u64, &str)> = changes.iter().map(|change| (change.revision.0, &*change.key)).collect();
    assert_eq!(changed, [(8, "/2"), (9, "/3"), (10, "/4"), (11, "/0"), (12, "/1"), (13, "/1"), (13, "/new")]);
    assert!(changes.iter().take(6).all(|change| change.before.is_some()));
}

#[test]
fn compaction_removes_records_when_idle_and_what_was_left_over_at_a_start() {
    let records = |dir: &Path| {
        let database = Database::open(Files::of(dir).store).expect("a sound database");
        let transaction = database.begin_read().expect("readable");
        transaction.open_table(RECORDS).expect("a table").len().expect("a number")
    };
    let resolve_in_doubt = |store: &Disk| {
        for _ in 0..1000 {
            if store.shared.retired.lock().records.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("retired records are removed within a second or so");
    };
    let dir = tempfile::tempdir().expect("a directory");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("a new store");
    block_on(async {
        for number in 0..50 {
            store.commit(put(&format!("/{}", number % 10), "x")).await.expect("commits");
        }
        store.commit(Commit::default().delete("/0")).await.expect("commits");
    });
    store.compact(Revision(51));
    resolve_in_doubt(&store);
    drop(store);
    assert_eq!(records(dir.path()), 9);

    // Closed before it came to remove anything: the next start does.
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    let all: Vec<_> = (0..10).map(|number| store.commit(put(&format!("/{}", number % 3), "y"))).collect();
    all.into_iter().for_each(|commit| drop(block_on(commit)));
    store.compact(Revision(60));
    block_on(store.commit(put("/9", "z"))).expect("commits");
    let expect = store.range(Range::default()).expect("readable").entries;
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    store.compact(store.revision());
    resolve_in_doubt(&store);
    drop(store);
    assert_eq!(records(dir.path()), expect.len() as u64);
}

fn length(dir: &Path) -> u64 {
    std::fs::metadata(Files::of(dir).store).expect("a store").len()
}

/// What a store without records can keep.
const SHORT: u64 = 8 << 20;

#[test]
fn a_file_that_is_mostly_free_is_shrunk_when_idle() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("a new store");
    let value = "x".repeat(100_000);
    let commits: Vec<_> = (0..300).map(|key| store.commit(put(&format!("/{key}"), &value))).collect();
    for commit in commits {
        block_on(commit).expect("commits");
    }
    // One record that stays, at the end of the file, keeps redb from cutting it.
    block_on(store.commit(put("/stays", "x"))).expect("commits");
    assert!(length(dir.path()) >= 30_000_000, "{}", length(dir.path()));
    let deletions: Vec<_> = (0..300).map(|key| store.commit(Commit::default().delete(format!("/{key}")))).collect();
    for commit in deletions {
        block_on(commit).expect("commits");
    }
    store.compact(store.revision());
    for _ in 0..6000 {
        if length(dir.path()) < SHORT {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(length(dir.path()) < SHORT, "{}", length(dir.path()));
    block_on(store.commit(put("/after", "x"))).expect("commits");
    let expect = store.range(Range::default()).expect("readable").entries;
    assert_eq!(expect.len(), 2);
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

/// Makes the file long by free pages, without a change of what the store holds.
fn bloat(dir: &Path) {
    const OTHER: TableDefinition<u64, &[u8]> = TableDefinition::new("other");
    edit(dir, |transaction| {
        let mut other = transaction.open_table(OTHER).expect("a table");
        (0..300).for_each(|row| drop(other.insert(row, [7; 100_000].as_slice()).expect("writable")));
    });
    // The last row stays: redb cuts free pages at the end of a file by itself.
    edit(dir, |transaction| {
        transaction.open_table(OTHER).expect("a table").retain(|row, _| row == 299).expect("writable");
    });
    assert!(length(dir) > 2 * SHORT, "{}", length(dir));
}

#[test]
fn a_file_that_is_mostly_free_is_shrunk_at_a_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = sample(dir.path());
    bloat(dir.path());
    // Closing waits for the writer.
    drop(Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens"));
    assert!(length(dir.path()) < SHORT, "{}", length(dir.path()));
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

#[test]
fn a_file_that_cannot_be_shrunk_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = sample(dir.path());
    bloat(dir.path());
    let failing = Arc::new(AtomicU8::new(NO_GROWTH));
    let store = start_failing(dir.path(), failing.clone());
    block_on(store.health().wait_for(|health| matches!(health, Health::Failing(_)))).expect("the store is there");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    failing.store(FINE, SeqCst);
    wait_until_fine(&store);
    block_on(store.commit(put("/after", "x"))).expect("commits");
    let expect = store.range(Range::default()).expect("readable").entries;
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

/// Files and the numbers of their blocks.
type UsedBlocks = HashSet<(std::path::PathBuf, u64)>;

/// A file whose disk can be told to fail.
#[derive(Debug)]
struct Failing {
    file: FileBackend,
    fault: Arc<AtomicU8>,
    /// The blocks that take room already, and so can be written again on a full disk, and how many more it has room for:
    /// what the reserve took.
    used: Arc<Mutex<(UsedBlocks, usize)>>,
    path: std::path::PathBuf,
    reserve: std::path::PathBuf,
}

const FINE: u8 = 0;
const NO_WRITE: u8 = 1;
const NO_SYNC: u8 = 2;
const NO_GROWTH: u8 = 3;
const STALL: u8 = 4;
const FULL: u8 = 5;
/// Only the log stalls.
const STALL_LOG: u8 = 6;
/// Only the log cannot be written.
const NO_LOG: u8 = 7;

impl Failing {
    fn unless(&self, fault: u8) -> io::Result<()> {
        if self.fault.load(SeqCst) == fault { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }

    fn is_log(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "log")
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.unless(NO_GROWTH)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.unless(NO_SYNC)?;
        let stalls = |fault: u8| fault == STALL || fault == STALL_LOG && self.is_log();
        while stalls(self.fault.load(SeqCst)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.unless(NO_WRITE)?;
        if self.is_log() {
            self.unless(NO_LOG)?;
        }
        let blocks =
            (offset / 4096..(offset + data.len() as u64).div_ceil(4096)).map(|block| (self.path.clone(), block));
        let mut used = self.used.lock();
        let new = blocks.clone().filter(|block| !used.0.contains(block)).count();
        if self.fault.load(SeqCst) == FULL {
            let held = if self.reserve.is_file() { faults::RESERVED / 4096 } else { 0 };
            used.1.checked_sub(new + held).ok_or(io::ErrorKind::StorageFull)?;
            used.1 -= new;
        }
        used.0.extend(blocks);
        self.file.write(offset, data)
    }
}

fn open_failing(dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    drop(Disk::open(dir, Retention::default(), Revision::ZERO).expect("a new store"));
    start_failing(dir, fault)
}

fn start_failing(dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    start_failing_after(IDLE, dir, fault)
}

/// The same, which begins to tidy up after it was idle for so long.
fn start_failing_after(idle: Duration, dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    let files = Files::of(dir);
    let lock = hold(dir, &files).expect("free");
    let opener = failing_opener(&files, fault);
    let found = find_or_create(&files, Revision::ZERO, Instant::now(), &opener).expect("a sound store");
    Disk::start(&files, found, lock, Retention::default(), opener, idle).expect("a thread")
}

fn failing_opener(files: &Files, fault: Arc<AtomicU8>) -> Opener {
    let used = Arc::new(Mutex::new((HashSet::new(), (4 << 20) / 4096)));
    let reserve = files.reserve.clone();
    Arc::new(move |path| {
        let file = FileBackend::new(std::fs::File::options().read(true).write(true).open(path)?);
        let file = file.map_err(io::Error::other)?;
        let (fault, used, reserve) = (fault.clone(), used.clone(), reserve.clone());
        Ok(Box::new(Failing { file, fault, used, path: path.into(), reserve }))
    })
}

fn large(rng: &mut Rng) -> String {
    (0..3 << 20).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

fn wait_until_fine(store: &Disk) {
    block_on(store.health().wait_for(|health| *health == Health::Fine)).expect("the store is there");
}

#[test]
fn after_a_failed_write_nothing_is_acknowledged_reads_go_on_and_it_heals() {
    let mut rng = Rng::new(5);
    for fault in [NO_WRITE, NO_GROWTH] {
        let dir = tempfile::tempdir().expect("a directory");
        let failing = Arc::new(AtomicU8::new(FINE));
        let store = open_failing(dir.path(), failing.clone());
        let acknowledged = block_on(store.commit(put("/a", "1"))).expect("the disk is fine");
        let mut watch = store.watch("", acknowledged).expect("can begin");

        failing.store(fault, SeqCst);
        // Enough that the file must grow, and several, so that some share a batch.
        let large = large(&mut rng);
        let doomed: Vec<_> =
            (0..5).map(|number| store.commit(put("/a", &large).absent(format!("/absent/{number}")))).collect();
        for commit in doomed {
            let message = block_on(commit).expect_err("the disk is broken").to_string();
            assert!(
                message.contains("store.redb") && message.contains("broken") && message.contains("fixed"),
                "{message}"
            );
        }
        assert!(matches!(&*store.health().borrow(), Health::Failing(why) if why.contains("broken")));
        assert_eq!(store.revision(), acknowledged);
        assert_eq!(store.get("/a", None).expect("readable").expect("there").value, "1");
        assert_eq!(watch.take(10), Ok(Vec::new()));

        failing.store(FINE, SeqCst);
        wait_until_fine(&store);
        let next = block_on(store.commit(put("/b", "2"))).expect("the disk is fine again");
        assert_eq!(watch.take(10).map(|changes| changes.last().map(|change| change.revision)), Ok(Some(next)));
        let expect = store.range(Range::default()).expect("readable").entries;
        drop(store);
        let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
        assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    }
}

#[test]
fn after_a_failed_fsync_it_refuses_for_good_and_a_restart_keeps_what_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let failing = Arc::new(AtomicU8::new(FINE));
    let store = open_failing(dir.path(), failing.clone());
    let acknowledged = block_on(store.commit(put("/a", "1"))).expect("the disk is fine");
    failing.store(NO_SYNC, SeqCst);
    let message = block_on(store.commit(put("/a", "2"))).expect_err("the disk is broken").to_string();
    assert!(message.contains("an fsync failed") && message.contains("restart"), "{message}");
    failing.store(FINE, SeqCst);
    let message = block_on(store.commit(put("/b", "2"))).expect_err("broken for good").to_string();
    assert!(message.contains("nothing more can be committed"), "{message}");
    assert!(matches!(&*store.health().borrow(), Health::Broken(_)));
    assert_eq!(store.revision(), acknowledged);
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("what was acknowledged is kept");
    assert!(store.revision() >= acknowledged);
    assert_eq!(store.get("/a", Some(acknowledged)).expect("readable").expect("there").value, "1");
    block_on(store.commit(put("/b", "2"))).expect("the disk is fine again");
}

#[test]
fn a_full_disk_takes_deletions_and_heals_when_there_is_space() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = Files::of(dir.path());
    let failing = Arc::new(AtomicU8::new(FINE));
    let store = open_failing(dir.path(), failing.clone());
    for key in 0..20 {
        block_on(store.commit(put(&format!("/{key}"), &"x".repeat(50_000)))).expect("the disk is fine");
    }
    // Space that was in use once can be used again.
    block_on(store.commit(Commit::default().delete("/0"))).expect("the disk is fine");
    store.compact(store.revision());
    block_on(store.commit(put("/small", &"x".repeat(1000)))).expect("the disk is fine");

    failing.store(FULL, SeqCst);
    std::fs::remove_file(&files.reserve).expect("a store has a reserve");
    std::fs::create_dir(&files.reserve).expect("so that it cannot be made again");
    let large = "x".repeat(20 << 20);
    let message = block_on(store.commit(put("/large", &large))).expect_err("there is no space").to_string();
    assert!(message.contains("only deletions"), "{message}");
    let mut health = store.health();
    for key in 1..20 {
        block_on(store.commit(Commit::default().delete(format!("/{key}")))).expect("a deletion makes room");
    }
    block_on(store.commit(put("/small", "less"))).expect("an update that adds nothing");
    block_on(store.commit(put("/new", "x"))).expect_err("what takes room is refused");
    assert!(matches!(&*health.borrow_and_update(), Health::Failing(_)));
    assert_eq!(store.count(Range::default()), Ok(1));

    failing.store(FINE, SeqCst);
    std::fs::remove_dir(&files.reserve).expect("removable");
    wait_until_fine(&store);
    block_on(store.commit(put("/large", &large))).expect("there is space again");
    assert!(files.reserve.is_file(), "the reserve is held again");
    let expect = store.range(Range::default()).expect("readable").entries;
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

/// A store whose process was killed is repaired when it is opened, which writes. On a full disk that happens in memory, and the file
/// stays as it is until there is space.
#[test]
fn a_store_that_needs_repair_starts_on_a_full_disk() {
    let (home, dir) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let store = Disk::open(home.path(), Retention::default(), Revision::ZERO).expect("a new store");
    for key in 0..20 {
        block_on(store.commit(put(&format!("/{key}"), &"x".repeat(50_000)))).expect("the disk is fine");
    }
    let expect = store.range(Range::default()).expect("readable").entries;
    let (from, files) = (Files::of(home.path()), Files::of(dir.path()));
    // As a killed process leaves them.
    std::fs::copy(&from.store, &files.store).expect("a copy");
    std::fs::copy(&from.high_water_mark, &files.high_water_mark).expect("a copy");
    drop(store);
    let before = std::fs::read(&files.store).expect("readable");

    let failing = Arc::new(AtomicU8::new(NO_WRITE));
    let opener = failing_opener(&files, failing.clone());
    let lock = hold(dir.path(), &files).expect("free");
    let loaded = load_unwritten(&files.store, Instant::now(), &opener).expect("readable");
    let (high_water_mark, _) = HighWaterMark::open(&files.high_water_mark).expect("readable").expect("there");
    let found = Found { loaded, unfolded: Vec::new(), high_water_mark, full: Some("no space left".to_owned()) };
    let store = Disk::start(&files, found, lock, Retention::default(), opener, IDLE).expect("starts");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    let message = block_on(store.commit(put("/new", "x"))).expect_err("there is no space").to_string();
    assert!(message.contains("store.redb"), "{message}");
    assert_eq!(std::fs::read(&files.store).expect("readable"), before, "the file was not touched");

    failing.store(FINE, SeqCst);
    wait_until_fine(&store);
    block_on(store.commit(put("/new", "x"))).expect("there is space again");
    let expect = store.range(Range::default()).expect("readable").entries;
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

/// The reserve can be made again, but then nothing else fits.
#[test]
fn a_full_disk_whose_reserve_just_fits_takes_deletions() {
    let dir = tempfile::tempdir().expect("a directory");
    let failing = Arc::new(AtomicU8::new(FINE));
    let store = open_failing(dir.path(), failing.clone());
    for key in 0..20 {
        block_on(store.commit(put(&format!("/{key}"), &"x".repeat(50_000)))).expect("the disk is fine");
    }
    failing.store(FULL, SeqCst);
    let large = "x".repeat(20 << 20);
    let message = block_on(store.commit(put("/large", &large))).expect_err("there is no space").to_string();
    assert!(message.contains("only deletions"), "{message}");
    for key in 0..20 {
        block_on(store.commit(Commit::default().delete(format!("/{key}")))).expect("a deletion makes room");
    }
}

#[cfg(unix)]
#[test]
fn a_data_directory_that_is_gone_acknowledges_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, away) = (home.path().join("data"), home.path().join("away"));
    let store = Disk::open(&dir, Retention::default(), Revision::ZERO).expect("a new store");
    block_on(store.commit(put("/a", "1"))).expect("commits");

    std::fs::rename(&dir, &away).expect("can be moved");
    let message = block_on(store.commit(put("/a", "2"))).expect_err("it is not there").to_string();
    assert!(message.contains("store.redb: it was deleted, moved or replaced"), "{message}");
    assert_eq!(store.get("/a", None).expect("readable").expect("there").value, "1");
    std::fs::rename(&away, &dir).expect("can be moved back");
    wait_until_fine(&store);
    block_on(store.commit(put("/a", "3"))).expect("it is there again");

    // Another store in its place is not this one; and nobody has to write for that to be noticed.
    std::fs::rename(&dir, &away).expect("can be moved");
    drop(Disk::open(&dir, Retention::default(), Revision::ZERO).expect("another store"));
    store.maintain(Instant::now());
    block_on(store.health().wait_for(|health| matches!(health, Health::Failing(_)))).expect("the store is there");
    block_on(store.commit(put("/a", "4"))).expect_err("it is another one");
    std::fs::remove_dir_all(&dir).expect("removable");
    block_on(store.commit(put("/a", "4"))).expect_err("it is gone");
    drop(store);
    let store = Disk::open(&away, Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.get("/a", None).expect("readable").expect("there").value, "3");
}

#[test]
fn a_full_queue_makes_callers_wait_and_a_closed_one_tells_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let stalled = Arc::new(AtomicU8::new(FINE));
    let store = open_failing(dir.path(), stalled.clone());
    stalled.store(STALL, SeqCst);
    let mut commits: Vec<_> = (0..1500).map(|number| store.commit(put(&format!("/{number}"), "x"))).collect();
    let waiting = commits.split_off(1024);
    let closing = std::thread::spawn(move || drop(store));
    for commit in waiting {
        let message = block_on(commit).expect_err("there was no place, and now there is no queue").to_string();
        assert!(message.contains("closed"), "{message}");
    }
    stalled.store(FINE, SeqCst);
    for (number, commit) in commits.into_iter().enumerate() {
        assert_eq!(block_on(commit).expect("what was queued is finished"), Revision(number as u64 + 1));
    }
    closing.join().expect("closes");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.revision(), Revision(1024));
}

#[test]
fn what_queues_up_during_an_fsync_shares_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let stalled = Arc::new(AtomicU8::new(FINE));
    let store = open_failing(dir.path(), stalled.clone());
    stalled.store(STALL, SeqCst);
    let commits: Vec<_> = (0..100).map(|number| store.commit(put("/a", &format!("{number}")))).collect();
    assert_eq!(store.revision(), Revision::ZERO, "nothing is visible before it is durable");
    stalled.store(FINE, SeqCst);
    for (number, commit) in commits.into_iter().enumerate() {
        assert_eq!(block_on(commit).expect("commits"), Revision(number as u64 + 1));
    }
    let DiskStats { commits, transactions } = store.stats();
    assert_eq!(commits, 100);
    // The third one takes the log into the database, if that happened yet.
    assert!(transactions <= 3, "{transactions} transactions");
}

/// A store that ended without taking its log into the database: twenty keys, of which the log has some, and what it held.
fn crashed(dir: &Path) -> Vec<Entry> {
    let failing = Arc::new(AtomicU8::new(FINE));
    drop(Disk::open(dir, Retention::default(), Revision::ZERO).expect("a new store"));
    let store = start_failing_after(Duration::MAX, dir, failing.clone());
    for number in 0..20 {
        block_on(store.commit(put(&format!("/{number}"), &format!("value {number}")))).expect("commits");
    }
    block_on(store.commit(Commit::default().delete("/7").put("/8", "other"))).expect("commits");
    let expect = store.range(Range::default()).expect("readable").entries;
    failing.store(NO_WRITE, SeqCst);
    drop(store);
    expect
}

#[test]
fn what_only_the_log_has_is_there_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = crashed(dir.path());
    for _ in 0..2 {
        let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
        assert_eq!(
            (store.range(Range::default()).expect("readable").entries, store.revision()),
            (expect.clone(), Revision(21))
        );
        let changes = store.watch("", Revision(19)).expect("can begin").take(100).expect("not compacted");
        let changed: Vec<(u64, &str)> = changes.iter().map(|change| (change.revision.0, &*change.key)).collect();
        assert_eq!(changed, [(20, "/19"), (21, "/7"), (21, "/8")]);
    }
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(block_on(store.commit(put("/a", "after"))).expect("commits"), Revision(22));
}

/// The same on a full disk: the log stays as it is until the database can take it.
#[test]
fn what_only_the_log_has_is_there_on_a_full_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = crashed(dir.path());
    let files = Files::of(dir.path());
    let failing = Arc::new(AtomicU8::new(NO_WRITE));
    let opener = failing_opener(&files, failing.clone());
    for is_full in [true, false] {
        failing.store(if is_full { NO_WRITE } else { FINE }, SeqCst);
        let lock = hold(dir.path(), &files).expect("free");
        let mut loaded = load_unwritten(&files.store, Instant::now(), &opener).expect("readable");
        let unfolded = load_log(&files.log, &mut loaded.index, Instant::now()).expect("readable");
        assert_eq!(unfolded.len(), 22);
        let (high_water_mark, _) = HighWaterMark::open(&files.high_water_mark).expect("readable").expect("there");
        let found = Found { loaded, unfolded, high_water_mark, full: Some("no space left".to_owned()) };
        let store = Disk::start(&files, found, lock, Retention::default(), opener.clone(), IDLE).expect("starts");
        assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
        if !is_full {
            wait_until_fine(&store);
        }
    }
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!((store.range(Range::default()).expect("readable").entries, store.revision()), (expect, Revision(21)));
    assert_eq!(block_on(store.commit(put("/a", "after"))).expect("commits"), Revision(22));
}

#[test]
fn a_log_that_lost_what_was_acknowledged_is_refused() {
    let check = |expect: &str, change: fn(Vec<u8>) -> Vec<u8>| {
        let dir = tempfile::tempdir().expect("a directory");
        crashed(dir.path());
        let log = Files::of(dir.path()).log;
        std::fs::write(&log, change(std::fs::read(&log).expect("readable"))).expect("writable");
        let error = Disk::open(dir.path(), Retention::default(), Revision::ZERO).err().expect("refused").to_string();
        assert!(error.contains(expect), "{error}");
    };
    check("yet revision 21 was written", |_| Vec::new());
    check("yet revision 21 was written", |log| vec![0; log.len()]);
    // The last frame, cut and changed.
    fn last_frame(log: &[u8]) -> usize {
        (0..log.len()).step_by(4096).rfind(|at| log[*at..].starts_with(b"KLOG")).expect("a frame")
    }
    check("it ends at revision 20, yet revision 21 was written", |mut log| {
        let last = last_frame(&log);
        log[last + 30] ^= 1;
        log
    });
    check("it ends at revision 20, yet revision 21 was written", |mut log| {
        let last = last_frame(&log);
        log.truncate(last + 30);
        log
    });
}

#[test]
fn a_store_that_was_closed_has_nothing_in_its_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let expect = sample(dir.path());
    std::fs::remove_file(Files::of(dir.path()).log).expect("a store has a log");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens without it");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
    assert!(Files::of(dir.path()).log.is_file(), "it has a log again");
}

/// More commits than the log has room for, one after the other.
#[test]
fn a_full_log_goes_into_the_database() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("a new store");
    for number in 0..300 {
        block_on(store.commit(put(&format!("/{number}"), &"x".repeat(number * 10)))).expect("commits");
    }
    let expect = store.range(Range::default()).expect("readable").entries;
    drop(store);
    let store = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("opens");
    assert_eq!(store.range(Range::default()).expect("readable").entries, expect);
}

/// Three commits are in the log, but were refused, because the directory was away when the high-water mark was advanced. Nothing may be
/// acknowledged in their place as long as they can be read from the log: after a crash they would continue what was.
#[cfg(unix)]
#[test]
fn what_was_refused_does_not_come_back_behind_a_later_commit() {
    let home = tempfile::tempdir().expect("a directory");
    let (dir, away, copy) = (home.path().join("data"), home.path().join("away"), home.path().join("copy"));
    drop(Disk::open(&dir, Retention::default(), Revision::ZERO).expect("a new store"));
    let fault = Arc::new(AtomicU8::new(FINE));
    let store = start_failing_after(Duration::MAX, &dir, fault.clone());
    fault.store(STALL, SeqCst);
    let wait = |is_true: &dyn Fn() -> bool| {
        for _ in 0..6000 {
            if is_true() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nothing happens");
    };
    // One that is too large for the log holds the writer up until three small ones wait, which share a frame.
    let first = store.commit(put("/first", &"x".repeat(100_000)));
    wait(&|| store.stats().transactions == 1);
    let refused: Vec<_> = (0..3).map(|number| store.commit(put(&format!("/refused/{number}"), "x"))).collect();
    fault.store(STALL_LOG, SeqCst);
    block_on(first).expect("the database works");
    wait(&|| store.stats().transactions == 2);
    std::fs::rename(&dir, &away).expect("can be moved");
    fault.store(NO_LOG, SeqCst);
    for commit in refused {
        block_on(commit).expect_err("the directory is away");
    }
    std::fs::rename(&away, &dir).expect("can be moved back");
    wait(&|| store.stats().transactions > 2);

    let crashed = || {
        let (from, to) = (Files::of(&dir), Files::of(&copy));
        make_dir(&copy).expect("a directory");
        for (from, to) in [(from.store, to.store), (from.high_water_mark, to.high_water_mark), (from.log, to.log)] {
            std::fs::copy(from, to).expect("a copy");
        }
        let store = Disk::open(&copy, Retention::default(), Revision::ZERO).expect("opens");
        let keys: Vec<_> =
            store.range(Range::default()).expect("readable").entries.into_iter().map(|it| it.key).collect();
        drop(store);
        std::fs::remove_dir_all(&copy).expect("removable");
        keys
    };
    match block_on(store.commit(put("/after", "x"))) {
        Ok(_) => assert_eq!(crashed().join(" "), "/after /first"),
        Err(error) => {
            assert!(error.to_string().contains("store.log"), "{error}");
            let all = "/first /refused/0 /refused/1 /refused/2";
            assert_eq!(crashed().join(" "), all, "refused ones may happen as long as no others did");
        }
    }
    fault.store(FINE, SeqCst);
    wait_until_fine(&store);
    block_on(store.commit(put("/last", "x"))).expect("the log can be wiped");
    let keys = crashed();
    assert!(keys.iter().all(|key| !key.starts_with("/refused")), "{keys:?}");
    assert!(keys.iter().any(|key| &**key == "/last"), "{keys:?}");
}
