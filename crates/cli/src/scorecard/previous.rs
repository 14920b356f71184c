//! The previous version of an operator. In: the path of its executable, or a revision of git. Out: an executable and its samples. A revision is written to a
//! temporary directory by git itself and built there; the repository is not changed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::samples;
use crate::documents::ReadError;
use crate::project::{CompileError, CompileOptions, FindError, Found, Project};

/// Why there is no previous version.
#[derive(Debug, thiserror::Error)]
pub(super) enum PreviousError {
    #[error("--previous {0}: there is no such file, and git does not know such a revision: {1}")]
    Unknown(String, String),
    #[error(
        "git cannot be started to read the revision; is it installed? --previous also takes the path of an executable"
    )]
    NoGit(#[source] io::Error),
    #[error("no temporary directory could be made")]
    Directory(#[source] io::Error),
    #[error("the revision {0} cannot be read: {1}")]
    Checkout(String, String),
    #[error("the revision {0} has no operator at {1}")]
    NoOperator(String, String),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("the previous version cannot be built")]
    Compile(#[from] CompileError),
    #[error("the samples of the previous version cannot be read")]
    Samples(#[from] ReadError),
}

/// The previous version. Its files are gone when this is dropped.
pub(super) struct Previous {
    pub executable: PathBuf,
    /// Where it is started.
    pub directory: PathBuf,
    /// Its own samples; none if there is only an executable.
    pub samples: Vec<(String, Value)>,
    _files: Option<TempDir>,
}

impl Previous {
    /// Finds or builds it.
    pub(super) fn of(what: &str, project: &Project) -> Result<Self, PreviousError> {
        let path = Path::new(what);
        if path.is_file() {
            let executable = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Ok(Self {
                executable,
                directory: project.directory().to_owned(),
                samples: Vec::new(),
                _files: None,
            });
        }
        let files = TempDir::with_prefix("konverge-previous-").map_err(PreviousError::Directory)?;
        let revision =
            git(project.directory(), None, &["rev-parse", "--verify", "--quiet", &format!("{what}^{{commit}}")])?;
        let revision = revision.map_err(|why| PreviousError::Unknown(what.to_owned(), why))?;
        let prefix = git(project.directory(), None, &["rev-parse", "--show-prefix"])?;
        let prefix = prefix.map_err(|why| PreviousError::Checkout(what.to_owned(), why))?;
        let index = files.path().join(".index");
        let tree = files.path().join("tree");
        let to = format!("--prefix={}/", tree.display());
        for arguments in [&["read-tree", &revision][..], &["checkout-index", "--all", &to]] {
            let done = git(project.workspace(), Some(&index), arguments)?;
            done.map_err(|why| PreviousError::Checkout(what.to_owned(), why))?;
        }
        let directory = tree.join(&prefix);
        let found = Project::find(&directory, Some(project.binary()))?;
        let Found::Operator(previous) = found else {
            let place = if prefix.is_empty() { "its top".to_owned() } else { prefix };
            return Err(PreviousError::NoOperator(what.to_owned(), place));
        };
        let executable = previous.compile_with(&beside(project.target(), project.build_directory()))?;
        let samples = samples(&[], &directory)?;
        Ok(Self { executable, directory, samples, _files: Some(files) })
    }
}

/// A build into a directory of its own, so that the executable of this version is not replaced. Dependencies that both versions have are compiled once: cargo
/// keeps them apart by version, features and flags, and the operators by where they are.
fn beside(target: &Path, build: &Path) -> CompileOptions {
    let text = |path: &Path| path.display().to_string();
    CompileOptions {
        arguments: vec!["--target-dir".to_owned(), text(&target.join("scorecard-previous"))],
        variables: vec![("CARGO_BUILD_BUILD_DIR".to_owned(), text(build))],
        ..CompileOptions::default()
    }
}

/// What git answers, or what it complains about.
fn git(directory: &Path, index: Option<&Path>, arguments: &[&str]) -> Result<Result<String, String>, PreviousError> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let output = command.output().map_err(PreviousError::NoGit)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(match text(&output.stderr) {
            none if none.is_empty() => "it is no commit".to_owned(),
            words => words,
        }),
    })
}
