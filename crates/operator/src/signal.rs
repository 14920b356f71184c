//! When the process is asked to stop: Ctrl-C, or SIGTERM as Kubernetes sends it.

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears from now on when the process is asked to stop.
pub(crate) struct Asked {
    /// SIGTERM and SIGINT, as far as they can be heard.
    #[cfg(unix)]
    signals: Option<(Signal, Signal)>,
}

impl Asked {
    /// Begins to listen. To be called within a tokio runtime.
    pub fn listen() -> Self {
        #[cfg(unix)]
        {
            let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
            if let Err(error) = &signals {
                tracing::warn!(%error, "signals cannot be heard: the process ends at the first, whatever runs");
            }
            Self { signals: signals.ok() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Resolves when the process is asked to stop; called again, when it is asked again.
    pub async fn heard(&mut self) {
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
            tracing::warn!(%error, "Ctrl-C cannot be heard");
            std::future::pending::<()>().await;
        }
    }
}
