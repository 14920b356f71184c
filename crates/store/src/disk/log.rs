//! The log: a file of fixed size in which small batches of commits become durable by one write and one fsync, before they go into
//! the database together. A transaction of the database writes pages of several trees, each in another place; the log writes one or two
//! pages behind each other.
//!
//! ```text
//!   │ frame │ frame │ frame │ older frames, or nothing …      a frame begins at a page: acknowledged pages are not written
//!   └───────┴───────┴───────┘                                 again before the database has their records
//!   frame: magic · salt · length · crc32 · records            all frames of one pass have the same salt
//! ```
//!
//! In: rows. Out: the same rows, until the database has them, and after a crash those that it does not have. When the database has
//! all of them, the next pass begins at the first page with another salt, so that what is left of older passes cannot be taken for
//! its continuation. A frame that was cut short does not count, and neither does anything behind it: it was not acknowledged.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use redb::StorageBackend;

use super::{
    error::OpenError,
    faults::{Opener, SyncTracker},
    files,
    record::{decode, encode},
};
use crate::{
    Revision,
    index::{Row, Version},
};

/// The size of the file: some sixty commits of one object each, which the database takes in one transaction.
const SIZE: usize = 256 << 10;
/// Larger batches are cheaper if they go into the database at once.
const LARGEST: usize = SIZE / 8;
/// What a disk writes as a whole.
const PAGE: usize = 4 << 10;
const MAGIC: [u8; 4] = *b"KLOG";
/// Magic, salt, length, checksum.
const HEAD: usize = 4 + 8 + 4 + 4;
/// Revision, place and length of a record.
const RECORD_HEAD: usize = 8 + 4 + 4;

/// The log of an open store.
pub(super) struct Log {
    path: PathBuf,
    backend: SyncTracker,
    salt: u64,
    /// Where the next frame begins.
    end: usize,
    /// The rows that are durable here and not yet in the database, in their order.
    unfolded: Vec<Row>,
    /// An append has failed, so that what the file ends with is not known. Nothing is appended before it was wiped.
    spoiled: bool,
    frame: Vec<u8>,
    record: Vec<u8>,
}

impl Log {
    /// Opens the log of a store, and creates the file if it is not there. Nothing is appended before the database has what was
    /// found in the log.
    pub(super) fn open(
        path: &Path,
        opener: &Opener,
        sync_failed: &Arc<AtomicBool>,
        unfolded: Vec<Row>,
    ) -> io::Result<Log> {
        if unfolded.is_empty() && !std::fs::metadata(path).is_ok_and(|found| found.len() == SIZE as u64) {
            create(path)?;
        }
        let backend = SyncTracker { backend: opener(path)?, sync_failed: sync_failed.clone() };
        Ok(Log {
            path: path.into(),
            backend,
            salt: salt(),
            end: if unfolded.is_empty() { 0 } else { SIZE },
            unfolded,
            spoiled: false,
            frame: Vec::new(),
            record: Vec::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The rows that the database does not have yet.
    pub(super) fn unfolded(&self) -> &[Row] {
        &self.unfolded
    }

    /// Whether these rows are few enough for the log, and it has room for them.
    pub(super) fn has_room<'a>(&self, rows: impl Iterator<Item = &'a Row>) -> bool {
        let bytes: usize = rows.map(|row| RECORD_HEAD + 64 + row.key.len() + row.after.size()).sum();
        !self.spoiled && bytes <= LARGEST && self.end + (HEAD + bytes).next_multiple_of(PAGE) <= SIZE
    }

    /// Makes rows durable. After an error it is not known whether they are, and the log has to be wiped.
    pub(super) fn append<'a>(&mut self, rows: impl Iterator<Item = &'a Row> + Clone) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; HEAD]);
        for row in rows.clone() {
            encode(&row.key, &row.after, &mut self.record);
            let length = u32::try_from(self.record.len()).map_err(io::Error::other)?;
            self.frame.extend_from_slice(&row.after.revision.0.to_le_bytes());
            self.frame.extend_from_slice(&row.after.place.to_le_bytes());
            self.frame.extend_from_slice(&length.to_le_bytes());
            self.frame.extend_from_slice(&self.record);
        }
        let length = u32::try_from(self.frame.len() - HEAD).map_err(io::Error::other)?;
        let checksum = checksum(self.salt, length, &self.frame[HEAD..]);
        let head = [&MAGIC[..], &self.salt.to_le_bytes(), &length.to_le_bytes(), &checksum.to_le_bytes()].concat();
        self.frame[..HEAD].copy_from_slice(&head);
        self.frame.resize(self.frame.len().next_multiple_of(PAGE), 0);
        self.spoiled = true;
        self.backend.write(self.end as u64, &self.frame)?;
        self.backend.sync_data()?;
        self.spoiled = false;
        self.end += self.frame.len();
        self.unfolded.extend(rows.cloned());
        Ok(())
    }

    /// The last rows were not acknowledged after all, for another reason than the log.
    pub(super) fn spoil(&mut self, rows: usize) {
        self.unfolded.truncate(self.unfolded.len() - rows);
        self.spoiled = true;
    }

    /// The database has all rows: the next pass begins. A spoiled log is wiped for that, and stays spoiled if that fails.
    pub(super) fn folded(&mut self) -> io::Result<()> {
        self.unfolded.clear();
        if self.spoiled {
            self.wipe()?;
        }
        (self.spoiled, self.salt, self.end) = (false, salt(), 0);
        Ok(())
    }

    /// Whether the file may end with rows that were refused. Other rows must not take their revisions before it was wiped: after a crash
    /// the refused ones would continue them.
    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Makes sure that no frame is found in the file. Only for a log whose rows the database has.
    pub(super) fn wipe(&mut self) -> io::Result<()> {
        self.backend.write(0, &[0; PAGE])?;
        self.backend.sync_data()
    }
}

