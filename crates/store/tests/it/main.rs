//! The crate from outside: both backends against the conformance suite, backups, and a disk that lies.

mod backup;
mod corruption;

use std::sync::Arc;

use konverge_store::{Commit, Disk, Memory, OpenError, Retention, Revision, Store, conformance};

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
        Disk::open(home.path().join(next.get().to_string()), Retention::default()).expect("a new store")
    });
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
    let first = Disk::open(dir.path(), Retention::default()).expect("a new store");
    let error = Disk::open(dir.path(), Retention::default()).err().expect("held");
    assert!(matches!(&error, OpenError::Held { dir: named } if named == dir.path()));
    assert!(error.to_string().contains("another process holds"), "{error}");
    drop(first);
    assert_eq!(Store::revision(&Disk::open(dir.path(), Retention::default()).expect("free")), Revision(0));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("data");
    drop(Disk::open(&dir, Retention::default()).expect("a new store"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in std::fs::read_dir(&dir).expect("readable") {
        assert_eq!(mode(&file.expect("an entry").path()), 0o600);
    }
}
