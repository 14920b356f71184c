//! The Go program that knows what Kubernetes refuses. In: an object, and the one before it. Out: its errors. The program is
//! built once in a folder of its own, with a `go.mod` for the release.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::source::Release;

pub(super) struct Oracle {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Builds the program if it is not there or older than its source, and starts it.
    pub(super) fn start(release: &Release, root: &Path, build: &Path) -> Result<Self, String> {
        let folder = root.join(build);
        let program = folder.join("oracle");
        let source = root.join("xtask/oracle/main.go");
        let age = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
        if age(&program).is_none_or(|built| age(&source).is_some_and(|written| written > built)) {
            std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            let module = release.source()?.module_with_published_libraries("oracle", &release.version)?;
            std::fs::write(folder.join("go.mod"), module).map_err(|error| format!("go.mod: {error}"))?;
            std::fs::copy(&source, folder.join("main.go")).map_err(|error| format!("main.go: {error}"))?;
            go(&folder, &["mod", "tidy"])?;
            go(&folder, &["build", "-o", "oracle", "."])?;
        }
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let (Some(asked), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the oracle has no pipes".to_owned());
        };
        Ok(Self { child, asked, answers: BufReader::new(answers) })
    }

    /// The errors of an object; one that cannot be decoded has an error that says so.
    pub(super) fn ask(&mut self, object: &Value, old: Option<&Value>) -> Result<Vec<String>, String> {
        let mut question = json!({"object": object});
        if let Some(old) = old {
            question["old"] = old.clone();
        }
        let failed = |error: std::io::Error| format!("the oracle does not answer: {error}");
        writeln!(self.asked, "{question}").and_then(|()| self.asked.flush()).map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|error| format!("the oracle says {line:?}: {error}"))?;
        if let Some(refused) = answer["refused"].as_str() {
            return Ok(vec![format!("undecodable: {refused}")]);
        }
        let errors = answer["errors"].as_array().into_iter().flatten();
        Ok(errors.filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Both may fail because the program has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn go(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let shown = arguments.join(" ");
    let status = Command::new("go").args(arguments).current_dir(folder).status();
    let status = status.map_err(|error| format!("cannot run go {shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("go {shown} failed")) }
}