/// What the log of a closed store has beyond this revision, which the database ends with. The commits follow it without a gap.
pub(super) fn read(path: &Path, newest: Revision) -> Result<Vec<(Arc<str>, Version)>, OpenError> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => {
            opened.and_then(|file| file.take(SIZE as u64).read_to_end(&mut bytes)).map_err(OpenError::io(path))?
        }
    };
    let mut versions = Vec::new();
    let (mut rest, mut pass) = (bytes.as_slice(), None);
    while let Some((salt, content)) = frame(rest).filter(|(salt, _)| pass.is_none_or(|pass| pass == *salt)) {
        pass = Some(salt);
        for record in records(content) {
            let (id, record) = record.ok_or_else(|| OpenError::damaged(path, "a record in it is cut"))?;
            let version = decode(id, record).map_err(|why| {
                OpenError::damaged(path, format!("record {}.{} cannot be trusted: {why}", id.0, id.1))
            })?;
            versions.push(version);
        }
        rest = rest.get((HEAD + content.len()).next_multiple_of(PAGE)..).unwrap_or_default();
    }
    versions.retain(|(_, version)| version.revision > newest);
    match versions.first() {
        Some((_, first)) if first.revision != newest.next() => {
            let found = format!("it continues at revision {}, yet the database ends at {newest}", first.revision);
            Err(OpenError::damaged(path, found))
        }
        _ => Ok(versions),
    }
}

/// The salt and the content of the frame that begins here, if there is a whole one.
fn frame(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let rest_of_head = head.strip_prefix(&MAGIC)?;
    let (salt, rest_of_head) = rest_of_head.split_first_chunk()?;
    let (length, rest_of_head) = rest_of_head.split_first_chunk()?;
    let (salt, length) = (u64::from_le_bytes(*salt), u32::from_le_bytes(*length));
    let content = rest.get(..usize::try_from(length).ok()?)?;
    (checksum(salt, length, content).to_le_bytes() == rest_of_head).then_some((salt, content))
}

/// The records of a frame; none for one that is cut, which ends them.
fn records(mut content: &[u8]) -> impl Iterator<Item = Option<((Revision, u32), &[u8])>> {
    let mut next = move || {
        let (revision, rest) = content.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        content = rest;
        Some((((Revision(u64::from_le_bytes(*revision)), u32::from_le_bytes(*place)), record), rest.is_empty()))
    };
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let record = next();
        over = record.as_ref().is_none_or(|(_, last)| *last);
        Some(record.map(|(record, _)| record))
    })
}

fn checksum(salt: u64, length: u32, content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(content);
    hasher.finalize()
}

/// A number that nobody can foresee: what clients store may look like a frame, but not like one of the next pass.
fn salt() -> u64 {
    RandomState::new().hash_one(0)
}

