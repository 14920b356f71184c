//! The benchmark of the API server (B9), measured from outside of its process. In: a program and a scale. Out: a report. The
//! stages run one after the other, each with new servers, so that no stage is affected by objects of another.

mod create;
mod fanout;
mod hostile;
mod kinds;
mod kubectl;
mod list;
mod load;
mod memory;
mod rbac;
mod start;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child::ServerProgram;
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::machine::{self, Machine};
use crate::report::{Report, Section};
use crate::{ApiserverOptions, report::Figures};

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    /// The time from the start of the process until it is ready.
    Start,
    /// Memory, idle and with objects.
    Memory,
    /// Creates by several clients.
    Create,
    /// Lists and gets.
    List,
    /// One client that patches, and many that watch.
    Fanout,
    /// Creates in protobuf, creates under rules in CEL, a start with many definitions.
    Kinds,
    /// What kubectl does: an apply of many objects, and explain.
    Kubectl,
    /// Creates about which no, one and two webhooks are asked.
    Webhooks,
    /// Decisions by many roles and bindings, and creates under them.
    Rbac,
    /// One good client beside hostile ones.
    Hostile,
}

impl Stage {
    const ALL: [Stage; 10] = [
        Self::Start,
        Self::Memory,
        Self::Create,
        Self::List,
        Self::Fanout,
        Self::Kinds,
        Self::Kubectl,
        Self::Webhooks,
        Self::Rbac,
        Self::Hostile,
    ];
}

/// The size of a run.
pub(crate) struct Scale {
    /// The number of starts for each storage.
    starts: usize,
    /// The two numbers of objects with which memory is measured.
    loads: [usize; 2],
    /// The duration of creates for each number of clients.
    creating: Duration,
    /// The number of objects in a list.
    listed: usize,
    /// How often they are listed by each method.
    lists: usize,
    /// How often single objects are read.
    gets: usize,
    /// Rounds of fan-out, each without and then with a stalled watcher.
    rounds: usize,
    /// The number of updates in each.
    updates: usize,
    /// Rounds of creates with webhooks, and with roles.
    compared: usize,
    /// The number of creates of each server in such a round.
    compared_creates: usize,
    /// How long a good client is measured beside each hostile one.
    beside: Duration,
}

const FULL: Scale = Scale {
    starts: 30,
    loads: [10_000, 100_000],
    creating: Duration::from_secs(8),
    listed: 10_000,
    lists: 20,
    gets: 48_000,
    rounds: 4,
    updates: 3_000,
    compared: 7,
    compared_creates: 10_000,
    beside: Duration::from_secs(15),
};

const QUICK: Scale = Scale {
    starts: 5,
    loads: [2_000, 10_000],
    creating: Duration::from_millis(1500),
    listed: 10_000,
    lists: 5,
    gets: 4_800,
    rounds: 1,
    updates: 900,
    compared: 2,
    compared_creates: 2_000,
    beside: Duration::from_secs(3),
};

/// How many fsyncs are measured to describe the disk.
const FSYNC_PROBES: usize = 200;

/// Runs the benchmark.
pub(crate) async fn run(options: &ApiserverOptions) -> Result<Report, InvalidRun> {
    let scale = if options.run.quick { QUICK } else { FULL };
    let program = match &options.server {
        Some(program) => program.clone(),
        None => build()?,
    };
    let disk = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let load_before = machine::load();
    let server = ServerProgram { program, disk, cores: Cores::arrange() };
    let mut sections = Vec::new();
    for stage in Stage::ALL {
        if options.only.is_empty() || options.only.contains(&stage) {
            eprintln!("bench: {stage:?} …");
            let (title, outcome) = stage.run(&server, &scale).await;
            sections.push(Section::of(title, outcome));
        }
    }
    let facts = [
        ("run", if options.run.quick { "quick: figures are rough".to_owned() } else { "full".to_owned() }),
        ("cores", server.cores.describe().to_owned()),
        ("load before", load_before),
        ("load after", machine::load()),
        ("durability", "\"fsync\" rows: acknowledged after an fsync; \"memory\" rows: none".to_owned()),
        ("disk", machine::file_system(&server.disk)),
        ("baseline", "kube-apiserver with etcd, measured earlier on a similar machine, not in this run".to_owned()),
    ];
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Report { machine: Machine::read()?, facts, sections })
}

impl Stage {
    async fn run(self, server: &ServerProgram, scale: &Scale) -> (String, Result<Figures, InvalidRun>) {
        match self {
            Self::Start => ("start to ready".into(), start::measure(server, scale.starts).await),
            Self::Memory => ("resident memory".into(), memory::measure(server, scale.loads).await),
            Self::Create => ("create one widget".into(), create::measure(server, scale.creating).await),
            Self::List => {
                let title = format!("list {} widgets, get one", scale.listed);
                (title, list::measure(server, scale.listed, scale.lists, scale.gets).await)
            }
            Self::Fanout => {
                let title = format!("{} watchers, {} updates/s", fanout::WATCHERS, fanout::UPDATES_PER_SECOND);
                (title, fanout::measure(server, scale.rounds, scale.updates).await)
            }
            Self::Kinds => ("kinds".into(), kinds::measure(server, scale.creating, scale.starts).await),
            Self::Kubectl => ("kubectl".into(), kubectl::measure(server).await),
            Self::Webhooks => {
                ("create a ConfigMap that webhooks are asked about".into(), webhooks::measure(server, scale).await)
            }
            Self::Rbac => (rbac::title(), rbac::measure(server, scale).await),
            Self::Hostile => {
                let title = format!("a good client, {} requests/s on all cores", hostile::REQUESTS_PER_SECOND);
                (title, hostile::measure(server, scale.beside).await)
            }
        }
    }
}

/// Builds the server of this workspace with the profile of releases.
fn build() -> Result<PathBuf, InvalidRun> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut build = Command::new(cargo);
    build.current_dir(workspace).args(["build", "--profile", "dist", "--package", "konverge-cli", "--bin", "konverge"]);
    if !build.status()?.success() {
        return Err(InvalidRun::new("the server does not build"));
    }
    let own = std::env::current_exe()?;
    // Cargo puts both programs below the same target directory.
    let target =
        own.parent().and_then(Path::parent).ok_or_else(|| InvalidRun::new("the program has no parent directory"))?;
    Ok(target.join("dist").join("konverge"))
}
