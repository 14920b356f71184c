//! Backups and restores of a server that does not run. The store does both; this file finds it and says what happened.

use std::path::PathBuf;

use konverge_store::{BackupError, Disk, OpenError, RestoreError, Retention, Store};

use crate::args::{BackupArgs, RestoreArgs};
use crate::home::Home;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{}: there is no data to copy; --data-dir names the directory the server was started with", .0.display())]
    Nothing(PathBuf),
    #[error("{}: a server is using this data ({owner}); stop it first", dir.display())]
    Running { dir: PathBuf, owner: String },
    #[error(transparent)]
    Open(OpenError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// `konverge backup`
pub fn backup(args: &BackupArgs) -> Result<(), CopyError> {
    let home = Home::new(&args.data_dir);
    if !home.store().is_dir() {
        return Err(CopyError::Nothing(home.store()));
    }
    let store = Disk::open(home.store(), Retention::default()).map_err(|error| match error {
        OpenError::Held { dir } => {
            CopyError::Running { dir, owner: home.owner().unwrap_or_else(|| "of unknown number".into()) }
        }
        other => CopyError::Open(other),
    })?;
    let revision = store.backup(&args.file)?;
    println!("copied {} at revision {} to {}", home.store().display(), revision.0, args.file.display());
    Ok(())
}

/// `konverge restore`
pub fn restore(args: &RestoreArgs) -> Result<(), CopyError> {
    let home = Home::new(&args.data_dir);
    let revision = konverge_store::restore(&args.file, &home.store())?;
    println!("restored {} at revision {}", home.store().display(), revision.0);
    println!("start the server with: konverge apiserver --data-dir {}", args.data_dir.display());
    Ok(())
}
