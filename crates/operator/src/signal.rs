//! When the process is asked to stop: Ctrl-C, or SIGTERM as Kubernetes sends it.

/// Resolves when the process is asked to stop. A second ask is the system's again: it ends the process at once.
pub(crate) async fn asked() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return wait_for_interrupt().await };
        tokio::select! {
            _ = terminate.recv() => {}
            () = wait_for_interrupt() => {}
        }
    }
    #[cfg(not(unix))]
    wait_for_interrupt().await;
}

async fn wait_for_interrupt() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C cannot be heard; stop the process by another signal");
        std::future::pending::<()>().await;
    }
}
