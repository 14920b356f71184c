//! One build. In: a project. Out: an executable and the files it was made of, or why the build failed. The output of cargo is
//! printed as it comes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::Project;
use super::lines::{LineSource, Lines};
use crate::huge_pages;

/// The result of a build.
#[derive(Debug)]
pub(super) struct Built {
    pub executable: PathBuf,
    /// Everything that was compiled, and the manifests.
    pub files: Vec<PathBuf>,
}

/// The cargo that started this process, if one did; else the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds the binary of a project.
pub(super) async fn build(project: &Project, lines: &Lines) -> Result<Built, String> {
    let mut command = Command::new(cargo());
    command
        .args(["build", "--message-format=json-render-diagnostics", "--bin", project.binary()])
        .current_dir(project.directory())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if lines.are_coloured() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut cargo =
        huge_pages::allow_for_child(|| command.spawn()).map_err(|error| format!("cargo cannot be started: {error}"))?;
    let (stdout, stderr) = (cargo.stdout.take(), cargo.stderr.take());
    let words = async {
        if let Some(stderr) = stderr {
            lines.clone().repeat(LineSource::Build, stderr).await;
        }
    };
    let messages = async {
        let mut text = String::new();
        match stdout {
            Some(mut stdout) => stdout.read_to_string(&mut text).await.map(|_| text),
            None => Ok(text),
        }
    };
    let ((), messages, status) = tokio::join!(words, messages, cargo.wait());
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => return Err("the build failed".to_owned()),
        Err(error) => return Err(format!("the build's end was not seen: {error}")),
    }
    let messages = messages.map_err(|error| format!("cargo's messages cannot be read: {error}"))?;
    let executable = executable(&messages, project.binary()).ok_or("cargo built no executable")?;
    let mut files = compiled(&executable);
    files.extend(project.manifests());
    Ok(Built { executable, files })
}

/// The path of the binary in cargo's messages.
pub(super) fn executable(messages: &str, binary: &str) -> Option<PathBuf> {
    let of_binary = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["reason"] == "compiler-artifact" && message["target"]["name"] == binary;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    };
    messages.lines().filter_map(of_binary).next_back()
}

/// The files that an executable was compiled from, as cargo lists them beside it; empty if there is no list.
pub(super) fn compiled(executable: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(executable.with_extension("d")).unwrap_or_default();
    let Some((_, files)) = text.split_once(": ") else { return Vec::new() };
    listed(files.lines().next().unwrap_or_default())
}

/// The names of such a list. They are separated by spaces; a space in a name is escaped with a backslash.
fn listed(text: &str) -> Vec<PathBuf> {
    let mut names = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let name = names.last_mut().expect("there is always a name");
        match character {
            '\\' => name.extend(characters.next()),
            ' ' => names.push(String::new()),
            character => name.push(character),
        }
    }
    names.into_iter().filter(|name| !name.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_says_where_the_executable_is() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"konverge"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"shop"},"executable":"/target/debug/shop"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "shop"), Some(PathBuf::from("/target/debug/shop")));
        assert_eq!(executable(messages, "konverge"), None);
    }

    #[test]
    fn names_may_have_spaces() {
        let expect: Vec<PathBuf> = ["/a/src/main.rs", "/my dir/lib.rs"].map(PathBuf::from).into();
        assert_eq!(listed(r"/a/src/main.rs /my\ dir/lib.rs "), expect);
    }
}
