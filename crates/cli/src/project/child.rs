//! The operator as a process. In: an executable and a kubeconfig. Out: its lines, and how it ended. A supervisor runs it,
//! asks it to stop before it makes it, and takes it along when this process ends; see `supervise`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use konverge::{Settings, Source};
use tokio::process::{self, Command};
use tokio::task::JoinSet;

use super::files::Stamp;
use super::lines::{LineSource, Lines};
use super::supervise::{self, BY_SIGNAL, STOP_WITHIN};

/// How long the supervisor may take to see to the operator's end, beyond the time that the operator has.
const SUPERVISOR_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to print its CRDs, which needs no cluster.
const PRINT_WITHIN: Duration = Duration::from_secs(10);
/// How long its last words are waited for: what it started itself may hold its pipes open for ever.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);

/// What an operator is told where the developer says nothing, neither by a variable nor in a file: a person reads its log,
/// although that is a pipe, and the ports of its metrics and probes are free ones of this machine, because several operators
/// and `konverge dev` share it. A setting, its variable and the value.
const DEFAULTS: [(&str, &str, &str); 3] = [
    ("logging.format", "KONVERGE_LOG_FORMAT", "text"),
    ("metrics.bindAddress", "KONVERGE_METRICS_BIND_ADDRESS", "127.0.0.1:0"),
    ("health.bindAddress", "KONVERGE_HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
];

/// The variable that names an operator's file of settings.
const CONFIG: &str = "KONVERGE_CONFIG";

/// Those of [`DEFAULTS`] about which nothing is said, as variables. An operator with settings that cannot be read says so
/// itself.
fn defaults(mut said: BTreeMap<OsString, OsString>, directory: &Path) -> Vec<(&'static str, &'static str)> {
    if let Some(file) = said.get_mut(OsStr::new(CONFIG)).filter(|file| !file.is_empty()) {
        *file = directory.join(&*file).into_os_string();
    }
    let loaded = Settings::loader().environment(said.clone()).load();
    let is_unsaid = |setting: &str, variable: &str| match &loaded {
        Ok(loaded) => loaded.source(setting) == Some(&Source::Default),
        Err(_) => !said.contains_key(OsStr::new(variable)),
    };
    let unsaid = DEFAULTS.into_iter().filter(|(setting, variable, _)| is_unsaid(setting, variable));
    unsaid.map(|(_, variable, value)| (variable, value)).collect()
}

/// An operator's executable, and its process while it runs.
pub(super) struct Child {
    executable: PathBuf,
    /// Where it runs.
    directory: PathBuf,
    stamp: Option<Stamp>,
    kubeconfig: PathBuf,
    process: Option<process::Child>,
    /// As long as this is open, the supervisor lets the operator run.
    lifeline: Option<process::ChildStdin>,
    /// Who reads its pipes. Ends with this.
    readers: JoinSet<()>,
}

impl Child {
    /// Not running yet.
    pub(super) fn new(executable: PathBuf, directory: &Path, kubeconfig: &Path) -> Self {
        let (stamp, directory, kubeconfig) = (Stamp::of(&executable), directory.to_owned(), kubeconfig.to_owned());
        Self { executable, directory, stamp, kubeconfig, process: None, lifeline: None, readers: JoinSet::new() }
    }

    /// Whether a build left it what it is.
    pub(super) fn is_of(&self, executable: &Path) -> bool {
        self.executable == executable && self.stamp.is_some() && self.stamp == Stamp::of(executable)
    }

    /// Runs it until it ends, or goes on with the one that runs; says how it ended. May be dropped and called again.
    pub(super) async fn run(&mut self, lines: &Lines) -> String {
        let process = match &mut self.process {
            Some(process) => process,
            None => match self.spawn(lines) {
                Ok(process) => self.process.insert(process),
                Err(error) => return format!("it cannot be started: {error}"),
            },
        };
        let status = process.wait().await;
        self.process = None;
        self.drain_output().await;
        said(status)
    }

    fn spawn(&mut self, lines: &Lines) -> std::io::Result<process::Child> {
        let mut command = supervise::command(&self.executable)?;
        let mut process = command
            .envs(defaults(std::env::vars_os().collect(), &self.directory))
            .current_dir(&self.directory)
            .env("KUBECONFIG", &self.kubeconfig)
            // It is the port of `konverge dev`; operators often read a variable of this name, too.
            .env_remove("PORT")
            // Shells and CI systems set it for purposes of their own, and the operator would look at nothing else.
            .env_remove("NAMESPACE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        // Taken, because waiting for a process closes what it has.
        self.lifeline = process.stdin.take();
        if let Some(stdout) = process.stdout.take() {
            self.readers.spawn(lines.clone().repeat(LineSource::Operator, stdout));
        }
        if let Some(stderr) = process.stderr.take() {
            self.readers.spawn(lines.clone().repeat(LineSource::Operator, stderr));
        }
        Ok(process)
    }

    /// Asks it to stop, and makes it if it does not; says how it ended, if it ran. May be dropped and called again.
    pub(super) async fn end(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        self.lifeline = None;
        let began = tokio::time::Instant::now();
        let status = tokio::time::timeout(STOP_WITHIN + SUPERVISOR_WITHIN, process.wait()).await;
        let ended = match status {
            Ok(status) if began.elapsed() < STOP_WITHIN => said(status),
            Ok(_) => format!("it did not stop within {} s and was killed", STOP_WITHIN.as_secs()),
            Err(_) => {
                // That it is gone already is as good.
                let _ = process.kill().await;
                "its supervisor did not answer and was killed".to_owned()
            }
        };
        self.process = None;
        self.drain_output().await;
        Some(ended)
    }

    /// Waits until everything it said has been repeated.
    async fn drain_output(&mut self) {
        let all = async { while self.readers.join_next().await.is_some() {} };
        // What comes later than that is not waited for.
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, all).await;
    }
}

/// The CRDs an operator prints, one document each.
pub(super) async fn crds(executable: &Path, directory: &Path) -> Result<Vec<String>, String> {
    let mut command = Command::new(executable);
    command.arg("--print-crds").current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PRINT_WITHIN, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("it cannot be started: {error}")),
        Err(_) => return Err("it did not answer --print-crds; does it use settings of its own?".to_owned()),
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("it does not know --print-crds: {words}"));
    }
    Ok(documents(&String::from_utf8_lossy(&output.stdout)))
}

