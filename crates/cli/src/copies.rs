//! Backups, of a server that runs or of one that does not, and restores. The store does both; this file finds it and
//! says what happened.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use konverge_store::{BackupError, Disk, OpenError, RestoreError, Retention, Revision, Store};

use crate::args::{BackupArgs, RestoreArgs};
use crate::control;
use crate::home::Home;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{}: there is no data to copy; --data-dir names the directory the server was started with", .0.display())]
    Nothing(PathBuf),
    #[error("{}: a server is using this data ({owner}) and does not answer at {}; stop it first", dir.display(), control.display())]
    Running { dir: PathBuf, owner: String, control: PathBuf, source: io::Error },
    #[error("the running server could not copy its data: {0}")]
    Refused(String),
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
    let revision = match Disk::open(home.store(), Retention::default(), Revision::begin(SystemTime::now())) {
        Ok(store) => store.backup(&args.file)?.0,
        Err(OpenError::Held { dir }) => {
            let control = home.control();
            let asked = control::ask_backup(&control, &args.file).map_err(|source| {
                let owner = home.owner().unwrap_or_else(|| "of unknown number".into());
                CopyError::Running { dir, owner, control, source }
            })?;
            asked.map_err(CopyError::Refused)?
        }
        Err(other) => return Err(CopyError::Open(other)),
    };
    println!("copied {} at revision {revision} to {}", home.store().display(), args.file.display());
    Ok(())
}

/// `konverge restore`
pub fn restore(args: &RestoreArgs) -> Result<(), CopyError> {
    let home = Home::new(&args.data_dir);
    let revision = konverge_store::restore(&args.file, &home.store(), Revision::begin(SystemTime::now()))?;
    println!("restored {}; it goes on from revision {}", home.store().display(), revision.0);
    println!("whoever watched the old server is told to list anew");
    println!("start the server with: konverge apiserver --data-dir {}", args.data_dir.display());
    Ok(())
}
