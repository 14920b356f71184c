//! The operator as a process that is measured. In: an executable and a kubeconfig. Out: whether it became ready, its metrics, its log, and how it ended. It
//! runs below a supervisor, so that it never outlives this program, whatever ends this program.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use konverge::Settings;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::observations::Started;
use crate::huge_pages;
use crate::project::{describe_exit, supervised_command};

/// How often is looked whether something has happened.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long a page of the operator may take: it is on this machine.
const PAGE_WITHIN: Duration = Duration::from_secs(5);

/// The largest page that is read.
const MOST_BYTES: u64 = 16 << 20;

/// How many lines of its log are kept: the last ones, in which a failure is told.
const MOST_LINES: usize = 2000;

/// How many of them are shown.
const LAST_WORDS: usize = 8;

/// How long the output of one that has ended may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// How long it may take to end when it is asked to; a little longer than its own time for that.
const STOP_WITHIN: Duration = Duration::from_secs(36);

/// How long it may take to end when it is killed.
const KILL_WITHIN: Duration = Duration::from_secs(10);

/// A running operator. Dropping it stops the operator.
pub(super) struct OperatorProcess {
    supervisor: Child,
    /// The supervisor stops the operator when this pipe is closed, and kills it when something is written to it.
    lifeline: Option<ChildStdin>,
    log: Arc<Mutex<Vec<String>>>,
    /// The tasks that read its output. They end with this value.
    readers: JoinSet<()>,
    metrics: Option<Page>,
    readiness: Option<Page>,
}

/// What an operator does beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It reconciles.
    Leads,
    /// It serves webhooks, and waits for a Lease that it never gets.
    StandsBy,
}

impl Part {
    /// The name and the namespace of the Lease that a standby waits for.
    pub(super) const LEASE: (&str, &str) = ("konverge-scorecard-standby", "default");

    fn variables(self) -> Vec<(&'static str, &'static str)> {
        match self {
            // Who leads is not what is measured, and a killed leader would be waited for.
            Self::Leads => vec![("KONVERGE_LEADER_ELECT", "false")],
            Self::StandsBy => vec![
                ("KONVERGE_LEADER_ELECT", "true"),
                ("KONVERGE_LEADER_ELECTION_ID", Self::LEASE.0),
                ("KONVERGE_LEADER_ELECTION_NAMESPACE", Self::LEASE.1),
                ("KONVERGE_SHARDS", "0"),
            ],
        }
    }
}

/// A page that the operator serves.
#[derive(Clone, Debug)]
struct Page {
    address: SocketAddr,
    path: String,
}

impl OperatorProcess {
    /// Starts an operator with these settings of its own.
    pub(super) fn start(
        executable: &Path,
        directory: &Path,
        kubeconfig: &Path,
        settings: &Settings,
        ports: Ports,
        part: Part,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the operator cannot be started: {error}");
        let Ports { metrics, health, webhooks } = ports;
        let mut command = supervised_command(executable, &[]).map_err(failed)?;
        for (name, _) in std::env::vars_os() {
            // What is measured is the operator, not the shell that this program was started from.
            let text = name.to_string_lossy();
            if text.starts_with("KONVERGE_") || ["NAMESPACE", "WATCH_NAMESPACE", "RUST_LOG", "PORT"].contains(&&*text) {
                command.env_remove(&name);
            }
        }
        command
            .env("KUBECONFIG", kubeconfig)
            .env("KONVERGE_LOG_FORMAT", "json")
            .env("KONVERGE_METRICS_BIND_ADDRESS", metrics.to_string())
            .env("KONVERGE_HEALTH_PROBE_BIND_ADDRESS", health.to_string())
            .env("KONVERGE_WEBHOOK_BIND_ADDRESS", webhooks.to_string())
            .envs(part.variables())
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // It is not killed when this value is dropped: the pipe closes then, and it stops the operator, as it could not if it was killed.
        let mut supervisor = huge_pages::allow_for_child(|| command.spawn()).map_err(failed)?;
        let lifeline = supervisor.stdin.take();
        let (log, mut readers) = (Arc::default(), JoinSet::new());
        if let Some(stdout) = supervisor.stdout.take() {
            readers.spawn(keep_lines(stdout, Arc::clone(&log)));
        }
        if let Some(stderr) = supervisor.stderr.take() {
            readers.spawn(keep_lines(stderr, Arc::clone(&log)));
        }
        let page = |address, path: &str| Page { address, path: path.to_owned() };
        Ok(Self {
            supervisor,
            lifeline,
            log,
            readers,
            metrics: settings.metrics.listen().map(|_| page(metrics, &settings.metrics.path)),
            readiness: settings.health.listen().map(|_| page(health, &settings.health.readiness_path)),
        })
    }

