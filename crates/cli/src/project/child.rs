//! The operator as a process. In: an executable and a kubeconfig. Out: its output, and how it ended. A supervisor process
//! runs it, asks it to stop before it kills it, and stops it when this process ends; see `supervise`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use konverge::{Settings, Source};
use tokio::process::{self, Command};
use tokio::task::JoinSet;

use super::files::Stamp;
use super::invocation::Invocation;
use super::lines::{LineSource, Lines};
use super::supervise::{self, BY_SIGNAL, STOP_WITHIN};
use crate::documents::split;
use crate::huge_pages;

/// How long the supervisor may take to stop the operator, beyond the operator's own time.
const SUPERVISOR_WITHIN: Duration = Duration::from_secs(5);
/// How long the operator may take to print its CRDs, which needs no cluster.
const PRINT_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait for the rest of the operator's output: a process that the operator has started may keep its pipes open.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);

/// Defaults for settings that the developer sets neither by a variable nor in a file: the log is text, because a person reads
/// it although it goes to a pipe, and metrics, probes and webhooks use free ports, because several operators and `konverge dev`
/// share this machine. Each row is a setting, its variable and the value.
const DEFAULTS: [(&str, &str, &str); 4] = [
    ("logging.format", "KONVERGE_LOG_FORMAT", "text"),
    ("metrics.bindAddress", "KONVERGE_METRICS_BIND_ADDRESS", "127.0.0.1:0"),
    ("health.bindAddress", "KONVERGE_HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0"),
    ("webhook.bindAddress", "KONVERGE_WEBHOOK_BIND_ADDRESS", "127.0.0.1:0"),
];

/// The variable with the path of the operator's settings file.
const CONFIG: &str = "KONVERGE_CONFIG";

/// The [`DEFAULTS`] that the developer has not set, as variables. If the settings file cannot be read, the operator reports it.
fn defaults(
    mut environment: BTreeMap<OsString, OsString>,
    directory: &Path,
    invocation: &Invocation,
) -> Vec<(&'static str, &'static str)> {
    environment.extend(invocation.variables.iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(file) = environment.get_mut(OsStr::new(CONFIG)).filter(|file| !file.is_empty()) {
        *file = directory.join(&*file).into_os_string();
    }
    let flags = std::iter::once("operator").chain(invocation.flags.iter().map(String::as_str));
    let loaded = Settings::loader().args(flags).environment(environment.clone()).load();
    let is_unsaid = |setting: &str, variable: &str| match &loaded {
        Ok(loaded) => loaded.source(setting) == Some(&Source::Default),
        Err(_) => !environment.contains_key(OsStr::new(variable)),
    };
    let unsaid = DEFAULTS.into_iter().filter(|(setting, variable, _)| is_unsaid(setting, variable));
    unsaid.map(|(_, variable, value)| (variable, value)).collect()
}

/// An operator's executable, and its process while it runs.
pub(super) struct Child {
    executable: PathBuf,
    /// Its working directory.
    directory: PathBuf,
    stamp: Option<Stamp>,
    kubeconfig: PathBuf,
    invocation: Invocation,
    process: Option<process::Child>,
    /// The supervisor stops the operator when this pipe is closed.
    lifeline: Option<process::ChildStdin>,
    /// The tasks that read its output. They end with this value.
    readers: JoinSet<()>,
}

impl Child {
    /// An operator that is not started yet.
    pub(super) fn new(executable: PathBuf, directory: &Path, kubeconfig: &Path, invocation: &Invocation) -> Self {
        let stamp = Stamp::of(&executable);
        Self {
            executable,
            directory: directory.to_owned(),
            stamp,
            kubeconfig: kubeconfig.to_owned(),
            invocation: invocation.clone(),
            process: None,
            lifeline: None,
            readers: JoinSet::new(),
        }
    }

    /// Whether this is the executable of a build.
    pub(super) fn is_of(&self, executable: &Path) -> bool {
        self.executable == executable && self.stamp.is_some() && self.stamp == Stamp::of(executable)
    }

    /// Starts the operator unless it runs, and waits until it ends. Returns how it ended. The future may be dropped, and `run`
    /// called again.
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
        describe_exit(status)
    }

    fn spawn(&mut self, lines: &Lines) -> std::io::Result<process::Child> {
        let mut command = supervise::command(&self.executable, &self.invocation.flags)?;
        command
            .envs(defaults(std::env::vars_os().collect(), &self.directory, &self.invocation))
            .current_dir(&self.directory)
            .env("KUBECONFIG", &self.kubeconfig)
            // `PORT` is the port of `konverge dev`. Operators often read a variable of this name, too.
            .env_remove("PORT")
            // Shells and CI systems set `NAMESPACE` for their own purposes, and the operator would watch only that namespace.
            .env_remove("NAMESPACE")
            // What the developer says for the operator alone is meant.
            .envs(self.invocation.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // The supervisor is not killed when this value is dropped: the pipe closes then, and it stops the operator with all that the operator has started,
        // as it could not if it was killed.
        let mut process = huge_pages::allow_for_child(|| command.spawn())?;
        // The pipe is taken out of the process, because waiting for a process closes its pipes.
        self.lifeline = process.stdin.take();
        if let Some(stdout) = process.stdout.take() {
            self.readers.spawn(lines.clone().repeat(LineSource::Operator, stdout));
        }
        if let Some(stderr) = process.stderr.take() {
            self.readers.spawn(lines.clone().repeat(LineSource::Operator, stderr));
        }
        Ok(process)
    }

    /// Asks the operator to stop, and kills it if it does not. Returns how it ended, if it ran. The future may be dropped, and
    /// `end` called again.
    pub(super) async fn end(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        self.lifeline = None;
        let began = tokio::time::Instant::now();
        let status = tokio::time::timeout(STOP_WITHIN + SUPERVISOR_WITHIN, process.wait()).await;
        let ended = match status {
            Ok(status) if began.elapsed() < STOP_WITHIN => describe_exit(status),
            Ok(_) => format!("it did not stop within {} s and was killed", STOP_WITHIN.as_secs()),
            Err(_) => {
                // The process may be gone already.
                let _ = process.kill().await;
                "its supervisor did not answer and was killed".to_owned()
            }
        };
        self.process = None;
        self.drain_output().await;
        Some(ended)
    }

    /// Waits until the rest of the operator's output is printed, at most for a while.
    async fn drain_output(&mut self) {
        let all = async { while self.readers.join_next().await.is_some() {} };
        // Output that comes later is lost.
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, all).await;
    }
}

