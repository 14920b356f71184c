//! An operator as a process: what it answers to flags, and how it ends. The process is this very program, started by itself
//! with [`CHILD`] set; so it brings its own `main`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use konverge::prelude::*;
use konverge_testkit::Cluster;

/// Set for the process that is the operator.
const CHILD: &str = "KONVERGE_TESTKIT_CHILD";

/// Never gets what it wants.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Tantalus", plural = "tantali", namespaced)]
pub struct TantalusSpec {
    /// What it wants.
    pub wants: String,
}

async fn never_done(_: Context<Tantalus>) -> Result<Action> {
    konverge::tracing::info!("reconciling");
    std::future::pending().await
}

async fn talks(ctx: Context<Tantalus>) -> Result<Action> {
    konverge::tracing::info!(name = ctx.name(), "reconciling");
    writeln!(std::io::stdout(), "reconciled {}", ctx.name())?;
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::var(CHILD).as_deref() {
        Ok("talks") => return operate_as_told().await,
        Ok(_) => return operate().await,
        Err(_) => {}
    }
    code_is_stronger_than_flags_and_flags_are_heard();
    a_reader_that_has_seen_enough_is_no_error();
    a_flag_that_there_is_not_is_named_once();
    whoever_asks_twice_is_not_kept_waiting();
    a_log_that_nobody_reads_stops_nothing();
    Ok(())
}

async fn operate() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Tantalus>().await?;
    cluster.create(Tantalus::new("t", TantalusSpec { wants: "water".into() })).await?;
    let operator = Operator::<Tantalus>::new().reconcile(never_done).client(cluster.client());
    operator.configure(|settings| settings.controller.max_concurrent_reconciles = 3).run().await
}

/// Creates an object for each line of stdin, and ends with that.
async fn operate_as_told() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Tantalus>().await?;
    let (names, mut told) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).for_each(|name| drop(names.send(name))));
    let operator = Operator::<Tantalus>::new().reconcile(talks).client(cluster.client());
    let created = async {
        while let Some(name) = told.recv().await {
            let wants = TantalusSpec { wants: "to be heard".into() };
            cluster.create(Tantalus::new(&name, wants)).await.expect("the cluster takes it");
        }
    };
    operator.run_until(created).await
}

fn operator(flags: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program is somewhere"));
    command.args(flags).env(CHILD, "1").env("RUST_LOG", "info");
    command
}

fn code_is_stronger_than_flags_and_flags_are_heard() {
    let flags = ["--print-config", "--max-concurrent-reconciles=7", "--max-retries=2"];
    let answer = operator(&flags).output().expect("it runs");
    let answer = String::from_utf8_lossy(&answer.stdout);
    let line =
        |key: &str| answer.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default().to_owned();
    let (concurrent, retries) = (line("maxConcurrentReconciles"), line("maxRetries"));
    assert!(concurrent.contains(": 3 ") && concurrent.contains("# code, over flag"), "{answer}");
    assert!(retries.contains(": 2 ") && retries.ends_with("# flag --max-retries"), "{answer}");
    let crds = operator(&["--print-crds"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&crds.stdout).contains("name: tantali.example.com"), "{crds:?}");
}

fn a_reader_that_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("pipes can be made");
    drop(reader);
    for flag in ["--print-crds", "--print-rbac", "--print-config", "--help"] {
        let writer = writer.try_clone().expect("pipes can be shared");
        let ended = operator(&[flag]).stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
        assert!(ended.status.success(), "{flag}: {ended:?}");
    }
}

fn a_flag_that_there_is_not_is_named_once() {
    let ended = operator(&["--no-such-flag"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.starts_with("Error: unexpected argument '--no-such-flag' found"), "{said}");
    assert!(!ended.status.success());
}

/// The first signal lets a reconcile finish, which takes until the second.
fn whoever_asks_twice_is_not_kept_waiting() {
    let flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--graceful-shutdown-timeout=1m"];
    let mut command = operator(&flags);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let kill = |id: u32| {
        let killed = Command::new("kill").arg(id.to_string()).status().expect("there is kill");
        assert!(killed.success());
    };
    let wait_for = |lines: &mut dyn Iterator<Item = std::io::Result<String>>, text: &str| {
        let said = lines.map(|line| line.expect("it speaks UTF-8")).find(|line| line.contains(text));
        assert!(said.is_some(), "it ended before it said {text:?}");
    };
    let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    wait_for(&mut log, "reconciling");
    kill(child.id());
    wait_for(&mut log, "stopping");
    kill(child.id());
    wait_for(&mut log, "a second time");
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

/// `operator 2>&1 | head`: the lines are lost, and nothing else. More objects come than there are workers.
fn a_log_that_nobody_reads_stops_nothing() {
    let mut command = operator(&["--metrics-bind-address=0", "--health-probe-bind-address=0"]);
    let command = command.env(CHILD, "talks").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut names = child.stdin.take().expect("it is piped");
    let done = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    // Whoever hangs ends the wait below, which then finds nothing more to read.
    let (ended, waiting) = std::sync::mpsc::channel::<()>();
    let id = child.id().to_string();
    let watchdog = std::thread::spawn(move || {
        if waiting.recv_timeout(Duration::from_secs(120)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let mut create = |name: &str| writeln!(names, "{name}").expect("it listens");
    create("first");
    assert!(log.map_while(Result::ok).any(|line| line.contains("reconciling")), "it ended before it said anything");
    // With the iterator the pipe was closed.
    let rest: Vec<String> = (0..30).map(|number| format!("t{number}")).collect();
    rest.iter().for_each(|name| create(name));
    let mut expected: Vec<String> = rest.iter().map(|name| format!("reconciled {name}")).collect();
    expected.push("reconciled first".into());
    for line in done.map_while(Result::ok) {
        expected.retain(|expected| *expected != line);
        if expected.is_empty() {
            break;
        }
    }
    assert_eq!(expected, [] as [String; 0], "these were not reconciled");
    drop(names);
    let code = child.wait().expect("it ends");
    drop(ended);
    watchdog.join().expect("the watchdog does not panic");
    assert!(code.success(), "{code}");
}
