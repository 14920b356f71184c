//! Backups: consistent while commits go on, verified before they are used, never over something.

use std::{fs, path::Path};

use konverge_store::{
    BackupError, Commit, CommitError, Disk, Entry, Memory, Range, ReadError, RestoreError, Retention, Revision, Store,
    restore,
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn fill(store: &dyn Store, commits: usize) {
    for number in 0..commits {
        let commit =
            Commit::default().put(format!("/a/{}", number % 20), format!("{number}")).put("/last", format!("{number}"));
        block_on(store.commit(commit)).expect("commits");
    }
    block_on(store.commit(Commit::default().delete("/a/3"))).expect("commits");
}

fn entries(store: &dyn Store) -> Vec<Entry> {
    store.range(Range::default()).expect("readable").entries
}

#[test]
fn a_restored_store_is_the_same_and_goes_on() {
    let home = tempfile::tempdir().expect("a directory");
    let check = |name: &str, store: &dyn Store| {
        fill(store, 50);
        let file = home.path().join(name);
        let revision = store.backup(&file).expect("a backup");
        assert_eq!(revision, store.revision());
        let before = entries(store);
        block_on(store.commit(Commit::default().put("/later", "x"))).expect("commits");

        let dir = home.path().join(format!("{name}.data"));
        let begin = Revision(1_000_000);
        assert_eq!(restore(&file, &dir, begin).expect("restores"), begin);
        let restored = Disk::open(&dir, Retention::default(), Revision::ZERO).expect("opens");
        assert_eq!(entries(&restored), before);
        // The original went on: what clients saw there is compacted here, and no revision is given twice.
        assert_eq!((restored.revision(), restored.oldest()), (begin, begin));
        for foreign in [Revision::ZERO, revision, store.revision(), begin.previous()] {
            assert!(matches!(restored.watch("", foreign), Err(ReadError::Compacted { .. })), "watch after {foreign}");
            assert!(matches!(restored.get("/last", Some(foreign)), Err(ReadError::Compacted { .. })), "at {foreign}");
        }
        let stale = Commit::default().unchanged("/later", store.revision()).put("/later", "z");
        assert!(matches!(block_on(restored.commit(stale)), Err(CommitError::Conflict { found: None, .. })));
        let mut watch = restored.watch("", begin).expect("can begin");
        let next = block_on(restored.commit(Commit::default().put("/later", "y"))).expect("commits");
        assert_eq!(next, begin.next());
        assert_eq!(watch.take(9).map(|changes| changes.len()), Ok(1));
        // And a copy of the copy.
        assert_eq!(restored.backup(&home.path().join(format!("{name}.again"))).expect("a backup"), next);
    };
    check("memory", &Memory::default());
    check(
        "disk",
        &Disk::open(home.path().join("original"), Retention::default(), Revision::ZERO).expect("a new store"),
    );
    check("forgetful", &Memory::new(Retention { changes: 3, ..Retention::default() }, Revision::ZERO));
    let left: Vec<_> =
        fs::read_dir(home.path()).expect("readable").map(|file| file.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn an_empty_store_can_be_backed_up() {
    let home = tempfile::tempdir().expect("a directory");
    let (file, dir) = (home.path().join("empty"), home.path().join("data"));
    assert_eq!(Memory::default().backup(&file).expect("a backup"), Revision(0));
    assert_eq!(restore(&file, &dir, Revision::ZERO).expect("restores"), Revision(1));
    assert_eq!(Disk::open(&dir, Retention::default(), Revision::ZERO).expect("opens").revision(), Revision(1));
}

#[test]
fn a_restored_store_never_goes_back_behind_its_backup() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("backup");
    let store = Memory::new(Retention::default(), Revision(5000));
    fill(&store, 10);
    let revision = store.backup(&file).expect("a backup");
    let check = |name: &str, begin: Revision, expect: Revision| {
        let dir = home.path().join(name);
        assert_eq!(restore(&file, &dir, begin).expect("restores"), expect);
        assert_eq!(Disk::open(&dir, Retention::default(), Revision::ZERO).expect("opens").revision(), expect);
    };
    check("the clock was set back", Revision(17), revision.next());
    check("at the same time", revision, revision.next());
    check("later", Revision(9000), Revision(9000));
}

/// Each commit rewrites all keys, so a backup that mixes two commits would show two values.
#[test]
fn a_backup_is_of_one_moment() {
    let home = tempfile::tempdir().expect("a directory");
    let store = Memory::default();
    let round =
        |number: usize| (0..3000).fold(Commit::default(), |all, key| all.put(format!("/{key}"), format!("{number}")));
    block_on(store.commit(round(0))).expect("commits");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| (1..60).for_each(|number| drop(block_on(store.commit(round(number))))));
        for number in 0..4 {
            let (file, dir) = (home.path().join(format!("{number}")), home.path().join(format!("{number}.data")));
            let revision = store.backup(&file).expect("a backup");
            restore(&file, &dir, Revision::ZERO).expect("restores");
            let restored = entries(&Disk::open(&dir, Retention::default(), Revision::ZERO).expect("opens"));
            assert_eq!(restored.len(), 3000);
            assert!(restored.iter().all(|entry| entry.value == restored[0].value && entry.revision == revision));
        }
        writing.join().expect("the commits succeed");
    });
}

