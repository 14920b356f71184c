//! This machine: programs, limits, the clock. In: what programs and the system say. Out: findings, by pure functions; `observe` asks.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use semver::Version;
use serde_json::Value;

use super::checks::{C_COMPILER, CLOCK, DISK, ENGINE, KUBECTL, OPEN_FILES, RUST};
use super::finding::{Finding, Outcome};
use super::program::{self, Broken};

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// What `rustc --version` prints.
    rustc: Result<String, Broken>,
    /// The name of the C compiler, and what it prints.
    compiler: (String, Result<String, Broken>),
    /// What `kubectl version --client -o json` prints.
    kubectl: Result<String, Broken>,
    /// Of each engine that is installed, whether it works.
    engines: Vec<(&'static str, Result<String, Broken>)>,
    /// How far the limit of open files can be raised; none is no limit.
    open_files: Option<u64>,
    /// Bytes that are free where the project, or the current directory, is.
    disk: Option<(PathBuf, u64)>,
}

/// A file that is always there, and empty.
const NO_FILE: &str = if cfg!(windows) { "NUL" } else { "/dev/null" };

const ENGINES: [(&str, &[&str]); 3] = [
    ("docker", &["version", "--format", "{{.Server.Version}}"]),
    ("podman", &["version", "--format", "{{.Client.Version}}"]),
    ("buildah", &["version"]),
];

/// Fewer open files than these are too few for a server with some watches.
const ENOUGH_FILES: u64 = 4096;

/// A debug build of an operator takes some gigabytes.
const ENOUGH_DISK: u64 = 5 << 30;
const HARDLY_ANY_DISK: u64 = 512 << 20;

/// Clocks that differ by more than this make logs hard to read, and by more than the second one, Leases and tokens fail.
const CLOCK_WARNING: SignedDuration = SignedDuration::from_secs(10);
const CLOCK_PROBLEM: SignedDuration = SignedDuration::from_secs(120);

/// Asks programs and the system.
pub(crate) async fn observe(directory: &Path) -> Machine {
    let compiler = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".to_owned());
    let mut engines = Vec::new();
    for (name, question) in ENGINES {
        match program::output(name, question).await {
            Err(Broken::Missing) => {}
            answer => engines.push((name, answer)),
        }
    }
    Machine {
        rustc: program::output("rustc", &["--version"]).await,
        compiler: (compiler.clone(), program::output(&compiler, &["--version"]).await),
        // Some builds of kubectl ask the server which version of themselves to run, and read whatever it sends.
        kubectl: program::output("kubectl", &["version", "--client", "-o", "json", "--kubeconfig", NO_FILE]).await,
        engines,
        open_files: open_files(),
        disk: free(directory).map(|free| (directory.to_owned(), free)),
    }
}

#[cfg(unix)]
fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

#[cfg(not(unix))]
fn open_files() -> Option<u64> {
    None
}

#[cfg(unix)]
fn free(directory: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(directory).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

/// What a server says about itself, as far as this machine is compared with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFacts {
    /// `v1.36.4`
    pub version: Option<String>,
    /// The header `date` of its answer, and when the answer came.
    pub date: Option<(String, Timestamp)>,
}

impl Machine {
    /// Findings. `needed` is the version of Rust that the project, or this program, needs.
    pub(crate) fn judge(&self, needed: &str, server: Option<&ServerFacts>) -> Vec<Finding> {
        vec![
            rust(&self.rustc, needed),
            c_compiler(&self.compiler.0, &self.compiler.1),
            kubectl(&self.kubectl, server.and_then(|server| server.version.as_deref())),
            engine(&self.engines),
            files(self.open_files),
            disk(self.disk.as_ref()),
            clock(server.and_then(|server| server.date.as_ref())),
        ]
    }

    /// The versions, a line each.
    pub(crate) fn versions(&self) -> String {
        let line = |name: &str, found: &Result<String, Broken>| match found {
            Ok(words) => format!("{name}: {}\n", words.lines().next().unwrap_or_default()),
            Err(Broken::Missing) => format!("{name}: not installed\n"),
            Err(Broken::Fails(why)) => format!("{name}: {why}\n"),
        };
        let client = self.kubectl.clone().map(|words| client_version(&words).unwrap_or_default());
        let engines: String = self.engines.iter().map(|(name, found)| line(name, found)).collect();
        line("rustc", &self.rustc) + &line(&self.compiler.0, &self.compiler.1) + &line("kubectl", &client) + &engines
    }
}

