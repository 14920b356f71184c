//! Asks an operator about itself. In: its project. Out: a description. The operator is built once, and started once for each question with
//! an environment that says nothing, so that what it prints depends on its code alone.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use konverge::{Settings, SettingsError};
use serde_json::Value;

use super::{DeployTarget, Description, PROBED, Package, Printed, object_name};
use crate::documents::split;
use crate::huge_pages;
use crate::project::{CompileError, Project};

/// How long the operator may take for an answer, which needs no cluster.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// How often is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A kubeconfig that is not there: an operator that does not know the question must not begin to work on somebody's cluster.
const NO_CLUSTER: &str = "/nonexistent/konverge-asks-only";

/// Why an operator could not be described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error("{} cannot be started", .0.display())]
    Start(PathBuf, #[source] io::Error),
    #[error(
        "the operator did not answer {0} within {secs} s; `Operator::run` answers it, unless settings were made in code with `.settings(…)`",
        secs = ANSWER_WITHIN.as_secs()
    )]
    Silent(String),
    #[error("the operator does not answer {flag}: {words}")]
    Refused { flag: String, words: String },
    #[error("what the operator prints for {flag} is not understood: {why}")]
    Answer { flag: String, why: String },
    #[error("the settings that the operator prints are not understood")]
    Settings(#[from] SettingsError),
}

impl Description {
    /// Builds the operator of a project and asks it.
    pub(crate) fn of(project: &Project, package: Package, target: DeployTarget) -> Result<Self, AskError> {
        let executable = project.compile(&[])?;
        Self::ask(&executable, project.directory(), package, target)
    }

    /// Asks an operator that is built.
    pub(crate) fn ask(
        executable: &Path,
        directory: &Path,
        package: Package,
        target: DeployTarget,
    ) -> Result<Self, AskError> {
        let operator = Asked { executable, directory, pod_name: format!("{}-0", target.name) };
        let named = format!("--operator-name={}", target.name);
        let settings = settings(&operator.answer(&["--print-config", &named])?)?;
        // The code of the operator may insist on a name.
        let (name, namespace) = (object_name(&settings.name), &target.namespace);
        let service = match &settings.webhook.service {
            Some(service) if service.contains('/') => service.clone(),
            Some(service) => format!("{namespace}/{service}"),
            None => format!("{namespace}/{name}-webhook"),
        };
        let service = format!("--webhook-service={service}");
        let lease = format!("--leader-election-namespace={namespace}");
        let with = |flag: &str, more: &str| {
            let flags = [flag, &named, &service, "--leader-elect", &lease, more];
            operator.manifests(&flags[..if more.is_empty() { 5 } else { 6 }])
        };
        let printed = Printed {
            definitions: with("--print-crds", "")?,
            rbac: with("--print-rbac", "")?,
            scoped_rbac: with("--print-rbac", &format!("--namespace={PROBED}"))?,
            webhooks: with("--print-webhooks", "")?,
            // Operators without Raft refuse to answer, and older ones do not know the question.
            stateful: operator.manifests(&["--print-statefulset", &named]).unwrap_or_default(),
        };
        Ok(Self::new(package, target, settings, printed))
    }
}

/// The settings in the form of a file.
fn settings(printed: &str) -> Result<Settings, AskError> {
    // Settings are read from a file only, and by the one reader there is.
    let file = std::env::temp_dir().join(format!("konverge-settings-{}.yaml", std::process::id()));
    std::fs::write(&file, printed).map_err(|error| AskError::Start(file.clone(), error))?;
    let arguments = ["operator".into(), "--config".into(), file.clone().into_os_string()];
    let loaded = Settings::loader().args(arguments).load();
    // A file that is left behind in the directory for such files does no harm.
    let _ = std::fs::remove_file(&file);
    Ok(loaded?.settings)
}

struct Asked<'a> {
    executable: &'a Path,
    directory: &'a Path,
    /// The name of its first Pod. Members of Raft have their number from it, and their code asks for it before it answers.
    pod_name: String,
}

impl Asked<'_> {
    fn manifests(&self, flags: &[&str]) -> Result<Vec<Value>, AskError> {
        let understood = |document: &String| {
            serde_saphyr::from_str(document)
                .map_err(|error| AskError::Answer { flag: flags[0].to_owned(), why: error.to_string() })
        };
        split(&self.answer(flags)?).iter().map(understood).collect()
    }

    /// What the operator prints when it is asked with these flags, of which the first is the question.
    fn answer(&self, flags: &[&str]) -> Result<String, AskError> {
        let mut command = Command::new(self.executable);
        command.args(flags).current_dir(self.directory);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("KONVERGE_") || ["NAMESPACE", "WATCH_NAMESPACE", "RUST_LOG"].contains(&&*text) {
                command.env_remove(&name);
            }
        }
        command.env("KUBECONFIG", NO_CLUSTER).env("POD_NAME", &self.pod_name);
        let output = self.output(command, flags[0])?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(AskError::Refused { flag: flags[0].to_owned(), words });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn output(&self, mut command: Command, flag: &str) -> Result<Output, AskError> {
        let failed = |error| AskError::Start(self.executable.to_owned(), error);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = huge_pages::allow_for_child(|| command.spawn()).map_err(failed)?;
        // Pipes are read while it runs: a full one would hold it up.
        let mut pipes = (process.stdout.take(), process.stderr.take());
        let read = |pipe: Option<&mut dyn io::Read>| {
            let mut bytes = Vec::new();
            pipe.map_or(Ok(0), |pipe| pipe.read_to_end(&mut bytes)).map(|_| bytes)
        };
        std::thread::scope(|scope| {
            let stdout = scope.spawn(|| read(pipes.0.as_mut().map(|pipe| pipe as &mut dyn io::Read)));
            let stderr = scope.spawn(|| read(pipes.1.as_mut().map(|pipe| pipe as &mut dyn io::Read)));
            let deadline = Instant::now() + ANSWER_WITHIN;
            let status = loop {
                if let Some(status) = process.try_wait().map_err(failed)? {
                    break status;
                }
                if Instant::now() > deadline {
                    // It may have ended by itself in this moment.
                    let _ = process.kill();
                    let _ = process.wait();
                    return Err(AskError::Silent(flag.to_owned()));
                }
                std::thread::sleep(LOOK);
            };
            let gone = || io::Error::other("its output was not read");
            let stdout = stdout.join().map_err(|_| failed(gone()))?.map_err(failed)?;
            let stderr = stderr.join().map_err(|_| failed(gone()))?.map_err(failed)?;
            Ok(Output { status, stdout, stderr })
        })
    }
}
