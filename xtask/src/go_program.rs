//! Go programs of ours that ask Kubernetes itself. In: a source file. Out: the program, built in a folder of its own with a
//! `go.mod` for the release.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::Release;

/// Builds a program if it is not there or older than its source, and gives its path.
pub(crate) fn build(release: &Release, root: &Path, source: &str, build: &Path) -> Result<PathBuf, String> {
    let folder = root.join(build);
    let program = folder.join("oracle");
    let source = root.join(source);
    let age = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if age(&program).is_none_or(|built| age(&source).is_some_and(|written| written > built)) {
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let module = release.source()?.module_with_published_libraries("oracle", &release.version)?;
        std::fs::write(folder.join("go.mod"), module).map_err(|error| format!("go.mod: {error}"))?;
        std::fs::copy(&source, folder.join("main.go")).map_err(|error| format!("main.go: {error}"))?;
        go(&folder, &["mod", "tidy"])?;
        go(&folder, &["build", "-o", "oracle", "."])?;
    }
    Ok(program)
}

fn go(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let shown = arguments.join(" ");
    let status = Command::new("go").args(arguments).current_dir(folder).status();
    let status = status.map_err(|error| format!("cannot run go {shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("go {shown} failed")) }
}
