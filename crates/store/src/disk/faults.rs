//! Detects faults of a disk: a backend that remembers a failed fsync, one that writes nothing, the identity of the files, and a
//! reserve of space that is freed when the disk is full. It decides nothing; the writer does.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use parking_lot::Mutex;
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

/// Whether a write failed for want of space: on the disk, in a quota, or under the limit of file sizes (`ulimit -f`).
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// A backend that reads a file and keeps in memory what is written, so that a database can be repaired and read on a full disk.
/// The file stays as it is.
#[derive(Debug)]
pub(super) struct Unwritten {
    file: Box<dyn StorageBackend>,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    len: u64,
    /// How much of the file is still to be seen: what was cut off once is zero afterwards.
    file_len: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

/// The size of a block of [`Unwritten`]: a page of redb, which writes whole pages most of the time.
const BLOCK: usize = 4096;

impl Unwritten {
    pub(super) fn new(file: Box<dyn StorageBackend>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, written: Mutex::new(Written { len, file_len: len, blocks: BTreeMap::new() }) })
    }

    /// The bytes of the file from `offset`; zeroes after its end.
    fn read_file(&self, file_len: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(file_len.saturating_sub(offset)).map_or(out.len(), |there| there.min(out.len()));
        out[there..].fill(0);
        if there == 0 { Ok(()) } else { self.file.read(offset, &mut out[..there]) }
    }
}

/// The blocks of a range of bytes: the number of each, where the range begins in it, and which part of the range it has.
fn blocks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < len).then(|| {
            let (number, within) =
                ((offset + at as u64) / BLOCK as u64, ((offset + at as u64) % BLOCK as u64) as usize);
            let part = at..len.min(at + BLOCK - within);
            at = part.end;
            (number, within, part)
        })
    })
}

impl StorageBackend for Unwritten {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.lock();
        if offset + out.len() as u64 > written.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, within, part) in blocks(offset, out.len()) {
            let out = &mut out[part.clone()];
            match written.blocks.get(&number) {
                Some(block) => out.copy_from_slice(&block[within..within + out.len()]),
                None => self.read_file(written.file_len, offset + part.start as u64, out)?,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        (written.len, written.file_len) = (len, written.file_len.min(len));
        let first_gone = len.div_ceil(BLOCK as u64);
        written.blocks.split_off(&first_gone);
        if let Some(last) = written.blocks.get_mut(&(len / BLOCK as u64)) {
            last[(len % BLOCK as u64) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        let file_len = written.file_len;
        for (number, within, part) in blocks(offset, data.len()) {
            let block = match written.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(missing) => {
                    let mut block = Box::new([0; BLOCK]);
                    self.read_file(file_len, number * BLOCK as u64, &mut *block)?;
                    missing.insert(block)
                }
            };
            block[within..within + part.len()].copy_from_slice(&data[part]);
        }
        written.len = written.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
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
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<FileIdentities> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The same steps on the backend and on plain bytes: the backend shows the same, and the file stays.
    #[test]
    fn what_is_not_written_can_be_read() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let content: Vec<u8> = (0..3 * BLOCK + 100).map(|at| (at % 251) as u8).collect();
        fs::write(file.path(), &content).expect("writable");
        let backend = Unwritten::new(opener()(file.path()).expect("a file")).expect("a length");
        let mut expect = content.clone();
        let check = |expect: &[u8]| {
            assert_eq!(backend.len().expect("known"), expect.len() as u64);
            for (offset, len) in
                [(0, expect.len()), (BLOCK - 3, 7), (BLOCK, 1), (expect.len() - 5, 5), (17, BLOCK + 100)]
            {
                let mut out = vec![0xee; len];
                backend.read(offset as u64, &mut out).expect("within");
                assert_eq!(out, expect[offset..offset + len], "{len} bytes at {offset}");
            }
            assert!(backend.read(expect.len() as u64 - 1, &mut [0; 2]).is_err(), "past the end");
        };
        check(&expect);
        for (offset, len) in [(5, 3), (BLOCK - 1, 2), (BLOCK, 2 * BLOCK), (3 * BLOCK + 50, 500)] {
            backend.write(offset as u64, &vec![0xaa; len]).expect("in memory");
            let end = expect.len().max(offset + len);
            expect.resize(end, 0);
            expect[offset..offset + len].fill(0xaa);
            check(&expect);
        }
        // What was cut off is zero, both in what was written and in what was not.
        for len in [4 * BLOCK, 2 * BLOCK + 9, 5 * BLOCK] {
            backend.set_len(len as u64).expect("in memory");
            expect.resize(len, 0);
            check(&expect);
        }
        assert_eq!(fs::read(file.path()).expect("readable"), content);
    }
}
