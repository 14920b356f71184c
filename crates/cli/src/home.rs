//! The data directory: what lies where, and who has it open. Every command asks here, so that they agree.
//!
//! ```text
//!   .konverge/
//!     data/        the store's
//!     certs/       the CA and the certificate of --tls
//!     kubeconfig   how to reach the server
//!     control      the socket of the running server
//!     owner        locked by the server that uses the directory, and says where it is
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A data directory.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    pub fn new(directory: &Path) -> Self {
        Home(directory.into())
    }

    pub fn store(&self) -> PathBuf {
        self.0.join("data")
    }

    pub fn certificates(&self) -> PathBuf {
        self.0.join("certs")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Takes the directory for this process, until the guard is dropped or the process ends in whatever way.
    pub fn own(&self) -> Result<Owned, OwnError> {
        let path = self.0.join("owner");
        let failed = |source| OwnError::Io { directory: self.0.clone(), source };
        fs::create_dir_all(&self.0).map_err(failed)?;
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Owned { file }),
            Err(TryLockError::WouldBlock) => {
                let owner = self.owner().unwrap_or_else(|| "a server that is starting".to_owned());
                Err(OwnError::Taken { directory: self.0.clone(), owner })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Who has the directory, in words.
    pub fn owner(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join("owner")).ok()?;
        text.lines().next().filter(|line| !line.is_empty()).map(String::from)
    }
}

/// Why a directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    #[error(
        "{} is in use: {owner}; stop that server, or give this one a directory of its own with --data-dir DIR",
        directory.display()
    )]
    Taken { directory: PathBuf, owner: String },
    #[error("the data directory {} cannot be used", directory.display())]
    Io { directory: PathBuf, source: io::Error },
}

/// A directory that this process has. The lock ends with the process; the file stays, because a lock on a file that
/// somebody removes guards nothing.
#[derive(Debug)]
pub struct Owned {
    file: File,
}

impl Owned {
    /// Tells others where the owner can be reached.
    pub fn reachable_at(&self, url: &str) -> io::Result<()> {
        self.file.set_len(0)?;
        (&self.file).write_all(format!("process {} at {url}\n", std::process::id()).as_bytes())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A note that stays is read only if the directory is taken again, and then overwritten.
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::new(&folder.path().join("new/home"));
        let owned = home.own().expect("nobody has it");
        let refused = home.own().expect_err("somebody has it").to_string();
        assert!(refused.contains("is in use: a server that is starting;"), "{refused}");
        owned.reachable_at("http://127.0.0.1:1").expect("a note");
        let refused = home.own().expect_err("somebody has it").to_string();
        let owner = format!("is in use: process {} at http://127.0.0.1:1; stop", std::process::id());
        assert!(refused.contains(&owner), "{refused}");
        drop(owned);
        home.own().expect("nobody has it any more");
    }
}