/// The documents of a YAML text.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match documents.last_mut() {
            Some(document) if line.trim_end() != "---" => *document += &format!("{line}\n"),
            _ => documents.push(String::new()),
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

fn said(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match status.code() {
            Some(code @ 129..=192) => format!("killed by signal {}", code - BY_SIGNAL),
            _ => status.to_string(),
        },
        Err(error) => format!("its end was not seen: {error}"),
    }
}

#[cfg(unix)]
pub(super) fn ask_to_stop(process: &process::Child) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        // That it is gone already is what is wanted.
        let _ = kill_process(pid, Signal::TERM);
    }
}

#[cfg(not(unix))]
pub fn ask_to_stop(_: &process::Child) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_for_what_nobody_says() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("some.yaml"), "metrics: {bindAddress: ':9000'}").unwrap();
        std::fs::write(directory.path().join("bad.yaml"), "metrics: {bindAddress: nowhere}").unwrap();
        let (log, metrics) = ("KONVERGE_LOG_FORMAT", "KONVERGE_METRICS_BIND_ADDRESS");
        let health = "KONVERGE_HEALTH_PROBE_BIND_ADDRESS";
        for (said, expect) in [
            (&[][..], &[log, metrics, health][..]),
            (&[(metrics, ":9000")], &[log, health]),
            (&[(log, "json"), (health, "0")], &[metrics]),
            (&[(CONFIG, "")], &[log, metrics, health]),
            (&[(CONFIG, "some.yaml")], &[log, health]),
            (&[(CONFIG, "some.yaml"), (log, "json")], &[health]),
            // The operator says what is wrong.
            (&[(CONFIG, "bad.yaml")], &[log, metrics, health]),
            (&[(CONFIG, "none.yaml"), (log, "json")], &[metrics, health]),
        ] {
            let variables = said.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let given: Vec<&str> = defaults(variables, directory.path()).into_iter().map(|(name, _)| name).collect();
            assert_eq!(given, expect, "{said:?}");
        }
    }

    #[test]
    fn documents_are_told_apart_by_lines() {
        for (text, expect) in [
            ("", &[][..]),
            ("a: 1\n", &["a: 1\n"]),
            ("---\na: 1\n---\nb: 2\n---\n", &["a: 1\n", "b: 2\n"]),
            ("text: one---\n  two\n", &["text: one---\n  two\n"]),
        ] {
            assert_eq!(documents(text), expect, "{text:?}");
        }
    }
}