/// A version of which the last parts may be missing, or that is followed by words.
fn version(text: &str) -> Option<Version> {
    let text = text.trim().trim_start_matches('v');
    let numbers: String = text.chars().take_while(|one| one.is_ascii_digit() || *one == '.').collect();
    let mut parts = numbers.trim_end_matches('.').split('.').map(|part| part.parse().ok());
    Some(Version::new(parts.next()??, parts.next().unwrap_or(Some(0))?, parts.next().unwrap_or(Some(0))?))
}

fn rust(rustc: &Result<String, Broken>, needed: &str) -> Finding {
    match rustc {
        Err(Broken::Missing) => RUST.problem("rustc is not on the PATH", &["install Rust: https://rustup.rs"]),
        Err(Broken::Fails(why)) => {
            RUST.problem(format!("rustc does not work: {why}"), &["rustup toolchain install stable"])
        }
        Ok(words) => {
            let found = words.split_whitespace().nth(1).unwrap_or_default();
            match (version(found), version(needed)) {
                (Some(is), Some(needs)) if is < needs => {
                    RUST.problem(format!("rustc {found} is older than {needed}, which is needed"), &["rustup update"])
                }
                (Some(_), _) => RUST.ok(format!("rustc {found}; {needed} is needed")),
                (None, _) => RUST.not_checked(format!("the version of rustc is not understood: {words}")),
            }
        }
    }
}

fn c_compiler(name: &str, found: &Result<String, Broken>) -> Finding {
    match found {
        Ok(words) => C_COMPILER.ok(words.lines().next().unwrap_or(name)),
        Err(Broken::Missing) => {
            let mend = "install one: `apt install gcc`, `dnf install gcc`, `xcode-select --install`";
            C_COMPILER.problem(format!("{name} is not on the PATH"), &[mend])
        }
        Err(Broken::Fails(why)) => {
            C_COMPILER.problem(format!("{name} does not work: {why}"), &["the variable CC names another one"])
        }
    }
}

fn client_version(printed: &str) -> Option<String> {
    let value: Value = serde_json::from_str(printed).ok()?;
    value["clientVersion"]["gitVersion"].as_str().map(str::to_owned)
}

fn kubectl(found: &Result<String, Broken>, server: Option<&str>) -> Finding {
    let words = match found {
        Ok(words) => words,
        Err(Broken::Missing) => {
            let mend = "install it: https://kubernetes.io/docs/tasks/tools";
            return KUBECTL.warning("kubectl is not on the PATH; konverge needs it only for kustomize", &[mend]);
        }
        Err(Broken::Fails(why)) => return KUBECTL.warning(format!("kubectl does not work: {why}"), &[]),
    };
    let Some(client) = client_version(words) else {
        return KUBECTL.not_checked("kubectl does not say which version it is");
    };
    let Some(server) = server else { return KUBECTL.ok(format!("kubectl {client}; no server to compare it with")) };
    match (version(&client), version(server)) {
        (Some(one), Some(two)) if one.major != two.major || one.minor.abs_diff(two.minor) > 1 => {
            let mend = format!("install kubectl {}.{}: https://kubernetes.io/docs/tasks/tools", two.major, two.minor);
            let what = format!("kubectl {client} and the server {server} are more than one minor version apart");
            KUBECTL.warning(what, &[&mend])
        }
        _ => KUBECTL.ok(format!("kubectl {client}, server {server}")),
    }
}

fn engine(engines: &[(&'static str, Result<String, Broken>)]) -> Finding {
    if let Some((name, Ok(words))) = engines.iter().find(|(_, found)| found.is_ok()) {
        return ENGINE.ok(format!("{name} {}", words.lines().next().unwrap_or_default()));
    }
    match engines.first() {
        Some((name, Err(Broken::Fails(why)))) => {
            let mend = format!("start {name}, or use `konverge build --engine none`, which needs none");
            ENGINE.warning(format!("{name} is installed and does not work: {why}"), &[&mend])
        }
        _ => ENGINE.ok("there is no docker, podman or buildah; `konverge build` makes an OCI archive without them"),
    }
}

fn files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < ENOUGH_FILES => OPEN_FILES.warning(
            format!("at most {limit} files can be open; `konverge dev` then takes fewer connections"),
            &[&format!("`ulimit -Hn {ENOUGH_FILES}` as root, or nofile in /etc/security/limits.conf")],
        ),
        Some(limit) => OPEN_FILES.ok(format!("up to {limit}")),
        None => OPEN_FILES.ok("no limit"),
    }
}

