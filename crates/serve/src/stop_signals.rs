//! When a person or the system asks the process to stop. SIGTERM and Ctrl-C come in; out come a future for whoever stops
//! the server in order, and the end of the process if that takes too long or is asked for twice.
//!
//! Signals are heard by a thread of its own with a runtime of its own. On the threads that serve they would wait for
//! whatever computes there, and a server that is too busy to stop is the one that people want to stop.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

/// The exit code of a process that did not stop in order.
const CUT_SHORT: i32 = 1;

/// Signals that come so soon after the first are the same request: `timeout` and some shells send one to the process and
/// one to its group.
const SAME: Duration = Duration::from_millis(100);

/// How long the last log line may take: whoever reads the log may have stopped reading.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Hears from now on when the process is asked to stop, also while every thread of the program is busy.
///
/// The first request (Ctrl-C or SIGTERM) resolves [`StopSignals::asked`]. After that the process ends with exit code 1
/// at the second request, or when it is still there after the time given to [`StopSignals::listen`].
#[derive(Debug)]
pub struct StopSignals {
    asked: watch::Receiver<bool>,
}

impl StopSignals {
    /// Begins to listen; from now on these signals do not end the process by themselves. `within` is how long an orderly
    /// stop may take.
    pub fn listen(within: Duration) -> io::Result<Self> {
        let (tell, asked) = watch::channel(false);
        let (started, outcome) = mpsc::sync_channel(1);
        // Ends with the process: until then somebody may ask.
        thread::Builder::new().name("stop-signals".to_owned()).spawn(move || {
            match listening() {
                Err(error) => {
                    let _ = started.send(Err(error));
                }
                Ok((runtime, signals)) => {
                    let _ = started.send(Ok(()));
                    runtime.block_on(obey(signals, tell, within));
                }
            };
        })?;
        outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the thread for signals ended at once")))?;
        Ok(StopSignals { asked })
    }

    /// Resolves when the process is asked to stop, also if that was before.
    pub async fn asked(&mut self) {
        if self.asked.wait_for(|asked| *asked).await.is_err() {
            // The thread is gone, so nobody can ask.
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

async fn obey(mut signals: Signals, tell: watch::Sender<bool>, within: Duration) {
    signals.next().await;
    tell.send_replace(true);
    let first = tokio::time::Instant::now();
    let again = async {
        while first.elapsed() < SAME {
            signals.next().await;
        }
    };
    let asked_twice = tokio::time::timeout(within, again).await.is_ok();
    // Written by another thread, for a log that nobody reads must not keep the process.
    let (written, done) = mpsc::sync_channel(1);
    let writer = thread::Builder::new().spawn(move || {
        match asked_twice {
            true => tracing::warn!("stopped at once because it was asked twice; running requests were cut"),
            false => tracing::warn!(seconds = within.as_secs(), "stopped by force: the orderly stop took too long"),
        }
        let _ = written.send(());
    });
    if writer.is_ok() {
        let _ = done.recv_timeout(LAST_WORD);
    }
    std::process::exit(CUT_SHORT);
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
            // Nobody can ask.
            std::future::pending::<()>().await;
        }
    }
}
