//! One `kubectl` command: what it gets, how it ends, what it says. A command that does not end in time is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::expect;

/// Far longer than any command takes, even beside a build.
const DEADLINE: Duration = Duration::from_secs(60);

/// A command that is about to run.
pub(crate) struct Kubectl {
    process: Command,
    line: String,
    input: String,
}

/// A command that has ended.
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Kubectl {
    pub(crate) fn new(mut process: Command, line: &str, cache: &Path) -> Self {
        process.args(words(line)).arg("--cache-dir").arg(cache);
        Self { process, line: line.to_owned(), input: String::new() }
    }

    /// What it reads.
    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// A variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.process.env(name, value);
        self
    }

    /// It succeeds, and says exactly this, and nothing on the side.
    #[track_caller]
    pub(crate) fn prints(self, expect: &str) {
        self.warns(expect, "");
    }

    /// It succeeds, and says this, and that on the side.
    #[track_caller]
    pub(crate) fn warns(self, expect: &str, aside: &str) {
        let (line, ended) = self.end();
        expect::code(&line, 0, ended.status.code(), &ended.stderr);
        expect::text(&line, expect, &ended.stdout);
        expect::text(&line, aside, &ended.stderr);
    }

    /// It succeeds, whatever it says.
    #[track_caller]
    pub(crate) fn succeeds(self) {
        self.text();
    }

    /// It succeeds, or this is what it says.
    pub(crate) fn tried(self) -> Result<(), String> {
        let (_, ended) = self.end();
        if ended.status.success() { Ok(()) } else { Err(ended.stdout + &ended.stderr) }
    }

    /// It fails with code 1, and says why.
    #[track_caller]
    pub(crate) fn fails(self, why: &str) {
        self.ends(1, "", why);
    }

    /// It ends with this code, and says this, and that on the side.
    #[track_caller]
    pub(crate) fn ends(self, code: i32, expect: &str, aside: &str) {
        let (line, ended) = self.end();
        expect::code(&line, code, ended.status.code(), &ended.stderr);
        expect::text(&line, expect, &ended.stdout);
        expect::text(&line, aside, &ended.stderr);
    }

    /// It succeeds; what it says.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        let (line, ended) = self.end();
        expect::code(&line, 0, ended.status.code(), &ended.stderr);
        ended.stdout
    }

    /// It succeeds, and all of this is somewhere in what it says.
    #[track_caller]
    pub(crate) fn mentions(self, parts: &[&str]) {
        let line = self.line.clone();
        let said = self.text();
        let said: Vec<String> =
            said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for part in parts {
            assert!(
                said.iter().any(|line| line.contains(part)),
                "kubectl {line}: {part:?} is not in\n{}",
                said.join("\n")
            );
        }
    }

    /// It ends with this code; what it says, and what on the side.
    #[track_caller]
    pub(crate) fn says(self, code: i32) -> (String, String) {
        let (line, ended) = self.end();
        expect::code(&line, code, ended.status.code(), &ended.stderr);
        (ended.stdout, ended.stderr)
    }

    /// It succeeds; what it says, as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let line = self.line.clone();
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("kubectl {line}: not JSON: {error}\n{text}"))
    }

    /// Lets it run, to see line by line what it says.
    pub(crate) fn follow(self) -> Follow {
        let (line, mut child) = self.spawn();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = drain(child.stderr.take().expect("stderr is piped"));
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Follow { line, child, said, stderr: Some(stderr) }
    }

    fn spawn(mut self) -> (String, Child) {
        self.process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.process.spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A command that reads nothing closes its side, which is no failure.
        let _ = stdin.write_all(self.input.as_bytes());
        (self.line, child)
    }

    fn end(self) -> (String, Ended) {
        let (line, mut child) = self.spawn();
        let stdout = drain(child.stdout.take().expect("stdout is piped"));
        let stderr = drain(child.stderr.take().expect("stderr is piped"));
        let status = finish(&line, &mut child);
        let text = |reader: JoinHandle<String>| reader.join().expect("a reader does not panic");
        (line, Ended { status, stdout: text(stdout), stderr: text(stderr) })
    }
}

/// A command that runs on; killed when it is dropped.
pub(crate) struct Follow {
    line: String,
    child: Child,
    said: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Follow {
    /// The next line is this one.
    #[track_caller]
    pub(crate) fn next(&mut self, expect: &str) {
        match self.said.recv_timeout(DEADLINE) {
            Ok(line) => expect::text(&self.line, expect, &line),
            Err(_) => {
                let _ = self.child.kill();
                let stderr = self.stderr.take().map(|reader| reader.join().unwrap_or_default()).unwrap_or_default();
                panic!("kubectl {}: said no more, and not {expect:?}\n{stderr}", self.line)
            }
        }
    }

    /// It ends by itself and succeeds.
    #[track_caller]
    pub(crate) fn ends(mut self) {
        let status = finish(&self.line, &mut self.child);
        let stderr = self.stderr.take().map(|reader| reader.join().unwrap_or_default()).unwrap_or_default();
        expect::code(&self.line, 0, status.code(), &stderr);
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn finish(line: &str, child: &mut Child) -> ExitStatus {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("kubectl {line}: did not end within {DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// The words of a command line: separated by spaces, kept together by quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "a quote is open in {line:?}");
    words.extend(word);
    words
}
