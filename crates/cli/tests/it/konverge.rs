//! The command in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far longer than anything takes, even beside a build.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.args(arguments).current_dir(directory).env_remove("RUST_LOG").env_remove("PORT");
    // Instead of the cargo that runs the tests, one that says what a test wants, if there is one.
    let cargo = directory.join("cargo");
    if cargo.is_file() {
        command.env("CARGO", cargo);
    }
    command
}

/// Runs it to a good end; returns what it said.
pub(crate) fn runs(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory, arguments).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} failed: {error}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs it to a bad end; returns why.
pub(crate) fn fails(directory: &Path, arguments: &[&str]) -> String {
    let output = command(directory, arguments).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?} said something");
    String::from_utf8(output.stderr).expect("text")
}

/// Runs it to any end; returns the exit code, and what it said on both ways.
pub(crate) fn ends(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(directory, arguments).output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

/// Runs it to whatever end; its exit code, what it said and what it complained about. Nobody sits at its terminal.
pub(crate) fn ends_on(
    directory: &Path,
    kubeconfig: Option<&Path>,
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let mut command = command(directory, arguments);
    // A cluster of the person who runs the tests is none of theirs.
    command.env("KUBECONFIG", kubeconfig.unwrap_or(Path::new("/nonexistent/kubeconfig"))).stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Starts it, with what it says in a pipe.
pub(crate) fn start_on(directory: &Path, kubeconfig: &Path, arguments: &[&str]) -> Child {
    let mut command = command(directory, arguments);
    command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// Waits until it ends by itself; its exit code.
#[track_caller]
pub(crate) fn ended(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            return status.code();
        }
        if Instant::now() > deadline {
            child.kill().expect("it is a child");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that runs; killed if the test fails.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    /// The line it printed when ready.
    pub ready: String,
    /// The token of the kubeconfig, where requests need one.
    token: Option<String>,
}

impl Running {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::spawn(directory, arguments, &mut command(directory, arguments))
    }

    /// Under a limit of file sizes: what is written beyond it fails, as on a full disk.
    pub(crate) fn start_limited(directory: &Path, file_bytes: u64, arguments: &[&str]) -> Self {
        let mut limited = Command::new("/bin/sh");
        // POSIX counts blocks of 512 bytes.
        let script = format!("ulimit -f {}; exec \"$0\" \"$@\"", file_bytes.div_ceil(512));
        limited.args(["-c", &script, env!("CARGO_BIN_EXE_konverge")]).args(arguments).current_dir(directory);
        Self::spawn(directory, arguments, limited.env_remove("RUST_LOG").env_remove("PORT"))
    }

    fn spawn(directory: &Path, arguments: &[&str], command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (tell, out) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let ready = out.recv_timeout(PATIENCE).expect("a line");
        assert!(ready.contains(" ready at http"), "{arguments:?} said {ready:?}");
        let token = ready.starts_with("konverge apiserver").then(|| token(directory, &ready));
        Running { child, out, ready, token }
    }

    /// What it says up to a line with this in it.
    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            match self.out.recv_timeout(PATIENCE) {
                Ok(line) => said.push(line),
                Err(_) => panic!("it did not say {part:?}, but\n{}", said.join("\n")),
            }
            if said.last().is_some_and(|line| line.contains(part)) {
                return said;
            }
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.ready.split_whitespace().find(|word| word.starts_with("http")).expect("an address")
    }

    pub(crate) fn port(&self) -> u16 {
        self.url().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A request that the server has begun to answer; the rest of the answer is not read yet.
    pub(crate) fn open(&self, path: &str) -> TcpStream {
        let mut stream = self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{}\r\n", self.authorization()));
        let mut first = [0];
        stream.read_exact(&mut first).expect("the answer begins");
        stream
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let authorization = self.authorization();
        let headers = format!("host: localhost\r\nconnection: close\r\n{authorization}");
        answer(self.send(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n")))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        let (length, authorization) = (body.len(), self.authorization());
        answer(self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {authorization}content-length: {length}\r\n\r\n{body}"
        )))
    }

    /// A request as `curl` makes it; the code, and the JSON or text that came back.
    pub(crate) fn curl(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let text = answer(self.send(&self.request(method, path, headers, body, "connection: close\r\n")));
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        let body =
            if head.to_ascii_lowercase().contains("transfer-encoding: chunked") { dechunk(body) } else { body.into() };
        (code, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Server-Sent Events, as `curl -N` reads them.
    pub(crate) fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let stream = self.send(&self.request("GET", path, headers, "", ""));
        Events { lines: BufReader::new(stream), last_id: String::new() }
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str, more: &str) -> String {
        let given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        let host = if given("host") { String::new() } else { format!("host: localhost:{}\r\n", self.port()) };
        let authorization = if given("authorization") { String::new() } else { self.authorization() };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = format!("{headers}{authorization}");
        let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        format!(
            "{method} {path} HTTP/1.1\r\n{host}user-agent: curl/8.5.0\r\naccept: */*\r\n{headers}{length}{more}\r\n{body}"
        )
    }

    fn authorization(&self) -> String {
        self.token.as_ref().map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"))
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("a request");
        stream
    }

    /// Ends it without a word.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Asks it to stop; returns its exit code and what it said after the first line.
    pub(crate) fn stop(self) -> (Option<i32>, String) {
        self.ask_to_stop();
        self.ends()
    }

    pub(crate) fn ask_to_stop(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    }

    /// Waits for its end; returns its exit code and what it said.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let rest: String = self.out.iter().map(|line| line + "\n").collect();
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

/// Server-Sent Events as they come.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    /// The id that came last.
    pub last_id: String,
}

impl Events {
    /// The next event in short: `ADDED name`. Chunks of the transfer are between lines, and are none of them.
    pub(crate) fn event(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("a line");
            assert!(read > 0, "the stream ended");
            if let Some(id) = line.strip_prefix("id: ") {
                self.last_id = id.trim_end().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).expect("JSON");
                let name = data["object"]["metadata"]["name"].as_str().unwrap_or_default();
                return format!("{} {name}", data["type"].as_str().expect("a type"));
            }
        }
    }
}

/// The token in the kubeconfig that a ready line names.
fn token(directory: &Path, ready: &str) -> String {
    let (_, path) = ready.split_once(" kubeconfig ").expect("a kubeconfig");
    let text = std::fs::read_to_string(directory.join(path)).expect("it is written before the line");
    text.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token").to_owned()
}

/// The content of a chunked body.
fn dechunk(mut body: &str) -> String {
    let mut content = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        content.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    content
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
