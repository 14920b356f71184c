//! The data directory: what lies where, and who has it open. Every command asks here, so that they agree.
//!
//! ```text
//!   .konverge/
//!     data/        the store's
//!     certs/       the CA and the certificate of --tls
//!     kubeconfig   how to reach the server
//!     control      the socket of the running server
//!     owner        who has the store open; a hint for messages, the store's lock decides
//! ```

use std::fs;
use std::io;
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

    /// Says that this process has the store open, until the guard is dropped.
    pub fn own(&self, url: &str) -> io::Result<Owned> {
        let path = self.0.join("owner");
        fs::write(&path, format!("process {} at {url}\n", std::process::id()))?;
        Ok(Owned(path))
    }

    /// Who had the store open last, in words.
    pub fn owner(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join("owner")).ok()?;
        text.lines().next().filter(|line| !line.is_empty()).map(String::from)
    }
}

/// Removes the note when the store is closed.
#[derive(Debug)]
pub struct Owned(PathBuf);

impl Drop for Owned {
    fn drop(&mut self) {
        // A note that stays is read only if the store is locked again, and then overwritten.
        let _ = fs::remove_file(&self.0);
    }
}
