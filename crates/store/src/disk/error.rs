//! Why a store on disk cannot be opened. Each message names the file, what is wrong with it and what to do. A store
//! that cannot be opened is never replaced by an empty one.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::faults::is_full;

/// Why a store on disk was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{}: another process holds this data directory; stop it or choose another directory", dir.display())]
    Held {
        /// The data directory.
        dir: PathBuf,
    },
    /// The data is not what was written, or not all of it is there.
    #[error(
        "{}: {found}; refusing to start, for acknowledged data may be missing: \
         restore a backup into an empty directory",
        file.display()
    )]
    Damaged {
        /// The file that is damaged or missing.
        file: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// A newer program wrote it.
    #[error(
        "{}: written in format {format}, and this program knows formats up to {known}: use the newer program",
        file.display()
    )]
    Newer {
        /// The file that says so.
        file: PathBuf,
        /// The format it is in.
        format: u64,
        /// The newest format known here.
        known: u64,
    },
    /// The disk is full, and the store cannot even be read without some space. A store that exists usually needs none.
    #[error("{}: cannot be written, because the disk is full: free some space and start again; nothing is lost", path.display())]
    Full {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system refused.
    #[error("{}: cannot be used; check that it exists, its permissions and the disk", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> OpenError {
        move |source| match is_full(&source) {
            true => OpenError::Full { path: path.into(), source },
            false => OpenError::Io { path: path.into(), source },
        }
    }

    pub(crate) fn damaged(file: &Path, found: impl Into<String>) -> OpenError {
        OpenError::Damaged { file: file.into(), found: found.into() }
    }
}
