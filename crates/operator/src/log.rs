//! The operator's log, on stderr. In: [`LoggingSettings`] and RUST_LOG. Out: a subscriber for the whole
//! process, unless there is one. Never panics, also when nobody reads stderr any more, and never replaces somebody else's.

use std::io::{self, IsTerminal, Write, stderr};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::settings::{LogFormat, LoggingSettings};

/// Whether logging was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logging {
    /// It was.
    Started,
    /// The program has a subscriber of its own, which stays.
    AlreadySet,
}

/// Starts the log of the process as settings say. If `RUST_LOG` is set, it decides what is logged. A subscriber that the
/// program has installed stays.
pub fn start_logging(settings: &LoggingSettings) -> Logging {
    let wanted = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let (filter, refused) = filter(wanted.as_deref(), &settings.level);
    let terminal = stderr().is_terminal();
    let json = match settings.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let started = match tracing::subscriber::set_global_default(subscriber(filter, json, terminal, || LossyStderr)) {
        Ok(()) => Logging::Started,
        Err(_) => Logging::AlreadySet,
    };
    if let Some(why) = refused {
        tracing::warn!(why, level = settings.level, "RUST_LOG cannot be understood; the level of the settings holds");
    }
    started
}

/// A stderr whose lines are lost when nobody reads them, for subscribers of one's own.
///
/// `tracing_subscriber` reports a line that it cannot write on stderr, which panics when that is what cannot be written to:
/// `operator 2>&1 | head` would then take the operator apart, one task at a time. To this writer every line counts as
/// written.
///
/// ```
/// tracing_subscriber::fmt().with_writer(|| konverge::LossyStderr).init();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LossyStderr;

impl Write for LossyStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A pipe that is full or slow is waited for; only what can never be written is lost.
        let _ = stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter, and what is wrong with the one that was wanted.
fn filter(wanted: Option<&str>, level: &str) -> (EnvFilter, Option<String>) {
    // openraft logs an error for each message that a member which is away does not get; what matters is logged by those who use it.
    // kube-runtime logs each attempt of a watch that is forbidden; the watch itself says once which rule is missing.
    let is_plain = level.starts_with("info") || level.starts_with("warn");
    let quiet = |level: &str| {
        let mut level = level.to_owned();
        if !level.contains("openraft") {
            level += ",openraft=off";
        }
        if is_plain && !level.contains("kube_runtime") {
            level += ",kube_runtime::watcher=error";
        }
        level
    };
    let fallback = || EnvFilter::try_new(quiet(level)).unwrap_or_else(|_| EnvFilter::new("info,openraft=off"));
    match wanted.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (fallback(), Some(error.to_string())),
        None => (fallback(), None),
    }
}

fn subscriber<W>(filter: EnvFilter, json: bool, colours: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A value that cannot be formatted loses its line; the complaint about it would go to stderr by a way that panics.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    if json {
        Box::new(log.json().flatten_event(true).with_span_list(false).finish())
    } else {
        Box::new(log.with_ansi(colours).finish())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is logged by a reconcile that says something at each level.
    fn logged(wanted: Option<&str>, level: &str, json: bool) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let (filter, _) = filter(wanted, level);
        let subscriber = subscriber(filter, json, false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("reconcile", key = "shop/web").entered();
            tracing::debug!("looked");
            tracing::info!(result = "success", "reconciled");
            tracing::warn!("late");
            // As kube-runtime does at each attempt of a watch that is forbidden.
            tracing::warn!(target: "kube_runtime::watcher", "watch list error with 403");
        });
        let bytes = buffer.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn rust_log_is_stronger_than_the_level() {
        let check = |wanted, level, expect| assert_eq!(logged(wanted, level, false).lines().count(), expect);
        check(None, "info", 2);
        check(None, "info,kube_runtime=warn", 3);
        check(None, "debug", 4);
        check(None, "off", 0);
        check(None, "off,konverge=warn", 1);
        check(Some("debug"), "warn", 4);
        check(Some("warn"), "debug", 2);
        // What cannot be understood does not silence the operator.
        check(Some("konverge=loud"), "info", 2);
        assert!(filter(Some("konverge=loud"), "info").1.is_some());
    }

    #[test]
    fn json_has_one_object_a_line_with_the_fields_of_the_reconcile() {
        let text = logged(None, "info", true);
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "reconciled");
        assert_eq!(lines[0]["result"], "success");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["span"]["key"], "shop/web");
        assert_eq!(lines[0]["span"]["name"], "reconcile");
    }

    #[test]
    fn a_subscriber_that_is_there_stays() {
        let settings = LoggingSettings { level: "off".into(), format: LogFormat::Auto };
        start_logging(&settings);
        assert_eq!(start_logging(&settings), Logging::AlreadySet);
    }
}