/// Creates the file with all its pages, so that appending changes neither its length nor where it lies, and an fsync has nothing to
/// write but the frame. Its name is durable before anything is in it.
fn create(path: &Path) -> io::Result<()> {
    let mut file = files::private().create(true).truncate(true).open(path)?;
    let created = file.write_all(&[0; SIZE]).and_then(|()| file.sync_all()).and_then(|()| files::sync_parent(path));
    if created.is_err() {
        // Half a file only takes space, which the disk may not have.
        let _ = std::fs::remove_file(path);
    }
    created
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::disk::faults::opener;

    fn row(key: &str, revision: u64, value: Option<&str>) -> Row {
        let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
        let version = Version { revision: Revision(revision), created: Revision(revision), place: 0, value };
        Row { key: key.into(), before: None, after: Arc::new(version) }
    }

    fn open(path: &Path) -> Log {
        Log::open(path, &opener(), &Arc::default(), Vec::new()).expect("a log")
    }

    fn found(path: &Path, newest: u64) -> Vec<u64> {
        let versions = read(path, Revision(newest)).expect("readable");
        versions.iter().map(|(_, version)| version.revision.0).collect()
    }

    #[test]
    fn what_was_appended_is_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        assert_eq!(found(&path, 0), [0; 0]);
        let mut log = open(&path);
        assert_eq!(found(&path, 0), [0; 0]);
        log.append([row("/a", 8, Some("one")), row("/b", 9, None)].iter()).expect("appends");
        log.append([row("/c", 10, Some(&"x".repeat(10_000)))].iter()).expect("appends");
        assert_eq!(found(&path, 7), [8, 9, 10]);
        assert_eq!(found(&path, 9), [10]);
        assert_eq!(found(&path, 10), [0; 0]);
        let versions = read(&path, Revision(7)).expect("readable");
        let texts: Vec<_> = versions.iter().map(|(key, version)| (&**key, version.value.as_deref())).collect();
        assert_eq!(texts[..2], [("/a", Some(&b"one"[..])), ("/b", None)]);
        assert_eq!(log.unfolded().len(), 3);
        let gap = read(&path, Revision(6)).err().expect("a gap").to_string();
        assert!(gap.contains("it continues at revision 8, yet the database ends at 6"), "{gap}");
    }

    #[test]
    fn older_passes_do_not_continue_a_newer_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = open(&path);
        for revision in 1..=5 {
            log.append([row("/a", revision, Some("old"))].iter()).expect("appends");
        }
        log.folded().expect("folds");
        assert_eq!(found(&path, 5), [0; 0]);
        log.append([row("/a", 6, Some("new"))].iter()).expect("appends");
        assert_eq!(found(&path, 5), [6]);
        let gone = read(&path, Revision(0)).err().expect("the first pass is overwritten").to_string();
        assert!(gone.contains("it continues at revision 6, yet the database ends at 0"), "{gone}");
    }

    #[test]
    fn a_torn_frame_and_all_behind_it_do_not_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = open(&path);
        for revision in 1..=3 {
            log.append([row("/a", revision, Some(&"x".repeat(5000)))].iter()).expect("appends");
        }
        let whole = std::fs::read(&path).expect("readable");
        let frame = (HEAD + RECORD_HEAD + 5000).next_multiple_of(PAGE);
        // Each byte of the second frame that is not padding matters.
        for at in (frame..frame + HEAD + RECORD_HEAD + 5000).step_by(7) {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, torn).expect("writable");
            assert_eq!(found(&path, 0), [1], "byte {at}");
        }
        for length in (0..whole.len()).step_by(997) {
            std::fs::write(&path, &whole[..length]).expect("writable");
            let frames = (length / frame).min(3) as u64;
            let left = found(&path, 0).len() as u64;
            assert!(left == frames || left == frames + 1, "cut to {length}: {left}");
        }
    }

    #[test]
    fn a_wiped_log_has_nothing_and_a_full_one_no_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = open(&path);
        let small = [row("/a", 1, Some(&"x".repeat(1000)))];
        let mut appended = 0;
        while log.has_room(small.iter()) {
            log.append(small.iter()).expect("appends");
            appended += 1;
        }
        assert_eq!(appended, SIZE / PAGE);
        log.folded().expect("folds");
        assert!(log.has_room(small.iter()));
        assert!(!log.has_room([row("/a", 1, Some(&"x".repeat(LARGEST)))].iter()));
        log.append(small.iter()).expect("appends");
        log.spoil(1);
        assert!(log.unfolded().is_empty() && !log.has_room(small.iter()));
        log.folded().expect("folds");
        assert!(log.has_room(small.iter()), "it was wiped");
        assert_eq!(found(&path, 0), [0; 0]);
    }
}
