//! What commands answer, on standard output. In: texts. Out: the same texts, and at the end of the program whether all of them arrived. Its
//! `println!`, `print!`, `eprintln!` and `eprint!` take the place of those of the standard library, which panic in the middle of the work if
//! nobody reads.
//!
//! | standard output | what happens |
//! |---|---|
//! | closed by its reader, as in `konverge … \| head` | the work goes on; the exit code says how it ended |
//! | cannot be written, such as a file on a full disk | the work goes on; at the end one line says so, and the exit code is 1 |
//!
//! What cannot be written to standard error is lost: there is no other place to say so.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The first failure to write. An answer that is cut off must not look like a whole one.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints a line.
macro_rules! println {
    ($($words:tt)+) => { $crate::stdout::write(format_args!("{}\n", format_args!($($words)+))) };
}

/// Prints a text.
macro_rules! print {
    ($($words:tt)+) => { $crate::stdout::write(format_args!($($words)+)) };
}

/// Prints a line to standard error.
macro_rules! eprintln {
    ($($words:tt)+) => { $crate::stdout::complain(format_args!("{}\n", format_args!($($words)+))) };
}

/// Prints a text to standard error.
macro_rules! eprint {
    ($($words:tt)+) => { $crate::stdout::complain(format_args!($($words)+)) };
}

/// Writes a text to standard error.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Writes a text. What fails is reported by [`finish`].
pub(crate) fn write(text: fmt::Arguments<'_>) {
    note(io::stdout().lock().write_fmt(text));
}

/// Writes a text that nobody has to read: a server keeps running, and ends well, without it.
pub(crate) fn write_lossy(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::debug!(%error, "cannot print to stdout");
    }
}

/// The exit code of the program, which is 1 if something could not be written.
pub(crate) fn finish(code: ExitCode) -> ExitCode {
    note(io::stdout().lock().flush());
    match FAILURE.get() {
        None => code,
        Some(error) => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        // Only the first failure is reported: those after it have the same cause.
        let _ = FAILURE.set(error);
    }
}
