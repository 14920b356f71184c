//! The files of a data directory, and how they are created durably: private to their owner, complete before they get their
//! name, and with the name itself synced.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

/// The files of one data directory.
pub(crate) struct Files {
    /// The database.
    pub store: PathBuf,
    /// Small commits that are durable and not yet in the database.
    pub log: PathBuf,
    /// The witness beside it.
    pub high_water_mark: PathBuf,
    /// Locked by the process that has the store open; says nothing by its content.
    pub lock: PathBuf,
    /// Space that is held back for a disk that is full.
    pub reserve: PathBuf,
    /// A database being made; never holds anything acknowledged.
    pub new: PathBuf,
    /// A backup being restored; there only if that was cut short.
    pub restoring: PathBuf,
}

impl Files {
    pub(crate) fn of(dir: &Path) -> Files {
        Files {
            store: dir.join("store.redb"),
            log: dir.join("store.log"),
            high_water_mark: dir.join("store.mark"),
            lock: dir.join("store.lock"),
            reserve: dir.join("store.reserve"),
            new: dir.join("store.redb.new"),
            restoring: dir.join("store.redb.restoring"),
        }
    }
}

/// Makes the directory, for its owner only: a store holds secrets.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)?;
    sync_parent(dir)
}

/// Options for a file that only its owner can read.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the names in a directory durable, which syncing a file does not.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) => Path::new("."),
        None => return Ok(()),
    };
    if cfg!(unix) { File::open(parent)?.sync_all() } else { Ok(()) }
}
