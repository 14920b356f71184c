//! A command in a container, or its own process: `exec` and `attach`. In: stdin and terminal sizes of the client. Out: stdout and
//! stderr of a program, and at last how it ended, on the error stream. What the program does is not decided here.

mod terminal;

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Conversation, Event, Wire};
use terminal::{Key, Terminal};

/// How long a client may take to open its streams: what kubelets have.
const OPEN_STREAMS: Duration = Duration::from_secs(30);

/// How much stdin is kept until all streams are open.
const MAX_EARLY: usize = 64 << 10;

/// The longest description of a terminal's size.
const MAX_RESIZE: usize = 1 << 10;

/// The exit code of a program whose container was stopped.
const KILLED: i32 = 137;

/// The exit code of a program that its user interrupted.
const INTERRUPTED: i32 = 130;

/// Which streams a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    /// It could not be run.
    Failed(String),
}

/// What a program printed, and whether it has ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<Exit>,
}

impl Output {
    /// Prints a text.
    pub(crate) fn print(&mut self, text: &str) {
        self.stdout.extend_from_slice(text.as_bytes());
    }

    /// Prints an error.
    pub(crate) fn complain(&mut self, text: &str) {
        self.stderr.extend_from_slice(text.as_bytes());
    }

    /// Ends the program.
    pub(crate) fn exit(&mut self, code: i32) {
        self.exit = Some(Exit::Code(code));
    }
}

/// A program with stdin, stdout and stderr.
pub(crate) trait Program: Send {
    fn begin(&mut self, output: &mut Output);
    fn stdin(&mut self, bytes: &[u8], output: &mut Output);
    fn stdin_closed(&mut self, output: &mut Output);
    /// Ctrl-C on its terminal.
    fn interrupt(&mut self, output: &mut Output) {
        output.exit(INTERRUPTED);
    }
    /// Its container was stopped.
    fn killed(&mut self, output: &mut Output) {
        output.exit(KILLED);
    }
}

/// How the end of a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusFormat {
    /// Since version 4: a `Status`, also of a success.
    Json,
    /// The message of a failure.
    Text,
}

/// What is on each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Stdin,
    Stdout,
    Stderr,
    Error,
    Resize,
}

/// The roles of the channels of a WebSocket, by number.
const CHANNELS: [Role; 5] = [Role::Stdin, Role::Stdout, Role::Stderr, Role::Error, Role::Resize];

/// One command and its client.
pub(crate) struct RemoteCommand {
    options: StreamOptions,
    command: String,
    status: StatusFormat,
    program: Box<dyn Program>,
    terminal: Option<Terminal>,
    streams: Vec<(u32, Role)>,
    /// How many streams the client has to open before the program begins.
    awaited: usize,
    /// What came before that.
    early: Vec<Event>,
    resize: Vec<u8>,
    stdin_closed: bool,
    over: bool,
}

impl RemoteCommand {
    /// A command over `protocol`, whose streams its client opens, or which has numbered channels.
    pub(crate) fn new(
        protocol: &str,
        opens_streams: bool,
        options: StreamOptions,
        command: &[String],
        program: Box<dyn Program>,
    ) -> Self {
        let resizes = matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let wanted = [options.stdin, options.stdout, options.stderr, options.tty && resizes, true];
        let channels = CHANNELS.into_iter().enumerate().map(|(number, role)| (number as u32, role));
        Self {
            options,
            command: command.join(" "),
            status: if protocol.starts_with("v4.") || protocol.starts_with("v5.") {
                StatusFormat::Json
            } else {
                StatusFormat::Text
            },
            program,
            terminal: options.tty.then(Terminal::default),
            streams: if opens_streams { Vec::new() } else { channels.collect() },
            awaited: if opens_streams { wanted.into_iter().filter(|wanted| *wanted).count() } else { 0 },
            early: Vec::new(),
            resize: Vec::new(),
            stdin_closed: false,
            over: false,
        }
    }

    fn stream(&self, role: Role) -> Option<u32> {
        self.streams.iter().find(|(_, other)| *other == role).map(|(stream, _)| *stream)
    }

    fn role(&self, stream: u32) -> Option<Role> {
        self.streams.iter().find(|(other, _)| *other == stream).map(|(_, role)| *role)
    }

    fn opened(&mut self, stream: u32, headers: &[(String, String)], wire: &mut dyn Wire) {
        let kind = headers.iter().find(|(name, _)| name == "streamtype").map(|(_, value)| value.as_str());
        let role = match kind {
            Some("stdin") => Role::Stdin,
            Some("stdout") => Role::Stdout,
            Some("stderr") => Role::Stderr,
            Some("error") => Role::Error,
            Some("resize") => Role::Resize,
            _ => return wire.reset(stream),
        };
        if self.stream(role).is_some() || self.awaited == 0 {
            return wire.reset(stream);
        }
        wire.accept(stream);
        self.streams.push((stream, role));
        self.awaited -= 1;
        if self.awaited == 0 {
            self.start(wire);
            for event in std::mem::take(&mut self.early) {
                self.event(event, wire);
            }
        }
    }

    fn start(&mut self, wire: &mut dyn Wire) {
        self.run(wire, |program, output| program.begin(output));
        if !self.options.stdin {
            self.run(wire, |program, output| program.stdin_closed(output));
        }
    }

    fn keep(&mut self, event: Event) {
        self.early.push(event);
        let bytes = |event: &Event| if let Event::Data { bytes, .. } = event { bytes.len() } else { 1 };
        // A client that talks before it has opened its streams means something else.
        self.over = self.early.iter().map(bytes).sum::<usize>() > MAX_EARLY;
    }