    /// Waits until it is ready to reconcile.
    pub(super) async fn ready(&mut self, within: Duration) -> Started {
        let deadline = Instant::now() + within;
        let Some(readiness) = self.readiness.clone() else { return Started::NoProbe };
        let mut last = "it does not answer".to_owned();
        while Instant::now() < deadline {
            if let Some(how) = self.ended() {
                // What it said last may still be in its pipes. A program that it has started may keep them open.
                let read = async { while self.readers.join_next().await.is_some() {} };
                let _ = timeout(READ_WITHIN, read).await;
                return Started::Ended { how, last_words: self.last_words() };
            }
            match readiness.get().await {
                Ok((200, _)) => return Started::Ready,
                Ok((code, body)) => last = format!("{} answers {code}: {}", readiness.path, body.trim()),
                Err(error) => last = format!("{} is not answered: {error}", readiness.path),
            }
            tokio::time::sleep(LOOK).await;
        }
        Started::NotReady { why: last, last_words: self.last_words() }
    }

    /// How it ended, if it ended by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.supervisor.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(describe_exit(Ok(status))),
            Err(error) => Some(describe_exit(Err(error))),
        }
    }

    /// The page of its metrics; nothing if it has none.
    pub(super) async fn metrics(&self) -> Option<String> {
        let (code, text) = self.metrics.as_ref()?.get().await.ok()?;
        (code == 200).then_some(text)
    }

    /// The last lines of its log.
    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    fn last_words(&self) -> Vec<String> {
        let log = self.log.lock();
        log[log.len().saturating_sub(LAST_WORDS)..].to_vec()
    }

    /// Asks it to stop, and waits until it is gone.
    pub(super) async fn stop(mut self) {
        self.lifeline = None;
        if timeout(STOP_WITHIN, self.supervisor.wait()).await.is_err() {
            // It may have ended just now.
            let _ = self.supervisor.kill().await;
        }
    }

    /// Kills it, so that it can do nothing more, and waits until it is gone.
    pub(super) async fn kill(mut self) -> Result<(), String> {
        if let Some(lifeline) = &mut self.lifeline {
            // The operator may have ended by itself.
            let _ = lifeline.write_all(b"k").await;
            let _ = lifeline.flush().await;
        }
        match timeout(KILL_WITHIN, self.supervisor.wait()).await {
            Ok(_) => Ok(()),
            Err(_) => {
                // It may have ended just now.
                let _ = self.supervisor.start_kill();
                Err("the operator could not be killed".to_owned())
            }
        }
    }
}

impl Page {
    async fn get(&self) -> std::io::Result<(u16, String)> {
        let Self { address, path } = self;
        let asked = async {
            let mut stream = TcpStream::connect(address).await?;
            // The older version has no chunks.
            stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
            let mut bytes = Vec::new();
            stream.take(MOST_BYTES).read_to_end(&mut bytes).await?;
            Ok::<_, std::io::Error>(bytes)
        };
        let bytes =
            timeout(PAGE_WITHIN, asked).await.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
        Ok((code, body.to_owned()))
    }
}

async fn keep_lines(pipe: impl AsyncRead + Unpin, log: Arc<Mutex<Vec<String>>>) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let mut log = log.lock();
        if log.len() >= MOST_LINES {
            log.remove(0);
        }
        log.push(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned());
        line.clear();
    }
}

/// Where an operator listens. A restarted one listens where it did before, as in a cluster, so that nothing has to be written about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    metrics: SocketAddr,
    health: SocketAddr,
    webhooks: SocketAddr,
}

impl Ports {
    /// Ports that nobody uses now. Another program may take one before the operator does; the operator says so then, and ends.
    pub(super) fn free() -> Result<Self, String> {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let found = (|| {
            // All are held until the last is found, so that they differ.
            let [metrics, health, webhooks] = [bind()?, bind()?, bind()?];
            Ok::<_, std::io::Error>(Self {
                metrics: metrics.local_addr()?,
                health: health.local_addr()?,
                webhooks: webhooks.local_addr()?,
            })
        })();
        found.map_err(|error| format!("there is no free port on the loopback address: {error}"))
    }

    /// Where it serves webhooks.
    pub(super) fn webhooks(&self) -> SocketAddr {
        self.webhooks
    }
}
