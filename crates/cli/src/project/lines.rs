//! The terminal output of `konverge dev` in a project: one stream of lines, each with its source.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::log_file::LogFile;

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineSource {
    /// The operator under development.
    Operator,
    /// Cargo.
    Build,
    /// `konverge dev` itself.
    Dev,
}

/// Prints lines. Clones print to the same stream.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    coloured: bool,
    log: Arc<Mutex<LogFile>>,
}

impl LineSource {
    /// The word before a line and its colour.
    fn label(self) -> (&'static str, &'static str) {
        match self {
            LineSource::Operator => ("operator", "36"),
            LineSource::Build => ("build", "33"),
            LineSource::Dev => ("dev", "35"),
        }
    }
}

impl Lines {
    /// Prints to stdout, in colour if it is a terminal, and to a file.
    pub(super) fn new(log: LogFile) -> Self {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { coloured, log: Arc::new(Mutex::new(log)) }
    }

    /// Whether lines are printed in colour.
    pub(super) fn are_coloured(&self) -> bool {
        self.coloured
    }

    /// Prints a line.
    pub(super) fn print(&self, source: LineSource, line: &str) {
        let (word, colour) = source.label();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
        self.log.lock().line(&format!("{now} {word} {line}"));
        // One lock for the whole line, so that lines of two sources are not mixed.
        let mut stdout = std::io::stdout().lock();
        // There is no other place to report that stdout is closed.
        let _ = match self.coloured {
            true => writeln!(stdout, "\x1b[{colour}m{word:>8} │\x1b[0m {line}"),
            false => writeln!(stdout, "{word:>8} │ {line}"),
        };
    }

    /// Prints every line of a pipe until it is closed, whatever bytes it has, so that a full pipe never blocks the writer.
    pub(super) async fn repeat(self, source: LineSource, pipe: impl AsyncRead + Unpin) {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            self.print(source, String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            line.clear();
        }
    }
}
