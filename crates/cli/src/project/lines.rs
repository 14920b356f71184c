//! One stream of lines, each with who says it.

use std::io::{IsTerminal, Write};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Who says a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineSource {
    /// The operator under development.
    Operator,
    /// Cargo.
    Build,
    /// `konverge dev` about both.
    Dev,
}

/// Where lines go. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    coloured: bool,
}

impl LineSource {
    /// The word before a line and its colour.
    fn mark(self) -> (&'static str, &'static str) {
        match self {
            LineSource::Operator => ("operator", "36"),
            LineSource::Build => ("build", "33"),
            LineSource::Dev => ("dev", "35"),
        }
    }
}

impl Lines {
    /// Lines on stdout, coloured if a person looks.
    pub(super) fn new() -> Self {
        let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { coloured }
    }

    /// Whether a person looks.
    pub(super) fn are_coloured(&self) -> bool {
        self.coloured
    }

    /// Says a line.
    pub(super) fn say(&self, who: LineSource, line: &str) {
        let (word, colour) = who.mark();
        // A whole line under one lock: those of two speakers are not mixed.
        let mut stdout = std::io::stdout().lock();
        // Nobody is left to be told that nobody listens.
        let _ = match self.coloured {
            true => writeln!(stdout, "\x1b[{colour}m{word:>8} │\x1b[0m {line}"),
            false => writeln!(stdout, "{word:>8} │ {line}"),
        };
    }

    /// Says every line of a pipe until it is closed, whatever bytes it has: who writes must not be stopped by who reads.
    pub(super) async fn repeat(self, who: LineSource, pipe: impl AsyncRead + Unpin) {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            self.say(who, String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
            line.clear();
        }
    }
}
