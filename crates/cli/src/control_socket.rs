//! The control socket: how a command reaches the server that holds a data directory. In: one line on a socket that only
//! the directory's owner can open. Out: one line. The file system decides who may ask, so it works without credentials,
//! whatever the server's own address is.
//!
//! ```text
//!   backup /absolute/file   →   ok 42          the revision that was copied
//!                               error why
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use konverge_core::ErrorChain;
use konverge_store::Store;

/// The longest request line; a path fits.
const LINE_MAX: u64 = 8 * 1024;

/// How long a request may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(unix)]
impl Control {
    /// Listens at `path`, in place of a socket that a dead server left there.
    pub(crate) fn listen(path: PathBuf, store: Arc<dyn Store>) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = tokio::net::UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let task = tokio::spawn(async move {
            // One after the other: two backups at once would only wait for the same disk.
            while let Ok((stream, _)) = listener.accept().await {
                if let Err(error) = serve(stream, &store).await {
                    tracing::debug!(%error, "a control request was not answered");
                }
            }
        });
        Ok(Self { path, task })
    }
}

#[cfg(unix)]
async fn serve(stream: tokio::net::UnixStream, store: &Arc<dyn Store>) -> io::Result<()> {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    tokio::time::timeout(ARRIVES_WITHIN, BufReader::new(read.take(LINE_MAX)).read_line(&mut line)).await??;
    let store = store.clone();
    let answer = tokio::task::spawn_blocking(move || answer(line.trim_end_matches('\n'), &*store)).await?;
    write.write_all(format!("{answer}\n").as_bytes()).await
}

fn answer(line: &str, store: &dyn Store) -> String {
    match line.split_once(' ') {
        Some(("backup", file)) if Path::new(file).is_absolute() => match store.backup(Path::new(file)) {
            Ok(revision) => format!("ok {}", revision.0),
            Err(error) => format!("error {}", ErrorChain(&error).to_string().replace('\n', " ")),
        },
        _ => format!("error {line:?} is not understood; this server knows: backup /absolute/file"),
    }
}

/// Asks the server that listens at `path` to copy its data to `file`; tells the revision, or what the server says.
#[cfg(unix)]
pub(crate) fn ask_backup(path: &Path, file: &Path) -> io::Result<Result<u64, String>> {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(path)?;
    let file = std::path::absolute(file)?;
    writeln!(stream, "backup {}", file.display())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(match line.trim_end().split_once(' ') {
        Some(("ok", revision)) => revision.parse().map_err(|_| format!("the server answered {line:?}")),
        Some(("error", why)) => Err(why.to_owned()),
        _ => Err("the server ended without an answer".to_owned()),
    })
}
