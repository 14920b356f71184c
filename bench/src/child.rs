//! The measured server, a child process. In: a program and its storage. Out: a server that is ready, and how long its start
//! took. The process is killed when the server is dropped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::cores::Cores;
use crate::http::{self, Endpoint};
use crate::invalid_run::InvalidRun;
use crate::process::Process;
use crate::{tls, widget};

/// How long a server may take to start before the run is invalid.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The program that is measured, and where it runs.
#[derive(Clone, Debug)]
pub(crate) struct ServerProgram {
    /// The `konverge` program.
    pub program: PathBuf,
    /// The directory in which data directories are created.
    pub disk: PathBuf,
    /// The cores of server and clients.
    pub cores: Cores,
}

/// Where the server keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In memory.
    Memory,
    /// On disk, acknowledged after an fsync.
    Disk,
}

impl Storage {
    /// The durability, which every row names.
    pub(crate) fn durability(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "fsync",
        }
    }
}

/// The protocol of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// HTTP/1.1.
    Plain,
    /// HTTP/1.1 over TLS.
    Tls,
}

/// Who may do what.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Requests have no credential and may do everything, so that they can be sent to other servers as they are.
    Open,
    /// Requests have the tokens of a file, and `--authorization-mode` decides.
    Tokens {
        /// Lines of token, name, uid and groups.
        file: &'a Path,
        /// Who decides.
        mode: &'static str,
    },
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// The address at which it listens.
    pub endpoint: Endpoint,
    /// How long its start took.
    pub started: Started,
    /// For clients such as kubectl.
    pub kubeconfig: PathBuf,
    /// Its data and its log; removed when it is dropped.
    directory: Option<TempDir>,
}

/// How long a start took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// From the spawn to the line that says it is ready.
    pub ready: Duration,
    /// From the spawn to the first successful response of `/readyz`.
    pub answered: Duration,
    /// CPU time until that response.
    pub cpu: Duration,
}

impl ServerProgram {
    /// Starts a server and waits until it is ready.
    pub(crate) async fn start(&self, storage: Storage, transport: Transport) -> Result<Server, InvalidRun> {
        self.start_in(self.directory()?, storage, transport, Access::Open).await
    }

    /// Starts a server in memory that knows users.
    pub(crate) async fn start_for(&self, access: Access<'_>) -> Result<Server, InvalidRun> {
        self.start_in(self.directory()?, Storage::Memory, Transport::Plain, access).await
    }

    fn directory(&self) -> Result<TempDir, InvalidRun> {
        Ok(tempfile::Builder::new().prefix("konverge-bench-").tempdir_in(&self.disk)?)
    }

    /// Ends a server whose objects are on disk, and starts it again with them.
    pub(crate) async fn restart(&self, mut server: Server) -> Result<Server, InvalidRun> {
        end(&mut server.child);
        let directory = server.directory.take().ok_or_else(|| InvalidRun::new("the server has no directory"))?;
        self.start_in(directory, Storage::Disk, Transport::Plain, Access::Open).await
    }

    async fn start_in(
        &self,
        directory: TempDir,
        storage: Storage,
        transport: Transport,
        access: Access<'_>,
    ) -> Result<Server, InvalidRun> {
        let log = directory.path().join("log");
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = Command::new(&self.program);
        command.args(["apiserver", "--port", "0", "--kubeconfig"]).arg(&kubeconfig);
        match access {
            Access::Open => command.args(["--anonymous", "everything"]),
            Access::Tokens { file, mode } => {
                command.args(["--authorization-mode", mode, "--token-auth-file"]).arg(file)
            }
        };
        if transport == Transport::Tls {
            command.arg("--tls");
        }
        match storage {
            Storage::Memory => command.arg("--memory"),
            Storage::Disk => command.arg("--data-dir").arg(directory.path().join("data")),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let (begun, spawned) = self.cores.for_server(|| (Instant::now(), command.spawn()));
        let mut child = spawned.map_err(|error| InvalidRun::new(format!("{}: {error}", self.program.display())))?;
        let address = ready_line(&mut child).map_err(|invalid| with_log(invalid, &log));
        let ready = begun.elapsed();
        let mut server = Server {
            endpoint: Endpoint { address: address.inspect_err(|_| end(&mut child))?, tls: None },
            child,
            started: Started { ready, answered: ready, cpu: Duration::ZERO },
            kubeconfig: kubeconfig.clone(),
            directory: Some(directory),
        };
        if transport == Transport::Tls {
            server.endpoint.tls = Some(tls::connector(&kubeconfig)?);
        }
        server.started.answered = first_response(&server.endpoint, begun).await?;
        server.started.cpu = server.process().cpu_exact()?;
        Ok(server)
    }

    /// Starts a server and installs the definition of widgets.
    pub(crate) async fn start_with_widgets(
        &self,
        storage: Storage,
        transport: Transport,
    ) -> Result<Server, InvalidRun> {
        let server = self.start(storage, transport).await?;
        let create = http::request("POST", widget::DEFINITIONS, "application/json", &widget::definition());
        server.endpoint.once(&create, 201).await.map_err(|invalid| invalid.during("creating the definition"))?;
        Ok(server)
    }
}

impl Server {
    /// The process, to measure it.
    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended already; then there is nothing to kill.
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads what the server prints until a line has its address.
fn ready_line(child: &mut Child) -> Result<std::net::SocketAddr, InvalidRun> {
    let stdout = child.stdout.take().ok_or_else(|| InvalidRun::new("the server's output is not piped"))?;
    for line in BufReader::new(stdout).lines() {
        if let Some(address) = address(&line?) {
            return Ok(address);
        }
    }
    Err(InvalidRun::new("the server ended before it was ready"))
}

fn address(line: &str) -> Option<std::net::SocketAddr> {
    let (_, rest) = line.split_once("http://").or_else(|| line.split_once("https://"))?;
    rest.split(|c: char| c.is_whitespace() || c == '/').next()?.parse().ok()
}

async fn first_response(endpoint: &Endpoint, begun: Instant) -> Result<Duration, InvalidRun> {
    let request = http::get("/readyz");
    loop {
        match endpoint.once(&request, 200).await {
            Ok(_) => return Ok(begun.elapsed()),
            Err(invalid) if begun.elapsed() > TIMEOUT => return Err(invalid.during("waiting for /readyz")),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Adds the last lines of a log.
pub(crate) fn with_log(invalid: InvalidRun, log: &Path) -> InvalidRun {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    if last.is_empty() {
        invalid
    } else {
        InvalidRun::new(format!("{invalid}; its log ends with: {}", last.join(" | ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_has_the_address() {
        for (line, expect) in [
            ("konverge is ready at http://127.0.0.1:4321", Some("127.0.0.1:4321")),
            ("http://127.0.0.1:80/ kubeconfig /a/b", Some("127.0.0.1:80")),
            ("konverge apiserver ready at https://127.0.0.1:6443 (memory)", Some("127.0.0.1:6443")),
            ("starting", None),
            ("see http://konverge.dev", None),
        ] {
            assert_eq!(address(line).map(|found| found.to_string()).as_deref(), expect, "{line}");
        }
    }
}
