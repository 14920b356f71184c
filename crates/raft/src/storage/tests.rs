//! openraft's own conformance suite, on both storages, and what a file has to survive.

use openraft::testing::{StoreBuilder, Suite};

use super::{Disk, DiskLog, Machine, MemoryLog, StorageResult};
use crate::member::{Types, new_id};

struct InMemory;

impl StoreBuilder<Types, MemoryLog, Machine> for InMemory {
    async fn build(&self) -> StorageResult<((), MemoryLog, Machine)> {
        Ok(((), MemoryLog::default(), Machine::in_memory()))
    }
}

struct OnDisk;

impl StoreBuilder<Types, DiskLog, Machine, tempfile::TempDir> for OnDisk {
    async fn build(&self) -> StorageResult<(tempfile::TempDir, DiskLog, Machine)> {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), "test", new_id(0, 1)).unwrap();
        let machine = Machine::restored(disk.clone())?;
        Ok((folder, DiskLog(disk), machine))
    }
}

#[test]
fn the_log_in_memory_conforms() {
    Suite::test_all(InMemory).unwrap();
}

#[test]
fn the_log_on_disk_conforms() {
    Suite::test_all(OnDisk).unwrap();
}

#[test]
fn a_file_belongs_to_one_instance_of_one_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let open = |cluster: &str, ordinal, random| Disk::open(folder.path(), cluster, new_id(ordinal, random));
    let first = open("shop", 1, 5).unwrap().id();
    assert_eq!(open("shop", 1, 9).unwrap().id(), first, "a member keeps its id");
    for (cluster, ordinal) in [("shop", 2), ("other", 1)] {
        let refused = open(cluster, ordinal, 5).err().unwrap().to_string();
        assert!(refused.contains("belongs to the member with the ordinal 1 of the cluster \"shop\""), "{refused}");
    }
}

/// An empty file was a file: whoever takes it for none votes again, under an id that may have voted.
#[test]
fn an_empty_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Disk::open(folder.path(), "shop", new_id(1, 5));
    let path = folder.path().join("raft.redb");
    open().map(drop).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let refused = open().err().expect("it is refused").to_string();
    assert!(refused.contains("is empty") && refused.contains("remove it"), "{refused}");
    // What a member left that was killed while it made its file is no file.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(folder.path().join("raft.redb.new"), "half").unwrap();
    open().map(drop).unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["raft.redb"]);
}
