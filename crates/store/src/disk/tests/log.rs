//! What only the log of small commits has: after a crash, on a full disk, and when it is damaged.

use super::*;

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