/// The manifests that an operator prints when it is asked with a flag such as `--print-crds`, one document each. Its other flags are passed as well: they
/// may say which namespaces it watches, or what it is called.
pub(crate) async fn printed(
    executable: &Path,
    directory: &Path,
    flag: &str,
    invocation: &Invocation,
) -> Result<Vec<String>, String> {
    let mut command = Command::new(executable);
    command.arg(flag).args(&invocation.flags).current_dir(directory).kill_on_drop(true);
    // The address of its webhooks is in the CRDs of kinds with several versions.
    command.envs(defaults(std::env::vars_os().collect(), directory, invocation));
    command.envs(invocation.variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = huge_pages::allow_for_child(|| command.spawn());
    let process = process.map_err(|error| format!("it cannot be started: {error}"))?;
    let output = match tokio::time::timeout(PRINT_WITHIN, process.wait_with_output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("its output cannot be read: {error}")),
        Err(_) => return Err(format!("it did not answer {flag}; does it use settings of its own?")),
    };
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("it does not know {flag}: {words}"));
    }
    Ok(split(&String::from_utf8_lossy(&output.stdout)))
}

pub(crate) fn describe_exit(status: std::io::Result<ExitStatus>) -> String {
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
        // The process may be gone already.
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
        let (health, hooks) = ("KONVERGE_HEALTH_PROBE_BIND_ADDRESS", "KONVERGE_WEBHOOK_BIND_ADDRESS");
        let flags = |words: &[&str]| Invocation::new(words.iter().map(|word| (*word).to_owned()));
        for (words, expect) in [
            (&["--metrics-bind-address=:9000"][..], &[log, health, hooks][..]),
            (&["KONVERGE_LOG_FORMAT=json", "--health-probe-bind-address", "0"], &[metrics, hooks]),
            (&["--config=some.yaml"], &[log, health, hooks]),
            (&["--unknown"], &[log, metrics, health, hooks]),
        ] {
            // A file that a flag names is found from the directory of the operator, which is the current one there.
            let words: Vec<String> = words
                .iter()
                .map(|word| word.replace("some.yaml", &directory.path().join("some.yaml").to_string_lossy()))
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let given = defaults(BTreeMap::new(), directory.path(), &flags(&words));
            assert_eq!(given.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), expect, "{words:?}");
        }
        for (environment, expect) in [
            (&[][..], &[log, metrics, health, hooks][..]),
            (&[(metrics, ":9000")], &[log, health, hooks]),
            (&[(log, "json"), (health, "0")], &[metrics, hooks]),
            (&[(CONFIG, "")], &[log, metrics, health, hooks]),
            (&[(CONFIG, "some.yaml")], &[log, health, hooks]),
            (&[(CONFIG, "some.yaml"), (log, "json")], &[health, hooks]),
            // The operator says what is wrong.
            (&[(CONFIG, "bad.yaml")], &[log, metrics, health, hooks]),
            (&[(CONFIG, "none.yaml"), (log, "json")], &[metrics, health, hooks]),
        ] {
            let variables = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let given: Vec<&str> =
                defaults(variables, directory.path(), &flags(&[])).into_iter().map(|(name, _)| name).collect();
            assert_eq!(given, expect, "{environment:?}");
        }
    }
}
