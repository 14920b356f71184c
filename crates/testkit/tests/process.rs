//! An operator as a process: what it answers to flags, and how it ends. The process is this very program, started by itself
//! with [`CHILD`] set; so it brings its own `main`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::var_os(CHILD).is_some() {
        return operate().await;
    }
    code_is_stronger_than_flags_and_flags_are_heard();
    a_reader_that_has_seen_enough_is_no_error();
    a_flag_that_there_is_not_is_named_once();
    whoever_asks_twice_is_not_kept_waiting();
    Ok(())
}

async fn operate() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Tantalus>().await?;
    cluster.create(Tantalus::new("t", TantalusSpec { wants: "water".into() })).await?;
    let operator = Operator::<Tantalus>::new().reconcile(never_done).client(cluster.client());
    operator.configure(|settings| settings.controller.max_concurrent_reconciles = 3).run().await
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
    let ended = operator(&["--leader-elect"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.starts_with("Error: unexpected argument '--leader-elect' found"), "{said}");
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
