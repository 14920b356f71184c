//! The signals that tell a process to stop: Ctrl-C, and SIGTERM as Kubernetes sends it.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals that tell the process to stop.
pub(crate) struct StopSignals {
    /// SIGTERM and SIGINT; none if no handler could be installed.
    #[cfg(unix)]
    signals: Option<(Signal, Signal)>,
}

impl StopSignals {
    /// Begins to listen. Has to be called within a tokio runtime.
    pub(crate) fn listen() -> Self {
        #[cfg(unix)]
        {
            let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
            if let Err(error) = &signals {
                tracing::warn!(%error, "no signal handler could be installed: the first signal ends the process at once");
            }
            Self { signals: signals.ok() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Resolves at the next signal.
    pub(crate) async fn next(&mut self) {
        #[cfg(unix)]
        match &mut self.signals {
            Some((terminate, interrupt)) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            None => std::future::pending().await,
        }
        #[cfg(not(unix))]
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "no handler for Ctrl-C could be installed");
            std::future::pending::<()>().await;
        }
    }
}
