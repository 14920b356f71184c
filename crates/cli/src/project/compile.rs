//! One build in the foreground, for commands that build and then do something else. In: a project. Out: an executable. Cargo speaks on stderr
//! for itself, with colours if that is a terminal.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Project;
use super::build::{cargo, compiled, executable};
use crate::huge_pages;

/// Why there is no executable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("cargo cannot be started; install Rust (https://rustup.rs has it), or name cargo in the variable CARGO")]
    NoCargo(#[source] io::Error),
    #[error("the build of {0} failed; cargo says above what is wrong")]
    Failed(String),
    #[error("cargo built no executable {0}")]
    NoExecutable(String),
}

/// What is different from an ordinary build.
#[derive(Clone, Debug)]
pub(crate) struct CompileOptions {
    /// The command of cargo that builds, and takes the arguments of `cargo build`.
    pub subcommand: &'static [&'static str],
    /// More arguments of cargo.
    pub arguments: Vec<String>,
    /// More variables of its environment.
    pub variables: Vec<(String, String)>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { subcommand: &["build"], arguments: Vec::new(), variables: Vec::new() }
    }
}

/// The operator as the last debug build left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastBuild {
    pub executable: PathBuf,
    /// A file that it is made of and that has changed since, or is gone.
    pub changed: Option<PathBuf>,
}

impl Project {
    /// The last debug build, if there is one. Nothing is built.
    pub(crate) fn last_build(&self) -> Option<LastBuild> {
        let executable =
            self.target().join("debug").join(self.binary()).with_extension(std::env::consts::EXE_EXTENSION);
        let built = std::fs::metadata(&executable).and_then(|found| found.modified()).ok()?;
        let is_newer =
            |file: &PathBuf| !std::fs::metadata(file).and_then(|found| found.modified()).is_ok_and(|at| at <= built);
        let changed = compiled(&executable).into_iter().find(is_newer);
        Some(LastBuild { executable, changed })
    }

    /// Builds the operator as `cargo build` does.
    pub(crate) fn compile(&self, arguments: &[&str]) -> Result<PathBuf, CompileError> {
        let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
        self.compile_with(&CompileOptions { arguments, ..CompileOptions::default() })
    }

    /// Builds the operator in another way.
    pub(crate) fn compile_with(&self, options: &CompileOptions) -> Result<PathBuf, CompileError> {
        let mut command = Command::new(cargo());
        command
            .args(options.subcommand)
            .args(["--message-format=json-render-diagnostics", "--bin", self.binary()])
            .args(&options.arguments)
            .envs(options.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let cargo = huge_pages::allow_for_child(|| command.spawn()).map_err(CompileError::NoCargo)?;
        let output = cargo.wait_with_output().map_err(CompileError::NoCargo)?;
        if !output.status.success() {
            return Err(CompileError::Failed(self.binary().to_owned()));
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        executable(&messages, self.binary()).ok_or_else(|| CompileError::NoExecutable(self.binary().to_owned()))
    }
}
