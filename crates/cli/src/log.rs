//! Logs go to stderr; stdout has only what the command answers. A log that nobody reads any more is lost, and nothing else.

use std::io::{IsTerminal, stderr};

use konverge::LossyStderr;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Begins to log. RUST_LOG decides what, or the number of `-v`. A command that reports failed requests itself does not log them as well.
pub(crate) fn start(format: LogFormat, verbose: u8, reports_requests: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(match verbose {
            0 if reports_requests => "warn,kube_client=off",
            0 => "warn",
            1 => "info,konverge_apiserver=debug,konverge_serve=debug,konverge_store=debug,konverge=debug",
            _ => "trace",
        })
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LossyStderr).log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}
