//! Starts webhook servers as processes. In: which program. Out: a server that answers, and that is killed when it is dropped.
//! Go's server is built first, if there is Go.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::certificate_directory::CertificateDirectory;
use super::review::{Hook, Reviews};
use super::subject::Implementation;
use crate::child::with_log;
use crate::cores::Cores;
use crate::http::Endpoint;
use crate::invalid_run::InvalidRun;
use crate::process::Process;
use crate::tls;

/// How long a server may take until it answers.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The folder of Go's server, beside this package.
const GO_MODULE: &str = "../tests/go";

/// A webhook server that is measured.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// This program.
    Own(Implementation),
    /// controller-runtime's.
    Go(PathBuf),
}

impl Program {
    /// The framework's server.
    pub(super) const KONVERGE: Program = Program::Own(Implementation::Konverge);

    /// Whether it is the framework's.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Self::Own(Implementation::Konverge))
    }

    /// Its name in the report.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Own(Implementation::Konverge) => "konverge",
            Self::Own(Implementation::Bare) => "bare",
            Self::Go(_) => "go",
        }
    }
}

/// All servers, ours first, and why Go's is left out if it is.
pub(super) fn programs() -> (Vec<Program>, Option<String>) {
    let mut programs = vec![Program::KONVERGE, Program::Own(Implementation::Bare)];
    match build_go() {
        Ok(program) => {
            programs.push(Program::Go(program));
            (programs, None)
        }
        Err(why) => (programs, Some(format!("left out: {why}"))),
    }
}

fn build_go() -> Result<PathBuf, String> {
    if Command::new("go").arg("version").output().is_err() {
        return Err("go is not on the path".to_owned());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = own.with_file_name("webhook-go");
    eprintln!("bench: building Go's webhook server …");
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(GO_MODULE);
    let built = Command::new("go").current_dir(module).args(["build", "-o"]).arg(&program).arg("./webhook").output();
    let built = built.map_err(|error| error.to_string())?;
    if built.status.success() {
        return Ok(program);
    }
    let text = String::from_utf8_lossy(&built.stderr);
    Err(format!("it does not build: {}", text.lines().last().unwrap_or_default()))
}

/// What all servers have in common.
pub(super) struct Launcher<'a> {
    pub cores: Cores,
    pub certificates: &'a CertificateDirectory,
    /// The URL of the API server that the framework tells of its webhooks.
    pub api_server: &'a str,
}

/// A running webhook server.
pub(super) struct WebhookServer {
    child: Child,
    /// Where it listens, and whom to trust.
    pub endpoint: Endpoint,
}

impl Launcher<'_> {
    /// Starts a server and waits until it answers.
    pub(super) async fn start(&self, program: &Program) -> Result<WebhookServer, InvalidRun> {
        // A port that is free now. Go's server takes no port 0.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let log = self.certificates.path().join(format!("{}-{port}.log", program.name()));
        let mut command = match program {
            Program::Own(implementation) => {
                let mut command = Command::new(std::env::current_exe()?);
                let name = implementation.to_possible_value().map(|value| value.get_name().to_owned());
                command.arg("webhook-subject").arg(name.unwrap_or_default()).args(["--server", self.api_server]);
                command
            }
            Program::Go(program) => Command::new(program),
        };
        command.arg("--port").arg(port.to_string()).arg("--cert-dir").arg(self.certificates.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = self.cores.for_server(|| command.spawn())?;
        let tls = Some(tls::trusting(self.certificates.bundle().as_bytes())?);
        let endpoint = Endpoint { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), tls };
        let mut server = WebhookServer { child, endpoint };
        server.wait().await.map_err(|invalid| with_log(invalid.during(program.name()), &log))?;
        Ok(server)
    }

    /// Starts all servers.
    pub(super) async fn start_all(&self, programs: &[Program]) -> Result<Vec<WebhookServer>, InvalidRun> {
        let mut servers = Vec::with_capacity(programs.len());
        for program in programs {
            servers.push(self.start(program).await?);
        }
        Ok(servers)
    }
}

impl WebhookServer {
    /// The process, to measure it.
    pub(super) fn process(&self) -> Process {
        Process(self.child.id())
    }

    async fn wait(&mut self) -> Result<(), InvalidRun> {
        let begun = Instant::now();
        let mut reviews = Reviews::of(Hook::Mutate);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(InvalidRun::new(format!("the server ended with {status}")));
            }
            match self.endpoint.once(reviews.request(1), 200).await {
                Ok(answer) => return reviews.check(&answer),
                Err(invalid) if begun.elapsed() > TIMEOUT => return Err(invalid.during("waiting for an answer")),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
