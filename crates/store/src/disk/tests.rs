//! What only the inside can show: a disk that fails, a file that is a sound database and yet not what was written, and
//! what compaction leaves on disk.

mod failing;
mod log;

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
use failing::*;

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