#[test]
fn nothing_is_overwritten_and_nothing_damaged_is_restored() {
    let home = tempfile::tempdir().expect("a directory");
    let path = |name: &str| home.path().join(name);
    let store = Memory::default();
    fill(&store, 10);
    store.backup(&path("good")).expect("a backup");

    fs::write(path("taken"), "precious").expect("writable");
    assert!(matches!(store.backup(&path("taken")), Err(BackupError::Exists { file }) if file == path("taken")));
    assert_eq!(fs::read_to_string(path("taken")).expect("readable"), "precious");
    assert!(matches!(store.backup(&path("no/such/dir")), Err(BackupError::Io { .. })));

    fs::create_dir(path("full")).expect("writable");
    fs::write(path("full/precious"), "").expect("writable");
    assert!(
        matches!(restore(&path("good"), &path("full"), Revision::ZERO), Err(RestoreError::NotEmpty { dir }) if dir == path("full"))
    );
    assert!(
        matches!(restore(&path("missing"), &path("new"), Revision::ZERO), Err(RestoreError::Io { path: named, .. }) if named == path("missing"))
    );

    let good = fs::read(path("good")).expect("readable");
    let refuse = |name: &str, content: &[u8]| {
        fs::write(path(name), content).expect("writable");
        let target = path(&format!("{name}.data"));
        let error = restore(&path(name), &target, Revision::ZERO).expect_err("damaged");
        assert!(matches!(&error, RestoreError::Unusable { backup, .. } if *backup == path(name)), "{error}");
        assert!(is_empty(&target), "{name}: a failed restore leaves nothing behind");
    };
    refuse("empty", b"");
    refuse("text", b"this is not a backup");
    refuse("half", &good[..good.len() / 2]);
    refuse("zeroed", &vec![0; good.len()]);
    let at = good.windows(5).position(|window| window == b"/last").expect("the key is in there");
    let mut flipped = good.clone();
    flipped[at] ^= 0x20;
    refuse("flipped", &flipped);

    restore(&path("good"), &path("fine"), Revision::ZERO).expect("the original still is good");
}

#[test]
fn a_restore_that_was_cut_short_does_not_start_empty() {
    let home = tempfile::tempdir().expect("a directory");
    let store = Memory::default();
    fill(&store, 10);
    store.backup(&home.path().join("good")).expect("a backup");
    let dir = home.path().join("data");
    fs::create_dir(&dir).expect("writable");
    // Killed while copying, and after the copy had its name but no mark yet.
    for leftover in ["store.redb.restoring", "store.redb"] {
        fs::copy(home.path().join("good"), dir.join(leftover)).expect("a copy");
        let error = Disk::open(&dir, Retention::default(), Revision::ZERO).err().expect("refused").to_string();
        assert!(error.contains("restore a backup into an empty directory"), "{error}");
        fs::remove_file(dir.join(leftover)).expect("removable");
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).expect("readable").next().is_none()
}
