//! A server for one scenario. In: nothing. Out: a running `konverge apiserver` or `konverge dev`, and a way to run
//! `kubectl` on it.
//!
//! Dropping it kills the process and removes its folder; a failing scenario prints what the server said first.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::kubectl::Kubectl;

/// Starting takes milliseconds; a machine that runs many builds may take longer.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running server with a home of its own.
pub(crate) struct Cluster {
    server: Child,
    folder: TempDir,
    kubectl: PathBuf,
}

impl Cluster {
    /// Starts one; nothing when there is no `kubectl` to drive, which is then said.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts one with more options.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        Self::launch("apiserver", options)
    }

    /// Starts one on which controllers are at work and pods are simulated.
    pub(crate) fn develop(options: &[&str]) -> Option<Self> {
        Self::launch("dev", options)
    }

    fn launch(command: &str, options: &[&str]) -> Option<Self> {
        let kubectl = find_kubectl()?;
        let folder = tempfile::tempdir().expect("a folder can be made");
        let log = File::create(folder.path().join("server.log")).expect("a log can be written");
        let server = Command::new(env!("CARGO_BIN_EXE_konverge"))
            // The kubeconfig is written into the data directory.
            .args([command, "--memory", "--port", "0", "--data-dir"])
            .arg(folder.path())
            .args(options)
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the konverge binary runs");
        let mut cluster = Self { server, folder, kubectl };
        cluster.await_ready();
        Some(cluster)
    }

    /// Waits for the line that tells the address, which comes after the kubeconfig is written.
    fn await_ready(&mut self) {
        let stdout = self.server.stdout.take().expect("stdout is piped");
        let (tell, told) = mpsc::channel();
        // Keeps reading until the server ends, so that it never writes into a closed pipe.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        loop {
            let line = told.recv_timeout(READY_WITHIN).expect("the server says that it is ready");
            if line.contains("http://") || line.contains("https://") {
                return;
            }
        }
    }

    /// A `kubectl` command, written as in a shell: words, and quotes around words with spaces.
    pub(crate) fn kubectl(&self, command: &str) -> Kubectl {
        let mut process = Command::new(&self.kubectl);
        process
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("TZ", "UTC")
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .current_dir(self.folder.path());
        let cache = self.folder.path().join("cache");
        Kubectl::new(process, command, &cache)
    }

    /// Creates objects that a scenario starts from.
    #[track_caller]
    pub(crate) fn create(&self, manifest: &str) {
        self.kubectl("create -f -").input(manifest).succeeds();
    }

    /// What a workload should be is what it is.
    #[track_caller]
    pub(crate) fn rolled_out(&self, what: &str) {
        // kubectl gives up before the scenario does, so that there is a server to ask what is in the way.
        if let Err(said) = self.kubectl(&format!("rollout status {what} --timeout=50s")).tried() {
            let state = self.kubectl("get deploy,rs,sts,ds,pods,nodes,events -A -o yaml").text();
            panic!("{what} is not rolled out: {said}\n{state}");
        }
    }

    /// Asks again and again until the answer is this; for what `kubectl wait` cannot say.
    #[track_caller]
    pub(crate) fn until(&self, command: &str, is_so: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + READY_WITHIN;
        loop {
            let said = self.kubectl(command).text();
            if is_so(&said) {
                return said;
            }
            assert!(Instant::now() < end, "kubectl {command}: did not become as expected; it says\n{said}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// An object as it is kept; `what` is as in `kubectl get`.
    #[track_caller]
    pub(crate) fn object(&self, what: &str) -> Value {
        self.kubectl(&format!("get {what} -o json --show-managed-fields")).json()
    }

    /// A file in the scenario's folder, where `kubectl` runs.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// An executable in the scenario's folder.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script can be made executable");
        path
    }

    /// The scenario's folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("server.log")).unwrap_or_default();
            eprintln!("the server's log:\n{log}");
        }
    }
}

/// The `kubectl` on the PATH. A machine without it skips loudly; a gate that lacks it has not checked anything.
fn find_kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file());
    if found.is_none() {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let why = format!("{name}: there is no kubectl on the PATH to drive");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        // Not `eprintln!`, which the test runner keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED {why}");
    }
    found
}
