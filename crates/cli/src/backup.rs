//! `konverge backup` and `konverge restore`. In: arguments. Out: a copied store, of a running or of a stopped server, and a
//! line that says what happened. The store does the work; this file finds it.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use konverge_store::{BackupError, Disk, OpenError, RestoreError, Retention, Revision, Store};

use crate::args::{BackupArgs, RestoreArgs};
use crate::control_socket;
use crate::data_dir::DataDir;

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
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
pub(crate) fn backup(args: &BackupArgs) -> Result<(), CopyError> {
    let data_dir = DataDir::new(&args.data_dir);
    if !data_dir.store().is_dir() {
        return Err(CopyError::Nothing(data_dir.store()));
    }
    let revision = match Disk::open(data_dir.store(), Retention::default(), Revision::begin(SystemTime::now())) {
        Ok(store) => store.backup(&args.file)?.0,
        Err(OpenError::Held { dir }) => {
            let control = data_dir.control();
            let asked = control_socket::ask_backup(&control, &args.file).map_err(|source| {
                let owner = data_dir.owner().unwrap_or_else(|| "of unknown number".into());
                CopyError::Running { dir, owner, control, source }
            })?;
            asked.map_err(CopyError::Refused)?
        }
        Err(other) => return Err(CopyError::Open(other)),
    };
    println!("copied {} at revision {revision} to {}", data_dir.store().display(), args.file.display());
    Ok(())
}

/// `konverge restore`
pub(crate) fn restore(args: &RestoreArgs) -> Result<(), CopyError> {
    let data_dir = DataDir::new(&args.data_dir);
    let revision = konverge_store::restore(&args.file, &data_dir.store(), Revision::begin(SystemTime::now()))?;
    println!("restored {}; it goes on from revision {}", data_dir.store().display(), revision.0);
    println!("whoever watched the old server is told to list anew");
    println!("start the server with: konverge apiserver --data-dir {}", args.data_dir.display());
    Ok(())
}
