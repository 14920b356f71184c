//! Requests to stop the process. In: SIGTERM and Ctrl-C. Out: a future that resolves at the first request, so that the
//! server can shut down in order. If that takes too long, or a second request comes, the process exits.
//!
//! A thread with its own runtime waits for signals. On the threads that serve requests a signal would wait behind whatever
//! computes there, and a server that is too busy is the one that people want to stop.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

/// The exit code of a process that did not shut down in order.
const FORCED: i32 = 1;

/// Signals that come this soon after the first are part of the same request: `timeout` and some shells send one to the
/// process and one to its group.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// How long writing the last log line may take: the reader of the log may have stopped reading.
const LAST_LOG_LINE: Duration = Duration::from_millis(500);

/// Notices requests to stop the process (Ctrl-C or SIGTERM), even while every thread of the program is busy.
///
/// The first request resolves [`StopSignals::asked`]. After that the process exits with code 1 at the second request, or
/// if it still runs after the time given to [`StopSignals::listen`].
#[derive(Debug)]
pub struct StopSignals {
    asked: watch::Receiver<bool>,
}

impl StopSignals {
    /// Begins to listen: from now on these signals do not end the process by themselves. `within` limits how long an orderly
    /// shutdown may take.
    pub fn listen(within: Duration) -> io::Result<Self> {
        let (requested, asked) = watch::channel(false);
        let (started, outcome) = mpsc::sync_channel(1);
        // The thread runs until the process ends.
        thread::Builder::new().name("stop-signals".to_owned()).spawn(move || {
            match listening() {
                Err(error) => {
                    let _ = started.send(Err(error));
                }
                Ok((runtime, signals)) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(obey(signals, requested, within));
                }
            };
        })?;
        outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for signals ended at once")))?;
        Ok(StopSignals { asked })
    }

    /// Resolves when the process is asked to stop, or at once if it was asked before.
    pub async fn asked(&mut self) {
        if self.asked.wait_for(|asked| *asked).await.is_err() {
            // The thread that listens has ended, so no request can come.
            std::future::pending::<()>().await;
        }
    }
}

fn listening() -> io::Result<(tokio::runtime::Runtime, Signals)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _within = runtime.enter();
        Signals::new()?
    };
    Ok((runtime, signals))
}

async fn obey(mut signals: Signals, requested: watch::Sender<bool>, within: Duration) {
    signals.next().await;
    requested.send_replace(true);
    // A signal that is there already is taken before the time is looked at: it is part of the first request even if this
    // thread did not run for a while.
    let same_request = async {
        loop {
            signals.next().await;
            tracing::debug!("a second signal right after the first is part of the same request to stop");
        }
    };
    let _ = tokio::time::timeout(SAME_REQUEST.min(within), same_request).await;
    tracing::debug!("stopping; the next signal ends the process at once");
    let asked_twice = tokio::time::timeout(within.saturating_sub(SAME_REQUEST), signals.next()).await.is_ok();
    // Another thread writes the line, because a log that nobody reads must not keep the process alive.
    let (written, done) = mpsc::sync_channel(1);
    let writer = thread::Builder::new().spawn(move || {
        match asked_twice {
            true => tracing::warn!("stopped at once at the second signal; running requests were cut off"),
            false => tracing::warn!(seconds = within.as_secs(), "stopped by force: the orderly shutdown took too long"),
        }
        let _ = written.send(());
    });
    if writer.is_ok() {
        let _ = done.recv_timeout(LAST_LOG_LINE);
    }
    std::process::exit(FORCED);
}

struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // No request can come.
            std::future::pending::<()>().await;
        }
    }
}
