//! Backups of a store in one file, and restoring them. A backup is a database like that of a store on disk, without history,
//! so the same loader verifies both. A backup never replaces a file, and a restored directory is not usable before it is
//! verified.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Instant,
};

use thiserror::Error;

use crate::{
    OpenError, Page, Revision,
    disk::{Files, HighWaterMark, Loaded, Tables, load, make_dir, private, sync_parent},
};

/// Why a backup was not written.
#[derive(Debug, Error)]
pub enum BackupError {
    /// A file of that name exists; it was not changed.
    #[error("{}: already there, and a backup never replaces a file: choose another name", file.display())]
    Exists {
        /// The requested file.
        file: PathBuf,
    },
    /// The copy could not be written.
    #[error("{}: the backup could not be written; check the directory and its free space", file.display())]
    Io {
        /// The requested file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Why a backup was not restored. The data directory is as it was before.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The directory is not empty.
    #[error("{}: not empty, and a restore never replaces data: choose an empty directory", dir.display())]
    NotEmpty {
        /// The data directory.
        dir: PathBuf,
    },
    /// The backup is damaged, or a newer program wrote it.
    #[error("{}: this backup cannot be used: {found}", backup.display())]
    Unusable {
        /// The backup.
        backup: PathBuf,
        /// What is wrong with the backup.
        found: String,
    },
    /// A file or directory could not be read or written.
    #[error("{}: cannot be used; check that it exists, its permissions and the disk", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes a snapshot to a new file, which gets its name only when it is complete and synced.
pub(crate) fn write(snapshot: &Page, to: &Path) -> Result<Revision, BackupError> {
    let fail = |source| match io::Error::kind(&source) {
        io::ErrorKind::AlreadyExists => BackupError::Exists { file: to.into() },
        _ => BackupError::Io { file: to.into(), source },
    };
    if fs::symlink_metadata(to).is_ok() {
        return Err(fail(io::ErrorKind::AlreadyExists.into()));
    }
    let partial = Partial::beside(to);
    drop(private().create_new(true).open(&partial.0).map_err(fail)?);
    Tables::create(&partial.0, snapshot, Revision::ZERO).map_err(|error| fail(io::Error::other(error)))?;
    // Linking, unlike renaming, fails if the name was taken in the meantime; not every file system has links.
    match fs::hard_link(&partial.0, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&partial.0, to),
        result => result,
    }
    .map_err(fail)?;
    sync_parent(to).map_err(fail)?;
    Ok(snapshot.revision)
}

/// Restores a backup into a directory that is empty or does not exist. Returns the revision from which the store continues.
///
/// After the backup was made, clients may have seen revisions that it does not contain. So the restored store continues from
/// `begin`, usually [`Revision::begin`], and everything before that counts as compacted: a client with a revision of the old
/// history gets an error and reads everything again. The store never continues from a revision before the backup, whatever
/// `begin` is. Entries of the backup keep their revisions.
///
/// ```
/// use konverge_store::{Commit, Disk, Memory, Retention, Revision, Store, restore};
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path();
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Memory::default();
/// store.commit(Commit::default().put("/a", "1")).await?;
/// store.backup(&dir.join("monday.backup"))?;
///
/// let begin = Revision::begin(std::time::SystemTime::now());
/// let revision = restore(&dir.join("monday.backup"), &dir.join("data"), begin)?;
/// let store = Disk::open(dir.join("data"), Retention::default(), begin)?;
/// assert_eq!((store.revision(), store.oldest()), (revision, revision));
/// assert_eq!(store.get("/a", None)?.unwrap().value, "1");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn restore(backup: &Path, dir: &Path, begin: Revision) -> Result<Revision, RestoreError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| RestoreError::Io { path: path.clone(), source }
    };
    let mut from = fs::File::open(backup).map_err(fail(backup))?;
    make_dir(dir).map_err(fail(dir))?;
    if fs::read_dir(dir).map_err(fail(dir))?.next().is_some() {
        return Err(RestoreError::NotEmpty { dir: dir.into() });
    }
    let files = Files::of(dir);
    let copy = Partial(files.restoring);
    let mut to = private().create_new(true).open(&copy.0).map_err(fail(&copy.0))?;
    io::copy(&mut from, &mut to).and_then(|_| to.sync_all()).map_err(fail(&copy.0))?;
    let revision =
        verify_and_skip(&copy.0, begin).map_err(|found| RestoreError::Unusable { backup: backup.into(), found })?;
    fs::rename(&copy.0, &files.store).and_then(|()| sync_parent(&files.store)).map_err(fail(&files.store))?;
    HighWaterMark::create(&files.high_water_mark, revision)
        .map_err(|error| fail(&files.high_water_mark)(io::Error::other(error)))?;
    Ok(revision)
}

/// Verifies a copy and returns the revision from which it continues, or what is wrong with it.
fn verify_and_skip(copy: &Path, begin: Revision) -> Result<Revision, String> {
    match load(copy, Instant::now()) {
        Ok(Loaded { mut tables, .. }) => {
            let newest = begin.max(tables.newest().next());
            tables.skip_to(newest).map_err(|error| error.to_string())?;
            Ok(newest)
        }
        Err(OpenError::Damaged { found, .. }) => Err(found),
        Err(OpenError::Newer { format, known, .. }) => Err(format!("it is of format {format}, and {known} is known")),
        Err(error @ (OpenError::Io { .. } | OpenError::Full { .. } | OpenError::Held { .. })) => Err(error.to_string()),
    }
}

/// A file that is renamed when it is complete, and removed otherwise.
struct Partial(PathBuf);

impl Partial {
    /// A file in the same directory, so that it can be linked, with a name that no other backup uses.
    fn beside(to: &Path) -> Partial {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}-{}.partial", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        Partial(name.into())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The file does not exist any more if it was renamed; another error cannot be reported here.
        let _ = fs::remove_file(&self.0);
    }
}
