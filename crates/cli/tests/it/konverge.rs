//! The command in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.args(arguments).current_dir(directory).env_remove("RUST_LOG").env_remove("PORT");
    command
}

/// Runs it to a good end; returns what it said.
pub fn runs(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory, arguments).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs it to a bad end; returns why.
pub fn fails(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory, arguments).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?} said something");
    String::from_utf8(output.stderr).expect("text")
}

/// A server that runs; killed if the test fails.
pub struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The line it printed when ready.
    pub ready: String,
}

impl Running {
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut child = command(directory, arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut ready = String::new();
        out.read_line(&mut ready).expect("a line");
        assert!(ready.contains(" ready at http"), "{arguments:?} said {ready:?}");
        Running { child, out, ready }
    }

    pub fn url(&self) -> &str {
        self.ready.split_whitespace().find(|word| word.starts_with("http")).expect("an address")
    }

    pub fn port(&self) -> u16 {
        self.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A request whose answer is not read yet.
    pub fn open(&self, path: &str) -> TcpStream {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"))
    }

    pub fn get(&self, path: &str) -> String {
        answer(self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")))
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        answer(self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )))
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("a request");
        stream
    }

    /// Asks it to stop; returns its exit code and what it said after the first line.
    pub fn stop(mut self) -> (Option<i32>, String) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a stop it is gone; after a failed assertion it must not stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