    fn stdin(&mut self, bytes: &[u8], wire: &mut dyn Wire) {
        if !self.options.stdin || self.stdin_closed {
            return;
        }
        let Some(mut terminal) = self.terminal.take() else {
            return self.run(wire, |program, output| program.stdin(bytes, output));
        };
        for byte in bytes {
            let mut echo = Vec::new();
            let key = terminal.key(*byte, &mut echo);
            self.send(Role::Stdout, &echo, wire);
            match key {
                Key::Nothing => {}
                Key::Line(line) => self.run(wire, |program, output| program.stdin(&line, output)),
                Key::End => self.run(wire, |program, output| program.stdin_closed(output)),
                Key::Interrupt => self.run(wire, |program, output| program.interrupt(output)),
            }
            if self.over {
                break;
            }
        }
        self.terminal = Some(terminal);
    }

    fn run(&mut self, wire: &mut dyn Wire, act: impl FnOnce(&mut dyn Program, &mut Output)) {
        if self.over {
            return;
        }
        let mut output = Output::default();
        act(&mut *self.program, &mut output);
        self.print(&output, wire);
        if let Some(exit) = output.exit {
            self.end(&exit, wire);
        }
    }

    fn print(&self, output: &Output, wire: &mut dyn Wire) {
        if !self.options.tty {
            self.send(Role::Stdout, &output.stdout, wire);
            self.send(Role::Stderr, &output.stderr, wire);
            return;
        }
        // A terminal has one output, and begins each line at its left edge.
        for text in [&output.stdout, &output.stderr] {
            self.send(Role::Stdout, &terminal::lines(text), wire);
        }
    }

    fn send(&self, role: Role, bytes: &[u8], wire: &mut dyn Wire) {
        let wanted = match role {
            Role::Stdout => self.options.stdout,
            Role::Stderr => self.options.stderr,
            _ => true,
        };
        if let Some(stream) = self.stream(role).filter(|_| wanted && !bytes.is_empty()) {
            wire.send(stream, bytes);
        }
    }

    fn end(&mut self, exit: &Exit, wire: &mut dyn Wire) {
        let status = status(exit, &self.command);
        let text = match (self.status, exit) {
            (StatusFormat::Json, _) => status.to_string(),
            (StatusFormat::Text, Exit::Code(0)) => String::new(),
            (StatusFormat::Text, _) => status["message"].as_str().unwrap_or_default().to_owned(),
        };
        self.send(Role::Error, text.as_bytes(), wire);
        for role in [Role::Stdout, Role::Stderr, Role::Error] {
            if let Some(stream) = self.stream(role) {
                wire.close(stream);
            }
        }
        self.over = true;
    }

    /// Sizes are read so that bad ones are noticed; a simulated program does not look at its terminal.
    fn resized(&mut self, bytes: &[u8]) {
        self.resize.extend_from_slice(bytes);
        let mut sizes = serde_json::Deserializer::from_slice(&self.resize).into_iter::<TerminalSize>();
        let mut read = 0;
        let valid = loop {
            match sizes.next() {
                Some(Ok(_)) => read = sizes.byte_offset(),
                Some(Err(error)) => break error.is_eof(),
                None => break true,
            }
        };
        self.resize.drain(..read);
        if !valid || self.resize.len() > MAX_RESIZE {
            // As kubelets do: what follows on this stream is not read.
            self.streams.retain(|(_, role)| *role != Role::Resize);
            self.resize.clear();
        }
    }
}

impl Conversation for RemoteCommand {
    fn begin(&mut self, wire: &mut dyn Wire) {
        if self.awaited > 0 {
            return;
        }
        // An empty message tells the client that the connection is there.
        let first = match self.options {
            StreamOptions { stdout: true, .. } => Role::Stdout,
            StreamOptions { stderr: true, .. } => Role::Stderr,
            _ => Role::Error,
        };
        if let Some(stream) = self.stream(first) {
            wire.send(stream, &[]);
        }
        self.start(wire);
    }

    fn event(&mut self, event: Event, wire: &mut dyn Wire) {
        match event {
            Event::Opened { stream, headers } => self.opened(stream, &headers, wire),
            Event::GoneAway => self.over = true,
            event if self.awaited > 0 => self.keep(event),
            Event::Data { stream, bytes } => match self.role(stream) {
                Some(Role::Stdin) => self.stdin(&bytes, wire),
                Some(Role::Resize) => self.resized(&bytes),
                _ => {}
            },
            Event::Closed { stream } | Event::Reset { stream } => {
                if self.role(stream) == Some(Role::Stdin) && self.options.stdin && !self.stdin_closed {
                    self.stdin_closed = true;
                    self.run(wire, |program, output| program.stdin_closed(output));
                }
            }
        }
    }

    fn target_ended(&mut self, wire: &mut dyn Wire) {
        if self.awaited > 0 {
            self.over = true;
        }
        self.run(wire, |program, output| program.killed(output));
    }

    /// A stream that just ends would be a success to kubectl.
    fn server_closes(&mut self, wire: &mut dyn Wire) {
        if !self.over {
            self.end(&Exit::Failed("the server is shutting down".to_owned()), wire);
        }
    }

    fn setup_limit(&self) -> Option<Duration> {
        (self.awaited > 0).then_some(OPEN_STREAMS)
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

/// The size of a client's terminal.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSize {
    #[serde(rename = "Width")]
    _width: u16,
    #[serde(rename = "Height")]
    _height: u16,
}

/// The `Status` that ends a command.
fn status(exit: &Exit, command: &str) -> Value {
    match exit {
        Exit::Code(0) => json!({"metadata": {}, "status": "Success"}),
        Exit::Code(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!(
                "command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
            ),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Exit::Failed(why) => {
            let why = format!("error executing command in container: {why}");
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": why}]},
                "code": 500,
            })
        }
    }
}

#[cfg(test)]
mod tests;
