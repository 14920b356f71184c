//! Programs that build images: docker, podman, buildah. In: a directory with a Dockerfile. Out: an image in the store of that program.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// What they build from.
pub(super) const DOCKERFILE: &str = "Dockerfile";

/// A program that works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine(&'static str);

/// Why an engine built nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error("{0} does not work here: {1}; --engine none makes an archive without it")]
    Broken(&'static str, String),
    #[error("{0} cannot be started")]
    Start(&'static str, #[source] io::Error),
    #[error("{0} {1} failed; it says above why")]
    Failed(&'static str, &'static str),
}

/// In this order: what a developer has most often comes first.
const ENGINES: [&str; 3] = ["docker", "podman", "buildah"];

/// More arguments of an engine, with the checkout of Konverge that the scaffolded Dockerfile copies from, unless they have it.
pub(super) fn with_context(more: &[String], konverge: Option<&Path>) -> Vec<String> {
    let is_given = more
        .iter()
        .any(|argument| argument.starts_with("konverge=") || argument.starts_with("--build-context=konverge="));
    let context = konverge.filter(|_| !is_given);
    let context = context.map(|path| format!("--build-context=konverge={}", path.display()));
    context.into_iter().chain(more.iter().cloned()).collect()
}

impl Engine {
    /// The first one that works.
    pub(super) fn find() -> Option<Self> {
        ENGINES.into_iter().find_map(|name| Self::named(name).ok())
    }

    /// This one, if it works: the client of docker may be there without its daemon.
    pub(super) fn named(name: &'static str) -> Result<Self, EngineError> {
        let question: &[&str] =
            if name == "docker" { &["version", "--format", "{{.Server.Version}}"] } else { &["version"] };
        let output = Command::new(name).args(question).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => Ok(Self(name)),
            Ok(output) => {
                let words =
                    String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or_default().to_owned();
                Err(EngineError::Broken(name, words))
            }
            Err(error) => Err(EngineError::Broken(name, error.to_string())),
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.0
    }

    /// Builds the image of a directory.
    pub(super) fn build(self, directory: &Path, image: &str, more: &[String]) -> Result<(), EngineError> {
        let mut command = Command::new(self.0);
        command.args(["build", "--tag", image]).args(more).arg(".").current_dir(directory);
        self.run(command, "build")
    }

    /// Pushes an image.
    pub(super) fn push(self, image: &str) -> Result<(), EngineError> {
        let mut command = Command::new(self.0);
        command.args(["push", image]);
        self.run(command, "push")
    }

    fn run(self, mut command: Command, what: &'static str) -> Result<(), EngineError> {
        // Standard output is for the result of this program.
        let output = command.stdin(Stdio::null()).stdout(io::stderr()).status();
        match output.map_err(|error| EngineError::Start(self.0, error))?.success() {
            true => Ok(()),
            false => Err(EngineError::Failed(self.0, what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_of_konverge_is_a_context() {
        let check = |more: &[&str], konverge: Option<&str>, expect: &[&str]| {
            let more: Vec<String> = more.iter().map(|argument| (*argument).to_owned()).collect();
            assert_eq!(with_context(&more, konverge.map(Path::new)), expect);
        };
        check(&["--pull"], None, &["--pull"]);
        check(&["--pull"], Some("/a b/k"), &["--build-context=konverge=/a b/k", "--pull"]);
        check(&["--build-context", "konverge=x"], Some("/k"), &["--build-context", "konverge=x"]);
        check(&["--build-context=konverge=x"], Some("/k"), &["--build-context=konverge=x"]);
    }
}
