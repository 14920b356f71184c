//! The data directory: which files it has, and which process uses it. All commands get the paths from here.
//!
//! ```text
//!   .konverge/
//!     data/        the store's
//!     certs/       the CA and the certificate of --tls
//!     token        the token of the kubeconfig
//!     service-account.key   signs tokens of service accounts
//!     kubeconfig   how to reach the server
//!     control      the socket of the running server
//!     dev.log      what `konverge dev` in a project said; dev.log.1 is what it said before that
//!     owner        locked by the server that uses the directory; contains its process id and URL
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A data directory.
#[derive(Clone, Debug)]
pub(crate) struct DataDir(PathBuf);

impl DataDir {
    pub(crate) fn new(directory: &Path) -> Self {
        DataDir(directory.into())
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(crate) fn certificates(&self) -> PathBuf {
        self.0.join("certs")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    pub(crate) fn service_account_key(&self) -> PathBuf {
        self.0.join("service-account.key")
    }

    /// The newest first.
    pub(crate) fn dev_logs(&self) -> [PathBuf; 2] {
        [self.0.join("dev.log"), self.0.join("dev.log.1")]
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Locks the directory for this process, until the returned lock is dropped or the process ends in any way.
    pub(crate) fn lock(&self) -> Result<DataDirLock, LockError> {
        let path = self.0.join("owner");
        let failed = |source| LockError::Io { directory: self.0.clone(), source };
        self.make().map_err(failed)?;
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(DataDirLock { file }),
            Err(TryLockError::WouldBlock) => {
                let owner = self.owner().unwrap_or_else(|| "a server that is starting".to_owned());
                Err(LockError::Taken { directory: self.0.clone(), owner })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Makes the directory, for the user of this process alone. What is in it decides who may do what, so whoever else could have
    /// written into it could have given themselves the server.
    #[cfg(unix)]
    fn make(&self) -> io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let (metadata, user) = (fs::metadata(&self.0)?, rustix::process::geteuid().as_raw());
        let mode = metadata.mode() & 0o7777;
        if let Some(why) = foreign(metadata.uid(), mode, user) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        if mode & 0o022 != 0 && metadata.uid() == user {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode & !0o022))?;
        }
        Ok(())
    }

    #[cfg(not(unix))]
    fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }

    /// The server that has the lock, for error messages.
    pub(crate) fn owner(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join("owner")).ok()?;
        text.lines().next().filter(|line| !line.is_empty()).map(String::from)
    }
}

/// Why a directory of this owner and mode is not used by a user. The administrator may do everything anyway, and makes directories for
/// others: a volume of a Pod belongs to root, and the group of the Pod may write into it.
#[cfg(unix)]
fn foreign(owner: u32, mode: u32, user: u32) -> Option<String> {
    let whose = match owner {
        _ if owner == user => return None,
        0 if mode & 0o002 == 0 => return None,
        0 => "every user of this machine may write into it, and so".to_owned(),
        _ => format!("it belongs to the user {owner}, who"),
    };
    Some(format!(
        "{whose} could give themselves every right on this server, and this process runs as {user}; run it as the owner of the directory, \
         make the directory yours with chown, or choose another one with --data-dir DIR"
    ))
}

/// Why the data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    #[error(
        "{} is in use: {owner}; stop that server, or give this one a directory of its own with --data-dir DIR",
        directory.display()
    )]
    Taken { directory: PathBuf, owner: String },
    #[error("the data directory {} cannot be used", directory.display())]
    Io { directory: PathBuf, source: io::Error },
}

/// The lock of a data directory. The lock ends with the process, but the file stays: a second process could lock a new file
/// of the same name.
#[derive(Debug)]
pub(crate) struct DataDirLock {
    file: File,
}

impl DataDirLock {
    /// Writes the process id and the URL into the lock file, for error messages of other processes.
    pub(crate) fn publish(&self, url: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        (&self.file).write_all(format!("process {} at {url}\n", std::process::id()).as_bytes())
    }
}

impl Drop for DataDirLock {
    fn drop(&mut self) {
        // A failure is harmless: the content is read only while somebody has the lock, who then overwrites it.
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = DataDir::new(&folder.path().join("new/data_dir"));
        let lock = data_dir.lock().expect("nobody has it");
        let refused = data_dir.lock().expect_err("somebody has it").to_string();
        assert!(refused.contains("is in use: a server that is starting;"), "{refused}");
        lock.publish("http://127.0.0.1:1").expect("a note");
        let refused = data_dir.lock().expect_err("somebody has it").to_string();
        let owner = format!("is in use: process {} at http://127.0.0.1:1; stop", std::process::id());
        assert!(refused.contains(&owner), "{refused}");
        drop(lock);
        data_dir.lock().expect("nobody has it any more");
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_is_its_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| fs::metadata(path).expect("a directory").permissions().mode() & 0o777;
        let (fresh, shared) = (folder.path().join("fresh"), folder.path().join("shared"));
        drop(DataDir::new(&fresh).lock().expect("it is made"));
        assert_eq!(mode(&fresh), 0o700);
        fs::create_dir(&shared).expect("a directory");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("a mode");
        drop(DataDir::new(&shared).lock().expect("it is ours"));
        assert_eq!(mode(&shared), 0o755);
        assert_eq!(foreign(7, 0o777, 7), None);
        assert_eq!(foreign(0, 0o2775, 7), None, "a volume of a Pod");
        assert!(
            foreign(0, 0o777, 7).is_some_and(|why| why.starts_with("every user of this machine may write into it"))
        );
        assert!(foreign(65534, 0o700, 0).is_some_and(|why| why.starts_with("it belongs to the user 65534")));
    }
}
