//! The crate from outside: both backends against the conformance suite, backups, and a disk that lies.

mod backup;
mod corruption;

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use konverge_store::{Commit, Disk, Memory, OpenError, ReadError, Retention, Revision, Store, conformance};

#[test]
fn memory_conforms() {
    conformance::suite(Memory::default);
    for seed in 100..400 {
        conformance::random_walk(&Memory::default(), seed, 300);
    }
}

#[test]
fn disk_conforms() {
    let home = tempfile::tempdir().expect("a directory");
    let next = std::cell::Cell::new(0);
    conformance::suite(|| {
        next.set(next.get() + 1);
        Disk::open(home.path().join(next.get().to_string()), Retention::default(), Revision::ZERO).expect("a new store")
    });
}

#[test]
fn a_store_begins_where_nobody_has_been() {
    let home = tempfile::tempdir().expect("a directory");
    let begin = Revision::begin(UNIX_EPOCH + Duration::from_micros(1_767_323_045_000_017));
    assert_eq!(begin, Revision(1_767_323_045_000_017));
    assert_eq!(Revision::begin(UNIX_EPOCH - Duration::from_secs(1)), Revision::ZERO, "a clock that was never set");
    let disk = || Disk::open(home.path(), Retention::default(), begin).expect("opens");
    let check = |store: &dyn Store| {
        assert_eq!((store.revision(), store.oldest()), (begin, begin));
        let compacted = ReadError::Compacted { asked: Revision(7), oldest: begin };
        assert_eq!(store.watch("", Revision(7)).err(), Some(compacted));
        assert_eq!(store.get("/a", Some(Revision(7))), Err(compacted));
        let mut watch = store.watch("", begin).expect("can begin");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(store.commit(Commit::default().put("/a", "1"))).expect("commits"), begin.next());
        assert_eq!(watch.take(9).map(|changes| changes.len()), Ok(1));
    };
    check(&Memory::new(Retention::default(), begin));
    check(&disk());
    // One that is there goes on, whatever the clock says.
    let later = Disk::open(home.path(), Retention::default(), Revision(begin.0 + 1000)).expect("opens");
    assert_eq!(later.revision(), begin.next());
    drop(later);
    // Without its mark a store is refused, unless it is as new as on its first day.
    let high_water_mark = home.path().join("store.mark");
    std::fs::remove_file(&high_water_mark).expect("removable");
    assert!(Disk::open(home.path(), Retention::default(), begin).is_err());
    std::fs::remove_file(home.path().join("store.redb")).expect("removable");
    drop(disk());
    std::fs::remove_file(&high_water_mark).expect("removable");
    assert_eq!(disk().revision(), begin);
}

#[test]
fn a_watch_and_a_commit_can_move_between_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let mut watch = store.watch("/a", Revision(0)).expect("can begin");
    let watching = runtime.spawn(async move { watch.next(1).await.map(|changes| changes[0].revision) });
    let committing = runtime.spawn(store.commit(Commit::default().put("/a", "1")));
    runtime.block_on(committing).expect("joins").expect("commits");
    assert_eq!(runtime.block_on(watching).expect("joins"), Ok(Revision(1)));
}

#[test]
fn a_second_opener_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("a new store");
    let error = Disk::open(dir.path(), Retention::default(), Revision::ZERO).err().expect("held");
    assert!(matches!(&error, OpenError::Held { dir: named } if named == dir.path()));
    assert!(error.to_string().contains("another process holds"), "{error}");
    drop(first);
    assert_eq!(
        Store::revision(&Disk::open(dir.path(), Retention::default(), Revision::ZERO).expect("free")),
        Revision(0)
    );
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("data");
    drop(Disk::open(&dir, Retention::default(), Revision::ZERO).expect("a new store"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in std::fs::read_dir(&dir).expect("readable") {
        assert_eq!(mode(&file.expect("an entry").path()), 0o600);
    }
}
