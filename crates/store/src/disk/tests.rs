//! What only the inside can show: a disk that fails, a file that is a sound database and yet not what was written, and
//! what compaction leaves on disk.

use std::{
    io,
    sync::atomic::{AtomicU8, Ordering::SeqCst},
    time::Duration,
};

use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend, TableDefinition,
    backends::FileBackend,
};

use super::*;
use crate::conformance::Dice;

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
    let told: Vec<(u64, &str)> = changes.iter().map(|change| (change.revision.0, &*change.key)).collect();
    assert_eq!(told, [(8, "/2"), (9, "/3"), (10, "/4"), (11, "/0"), (12, "/1"), (13, "/1"), (13, "/new")]);
    assert!(changes.iter().take(6).all(|change| change.before.is_some()));
}

#[test]
fn compaction_removes_records_when_idle_and_what_was_left_over_at_a_start() {
    let records = |dir: &Path| {
        let database = Database::open(Files::of(dir).store).expect("a sound database");
        let transaction = database.begin_read().expect("readable");
        transaction.open_table(RECORDS).expect("a table").len().expect("a number")
    };
    let settle = |store: &Disk| {
        for _ in 0..1000 {
            if store.desk.retired.lock().records.is_empty() {
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
    settle(&store);
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
    settle(&store);
    drop(store);
    assert_eq!(records(dir.path()), expect.len() as u64);
}

/// A file whose disk can be told to fail.
#[derive(Debug)]
struct Failing {
    file: FileBackend,
    fault: Arc<AtomicU8>,
}

const FINE: u8 = 0;
const NO_WRITE: u8 = 1;
const NO_SYNC: u8 = 2;
const NO_GROWTH: u8 = 3;
const STALL: u8 = 4;

impl Failing {
    fn unless(&self, fault: u8) -> io::Result<()> {
        if self.fault.load(SeqCst) == fault { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
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
        while self.fault.load(SeqCst) == STALL {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.unless(NO_WRITE)?;
        self.file.write(offset, data)
    }
}

fn open_failing(dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    drop(Disk::open(dir, Retention::default(), Revision::ZERO).expect("a new store"));
    let files = Files::of(dir);
    let lock = hold(dir, &files).expect("free");
    let (loaded, mark) = find_or_create(&files, Revision::ZERO, Instant::now()).expect("a sound store");
    let Loaded { tables, index, leftover } = loaded;
    let tables = tables.through(|path| {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
        Database::builder()
            .create_with_backend(Failing { file: FileBackend::new(file).expect("a file"), fault })
            .expect("a sound database")
    });
    let desk = Desk::new(index.compacted(), leftover);
    let ledger = Ledger::new(index, Retention::default());
    Disk::start(desk.clone(), Writer { desk, ledger, tables, mark, _lock: lock }).expect("a thread")
}

#[test]
fn after_a_failed_write_nothing_is_acknowledged_and_reads_go_on() {
    let mut dice = Dice::new(5);
    for fault in [NO_WRITE, NO_SYNC, NO_GROWTH] {
        let dir = tempfile::tempdir().expect("a directory");
        let failing = Arc::new(AtomicU8::new(FINE));
        let store = open_failing(dir.path(), failing.clone());
        let acknowledged = block_on(store.commit(put("/a", "1"))).expect("the disk is fine");
        let mut watch = store.watch("", acknowledged).expect("can begin");

        failing.store(fault, SeqCst);
        // Enough that the file must grow, and several, so that some share a batch.
        let large: String = (0..3 << 20).map(|_| char::from(b'a' + dice.below(26) as u8)).collect();
        let doomed: Vec<_> =
            (0..5).map(|number| store.commit(put("/a", &large).absent(format!("/absent/{number}")))).collect();
        for commit in doomed {
            let told = block_on(commit).expect_err("the disk is broken").to_string();
            assert!(told.contains("store.redb") && told.contains("broken") && told.contains("restart"), "{told}");
        }
        failing.store(FINE, SeqCst);
        let told = block_on(store.commit(put("/b", "2"))).expect_err("broken for good").to_string();
        assert!(told.contains("nothing more can be committed"), "{told}");

        assert_eq!(store.revision(), acknowledged);
        assert_eq!(store.get("/a", None).expect("readable").expect("there").value, "1");
        assert_eq!(watch.take(10), Ok(Vec::new()));
        drop(store);

        let store =
            Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("what was acknowledged is kept");
        assert!(store.revision() >= acknowledged);
        assert_eq!(store.get("/a", Some(acknowledged)).expect("readable").expect("there").value, "1");
        block_on(store.commit(put("/b", "2"))).expect("the disk is fine again");
    }
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
        let told = block_on(commit).expect_err("there was no place, and now there is no queue").to_string();
        assert!(told.contains("closed"), "{told}");
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
    assert!(transactions <= 2, "{transactions} transactions");
}
