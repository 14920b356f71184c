//! The Go program that knows what Kubernetes refuses. In: an object, and the one before it. Out: its errors. The program is
//! built once in a folder of its own, with a `go.mod` for the release.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::go_program;
use crate::source::Release;

pub(super) struct Oracle {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Builds the program if it is not there or older than its source, and starts it.
    pub(super) fn start(release: &Release, root: &Path, build: &Path) -> Result<Self, String> {
        let program = go_program::build(release, root, "xtask/oracle/main.go", build)?;
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
