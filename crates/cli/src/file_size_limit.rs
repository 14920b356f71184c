//! The limit of file sizes (`ulimit -f`). A write beyond it ends the process by a signal, unless somebody handles the signal; then the
//! write fails, and the store answers as it does on a full disk.

/// Makes writes beyond the limit fail, for the rest of the process.
#[cfg(unix)]
pub(crate) fn report_by_error() {
    use tokio::signal::unix::{SignalKind, signal};
    let number = rustix::process::Signal::XFSZ.as_raw();
    let handled = tokio::runtime::Builder::new_current_thread().enable_io().build().and_then(|runtime| {
        let _within = runtime.enter();
        // Dropping the stream leaves the handler of the process in place, which is all that is wanted.
        signal(SignalKind::from_raw(number)).map(drop)
    });
    if let Err(error) = handled {
        eprintln!("konverge: a write beyond the limit of file sizes will end the process: {error}");
    }
}

/// Other systems have no such signal.
#[cfg(not(unix))]
pub(crate) fn report_by_error() {}
