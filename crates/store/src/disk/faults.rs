//! Detects faults of a disk: a backend that remembers a failed fsync, the identity of the files, and a reserve of space that
//! is freed when the disk is full. It decides nothing; the writer does.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use redb::{StorageBackend, backends::FileBackend};

use super::files::private;

/// Opens the database file; tests use one that simulates a failing disk.
pub(super) type Opener = Arc<dyn Fn(&Path) -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

pub(super) fn opener() -> Opener {
    Arc::new(|path| {
        let file = fs::File::options().read(true).write(true).open(path)?;
        Ok(Box::new(FileBackend::new(file).map_err(io::Error::other)?))
    })
}

/// A backend that remembers whether an fsync failed. After that, written pages may be lost although reads still return them
/// from the page cache, so this process cannot know what is on the disk.
#[derive(Debug)]
pub(super) struct SyncTracker {
    pub backend: Box<dyn StorageBackend>,
    pub sync_failed: Arc<AtomicBool>,
}

impl StorageBackend for SyncTracker {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data().inspect_err(|_| self.sync_failed.store(true, SeqCst))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

/// The identities (device and inode) of the files when the store was opened. A file that was deleted or replaced under a
/// running server still accepts writes, and all of them are lost when the process ends.
pub(super) struct FileIdentities(Vec<(PathBuf, Identity)>);

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = ();

impl FileIdentities {
    pub(super) fn of(paths: [&Path; 2]) -> io::Result<FileIdentities> {
        Ok(FileIdentities(paths.into_iter().map(|path| Ok((path.into(), identity(path)?))).collect::<io::Result<_>>()?))
    }

    /// The first path that names another file now.
    pub(super) fn replaced(&self) -> Option<&Path> {
        let gone = |(path, expected): &&(PathBuf, Identity)| identity(path).ok().as_ref() != Some(expected);
        self.0.iter().find(gone).map(|(path, _)| &**path)
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(drop)
}

/// The size of the reserve: removing a record can need a page as large as its largest neighbour, twice, and an object has
/// at most 1.5 MiB.
pub(super) const RESERVED: usize = 4 << 20;

/// A file that only occupies space. It is removed when the disk is full, so that deletions, which free space, can be written.
pub(super) struct Reserve(pub PathBuf);

impl Reserve {
    /// Writes the file if it is missing. An error means that the disk has no space for it or refuses writes.
    pub(super) fn hold(&self) -> io::Result<()> {
        if fs::metadata(&self.0).is_ok_and(|found| found.len() == RESERVED as u64) {
            return Ok(());
        }
        let written = private().create(true).truncate(true).open(&self.0).and_then(|mut file| {
            // Some file systems store zeroes as holes, which take no space.
            io::Write::write_all(&mut file, &[0x5a; RESERVED])
        });
        written.inspect_err(|_| self.release())
    }

    /// Makes it if there is room for twice as much. The room that giving it up has made is no sign that there is more: taking
    /// that again would leave nothing for deletions.
    pub(super) fn hold_with_headroom(&self) -> io::Result<()> {
        self.release();
        let headroom = Reserve(self.0.with_extension("headroom"));
        let held = self.hold().and_then(|()| headroom.hold());
        headroom.release();
        held.inspect_err(|_| self.release())
    }

    pub(super) fn release(&self) {
        // Without it there is nothing to release; nobody else can do more.
        let _ = fs::remove_file(&self.0);
    }
}