fn disk(found: Option<&(PathBuf, u64)>) -> Finding {
    let Some((path, free)) = found else { return DISK.not_checked("this system does not say how much is free") };
    let what = format!("{:.1} GiB are free at {}", *free as f64 / f64::from(1 << 30), path.display());
    let outcome = match *free {
        0..HARDLY_ANY_DISK => Outcome::Problem,
        HARDLY_ANY_DISK..ENOUGH_DISK => Outcome::Warning,
        _ => return DISK.ok(what),
    };
    DISK.found(outcome, what, &["`cargo clean` frees what builds left; CARGO_TARGET_DIR puts builds elsewhere"])
}

fn clock(server: Option<&(String, Timestamp)>) -> Finding {
    let Some((date, here)) = server else { return CLOCK.not_checked("there is no server to compare with") };
    let Ok(there) = jiff::fmt::rfc2822::parse(date) else {
        return CLOCK.not_checked(format!("the server's date is not understood: {date}"));
    };
    let apart = here.duration_since(there.timestamp());
    // The server's date has no fractions of seconds.
    let what = match apart.abs() {
        apart if apart <= CLOCK_WARNING => return CLOCK.ok("as the server's, within seconds"),
        by => {
            let side = if apart.is_positive() { "ahead of" } else { "behind" };
            format!("this machine's clock is {} s {side} the server's", by.as_secs())
        }
    };
    let outcome = if apart.abs() > CLOCK_PROBLEM { Outcome::Problem } else { Outcome::Warning };
    CLOCK.found(outcome, what, &["`timedatectl set-ntp true` lets the system keep its clock right"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome::{NotChecked, Ok as Fine, Problem, Warning};

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(found.what.contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Fine | NotChecked), "what to do is said: {found:?}");
    }

    fn said(text: &str) -> Result<String, Broken> {
        Ok(text.to_owned())
    }

    #[test]
    fn compilers() {
        check(rust(&said("rustc 1.95.0 (abc 2026-01-01)"), "1.95"), Fine, "rustc 1.95.0");
        check(rust(&said("rustc 1.96.0-nightly (abc)"), "1.95.0"), Fine, "1.96.0-nightly");
        check(rust(&said("rustc 1.94.1 (abc)"), "1.95"), Problem, "older than 1.95");
        check(rust(&said("what"), "1.95"), NotChecked, "not understood");
        check(rust(&Err(Broken::Missing), "1.95"), Problem, "not on the PATH");
        check(rust(&Err(Broken::Fails("no toolchain".into())), "1.95"), Problem, "no toolchain");
        check(c_compiler("cc", &said("cc (Debian) 14\nmore")), Fine, "cc (Debian) 14");
        check(c_compiler("gcc-9", &Err(Broken::Missing)), Problem, "gcc-9 is not");
    }

    #[test]
    fn kubectl_may_be_one_version_away() {
        let client = |version: &str| said(&format!(r#"{{"clientVersion": {{"gitVersion": "{version}"}}}}"#));
        check(kubectl(&client("v1.35.1"), Some("v1.36.4")), Fine, "v1.35.1");
        check(kubectl(&client("v1.34.1"), Some("v1.36.4+konverge")), Warning, "more than one minor");
        check(kubectl(&client("v1.34.1"), None), Fine, "no server");
        check(kubectl(&said("{}"), None), NotChecked, "does not say");
        check(kubectl(&Err(Broken::Missing), None), Warning, "not on the PATH");
    }

    #[test]
    fn engines_and_limits() {
        check(engine(&[]), Fine, "without them");
        check(engine(&[("docker", Err(Broken::Fails("no daemon".into())))]), Warning, "no daemon");
        check(engine(&[("docker", Err(Broken::Fails("no".into()))), ("podman", said("5.0"))]), Fine, "podman 5.0");
        check(files(None), Fine, "no limit");
        check(files(Some(1024)), Warning, "at most 1024");
        check(files(Some(524_288)), Fine, "524288");
        check(disk(None), NotChecked, "");
        check(disk(Some(&("/x".into(), 1 << 20))), Problem, "0.0 GiB are free at /x");
        check(disk(Some(&("/x".into(), 2 << 30))), Warning, "2.0 GiB");
        check(disk(Some(&("/x".into(), 9 << 30))), Fine, "9.0 GiB");
    }

    #[test]
    fn clocks() {
        let at = |date: &str| (date.to_owned(), "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        check(clock(None), NotChecked, "no server");
        check(clock(Some(&at("Wed, 31 Dec 2025 23:59:58 GMT"))), Fine, "within seconds");
        check(clock(Some(&at("Thu, 01 Jan 2026 00:01:00 GMT"))), Warning, "60 s behind");
        check(clock(Some(&at("Wed, 31 Dec 2025 23:00:00 GMT"))), Problem, "3600 s ahead of");
        check(clock(Some(&at("noon"))), NotChecked, "not understood");
    }
}
