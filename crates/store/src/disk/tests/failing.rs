//! A disk that can be told to fail.

use super::*;

/// Files and the numbers of their blocks.
type UsedBlocks = HashSet<(std::path::PathBuf, u64)>;

/// A file whose disk can be told to fail.
#[derive(Debug)]
pub(super) struct Failing {
    file: FileBackend,
    fault: Arc<AtomicU8>,
    /// The blocks that take room already, and so can be written again on a full disk, and how many more it has room for:
    /// what the reserve took.
    used: Arc<Mutex<(UsedBlocks, usize)>>,
    path: std::path::PathBuf,
    reserve: std::path::PathBuf,
}

pub(super) const FINE: u8 = 0;
pub(super) const NO_WRITE: u8 = 1;
pub(super) const NO_SYNC: u8 = 2;
pub(super) const NO_GROWTH: u8 = 3;
pub(super) const STALL: u8 = 4;
pub(super) const FULL: u8 = 5;
/// Only the log stalls.
pub(super) const STALL_LOG: u8 = 6;
/// Only the log cannot be written.
pub(super) const NO_LOG: u8 = 7;

impl Failing {
    fn unless(&self, fault: u8) -> io::Result<()> {
        if self.fault.load(SeqCst) == fault { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }

    fn is_log(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "log")
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
        let stalls = |fault: u8| fault == STALL || fault == STALL_LOG && self.is_log();
        while stalls(self.fault.load(SeqCst)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.unless(NO_WRITE)?;
        if self.is_log() {
            self.unless(NO_LOG)?;
        }
        let blocks =
            (offset / 4096..(offset + data.len() as u64).div_ceil(4096)).map(|block| (self.path.clone(), block));
        let mut used = self.used.lock();
        let new = blocks.clone().filter(|block| !used.0.contains(block)).count();
        if self.fault.load(SeqCst) == FULL {
            let held = if self.reserve.is_file() { faults::RESERVED / 4096 } else { 0 };
            used.1.checked_sub(new + held).ok_or(io::ErrorKind::StorageFull)?;
            used.1 -= new;
        }
        used.0.extend(blocks);
        self.file.write(offset, data)
    }
}

pub(super) fn open_failing(dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    drop(Disk::open(dir, Retention::default(), Revision::ZERO).expect("a new store"));
    start_failing(dir, fault)
}

pub(super) fn start_failing(dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    start_failing_after(IDLE, dir, fault)
}

/// The same, which begins to tidy up after it was idle for so long.
pub(super) fn start_failing_after(idle: Duration, dir: &Path, fault: Arc<AtomicU8>) -> Disk {
    let files = Files::of(dir);
    let lock = hold(dir, &files).expect("free");
    let opener = failing_opener(&files, fault);
    let found = find_or_create(&files, Revision::ZERO, Instant::now(), &opener).expect("a sound store");
    Disk::start(&files, found, lock, Retention::default(), opener, idle).expect("a thread")
}

pub(super) fn failing_opener(files: &Files, fault: Arc<AtomicU8>) -> Opener {
    let used = Arc::new(Mutex::new((HashSet::new(), (4 << 20) / 4096)));
    let reserve = files.reserve.clone();
    Arc::new(move |path| {
        let file = FileBackend::new(std::fs::File::options().read(true).write(true).open(path)?);
        let file = file.map_err(io::Error::other)?;
        let (fault, used, reserve) = (fault.clone(), used.clone(), reserve.clone());
        Ok(Box::new(Failing { file, fault, used, path: path.into(), reserve }))
    })
}
