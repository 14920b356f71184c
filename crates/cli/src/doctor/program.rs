//! Other programs, asked for their version. In: a command line. Out: what it printed, or why it does not work. A program that hangs is ended.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::huge_pages;

/// How long a program may take to say which version it is; that of docker asks its daemon.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Why a program does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It is not there.
    Missing,
    /// It is there, and fails.
    Fails(String),
}

/// What a program prints.
pub(super) async fn output(program: &str, arguments: &[&str]) -> Result<String, Broken> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let process = huge_pages::allow_for_child(|| command.spawn()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Broken::Missing,
        _ => Broken::Fails(error.to_string()),
    })?;
    let output = match tokio::time::timeout(ANSWER_WITHIN, process.wait_with_output()).await {
        Ok(output) => output.map_err(|error| Broken::Fails(error.to_string()))?,
        Err(_) => return Err(Broken::Fails(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        // The first lines may be a trace of what the program did.
        let is_error = |line: &&str| line.to_lowercase().contains("error");
        let words = words.lines().find(is_error).or(words.trim().lines().next()).unwrap_or_default().trim().to_owned();
        return Err(Broken::Fails(if words.is_empty() { output.status.to_string() } else { words }));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a program is on the path, or at a path.
pub(super) fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return std::path::Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
