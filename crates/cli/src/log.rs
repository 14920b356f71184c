//! Logs go to stderr; stdout has only what the command answers. A log that nobody reads any more is lost, and nothing else.

use std::io::{IsTerminal, stderr};

use konverge::LossyStderr;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// What most commands log unless they are told: what somebody should know about. A watch that is forbidden is logged by those who watch, in
/// words; kube-runtime would log it again at each attempt.
pub(crate) const WARN: &str = "warn,kube_runtime::watcher=error";

/// Begins to log. RUST_LOG decides what, or the number of `-v`; without both `unless_told` does.
pub(crate) fn start(format: LogFormat, verbose: u8, unless_told: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(match verbose {
            0 => unless_told,
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
