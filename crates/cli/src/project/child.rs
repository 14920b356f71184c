//! The operator as a process. In: an executable and a kubeconfig. Out: its lines, and how it ended. It is asked to stop
//! before it is made to.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{self, Command};

use super::lines::{Lines, Who};

/// How long an operator may take to stop; a little longer than it gives its own reconciles.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to print its CRDs, which needs no cluster.
const PRINT_WITHIN: Duration = Duration::from_secs(10);

/// An operator's executable, and its process while it runs.
pub struct Child {
    executable: PathBuf,
    kubeconfig: PathBuf,
    process: Option<process::Child>,
}

impl Child {
    /// Not running yet.
    pub fn new(executable: PathBuf, kubeconfig: &Path) -> Self {
        Self { executable, kubeconfig: kubeconfig.to_owned(), process: None }
    }

    /// Runs it until it ends, or goes on with the one that runs; says how it ended. May be dropped and called again.
    pub async fn run(&mut self, lines: &Lines) -> String {
        if self.process.is_none() {
            let mut command = Command::new(&self.executable);
            command
                .env("KUBECONFIG", &self.kubeconfig)
                // A person reads along, although it is a pipe.
                .env("KONVERGE_LOG_FORMAT", std::env::var_os("KONVERGE_LOG_FORMAT").unwrap_or_else(|| "text".into()))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true);
            match command.spawn() {
                Ok(process) => self.process = Some(process),
                Err(error) => return format!("it cannot be started: {error}"),
            }
        }
        let Some(process) = &mut self.process else { return "it was not started".to_owned() };
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        tokio::spawn(told(stdout, lines.clone()));
        tokio::spawn(told(stderr, lines.clone()));
        let status = process.wait().await;
        self.process = None;
        said(status)
    }

    /// Asks it to stop, and makes it if it does not.
    pub async fn end(mut self, lines: &Lines) {
        let Some(mut process) = self.process.take() else { return };
        ask_to_stop(&process);
        match tokio::time::timeout(STOP_WITHIN, process.wait()).await {
            Ok(status) => lines.say(Who::Dev, &format!("the operator of before ended ({})", said(status))),
            Err(_) => {
                lines.say(Who::Dev, "the operator of before does not stop; it is killed");
                // That it is gone already is as good.
                let _ = process.kill().await;
            }
        }
    }
}

/// The CRDs an operator prints, one document each.
pub async fn crds(executable: &Path) -> Result<Vec<String>, String> {
    let mut command = Command::new(executable);
    command.arg("--print-crds").stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PRINT_WITHIN, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("it cannot be started: {error}")),
        Err(_) => return Err("it did not answer --print-crds; does it use settings of its own?".to_owned()),
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("it does not know --print-crds: {words}"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split("---\n").filter(|document| !document.trim().is_empty()).map(str::to_owned).collect())
}

/// Says every line of a pipe until it is closed.
async fn told(pipe: Option<impl AsyncRead + Unpin>, lines: Lines) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        lines.say(Who::Operator, &line);
    }
}

fn said(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its end was not seen: {error}"),
    }
}

#[cfg(unix)]
fn ask_to_stop(process: &process::Child) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        // That it is gone already is what is wanted.
        let _ = kill_process(pid, Signal::TERM);
    }
}

#[cfg(not(unix))]
fn ask_to_stop(_: &process::Child) {}
