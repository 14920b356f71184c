//! The API server, measured from outside (B9). In: a program and a scale. Out: a report. The stages run one after the
//! other, each on servers of its own, so that none pays for what another left behind.

mod create;
mod fanout;
mod list;
mod load;
mod memory;
mod start;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child::Subject;
use crate::cores::Cores;
use crate::machine::{self, Machine};
use crate::report::{Report, Section};
use crate::void::Void;
use crate::{ApiserverOptions, report::Figures};

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// From the start to ready.
    Start,
    /// Memory, idle and with objects.
    Memory,
    /// Creates by some clients.
    Create,
    /// Lists and gets.
    List,
    /// One patcher, many watchers.
    Fanout,
}

impl Stage {
    const ALL: [Stage; 5] = [Self::Start, Self::Memory, Self::Create, Self::List, Self::Fanout];
}

/// How much is done.
pub struct Scale {
    /// Starts for each kind of storage.
    starts: usize,
    /// Memory is looked at with so many objects, and with so many more.
    loads: [usize; 2],
    /// How long creates go on for each number of clients.
    creating: Duration,
    /// Objects to list.
    listed: usize,
    /// How often they are listed in each way.
    lists: usize,
    /// How often one object is read.
    gets: usize,
    /// Rounds of fan-out, each without and then with a stalled watcher.
    rounds: usize,
    /// Updates in each.
    updates: usize,
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
};

/// Fsyncs that describe the disk.
const FSYNC_PROBES: usize = 200;

/// Measures.
pub async fn run(options: &ApiserverOptions) -> Result<Report, Void> {
    let scale = if options.run.quick { QUICK } else { FULL };
    let program = match &options.server {
        Some(program) => program.clone(),
        None => build()?,
    };
    let disk = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let load_before = machine::load();
    let subject = Subject { program, disk, cores: Cores::arrange() };
    let mut sections = Vec::new();
    for stage in Stage::ALL {
        if options.only.is_empty() || options.only.contains(&stage) {
            eprintln!("bench: {stage:?} …");
            let (title, outcome) = stage.run(&subject, &scale).await;
            sections.push(Section::of(title, outcome));
        }
    }
    let facts = [
        ("run", if options.run.quick { "quick: figures are rough".to_owned() } else { "full".to_owned() }),
        ("cores", subject.cores.describe().to_owned()),
        ("load before", load_before),
        ("load after", machine::load()),
        ("durability", "\"fsync\" rows: acknowledged after an fsync; \"memory\" rows: none".to_owned()),
        ("disk", machine::file_system(&subject.disk)),
        ("anchor", "kube-apiserver with etcd, measured earlier on such a machine, not in this run".to_owned()),
    ];
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Report { machine: Machine::read()?, facts, sections })
}

impl Stage {
    async fn run(self, subject: &Subject, scale: &Scale) -> (String, Result<Figures, Void>) {
        match self {
            Self::Start => ("start to ready".into(), start::measure(subject, scale.starts).await),
            Self::Memory => ("resident memory".into(), memory::measure(subject, scale.loads).await),
            Self::Create => ("create one widget".into(), create::measure(subject, scale.creating).await),
            Self::List => {
                let title = format!("list {} widgets, get one", scale.listed);
                (title, list::measure(subject, scale.listed, scale.lists, scale.gets).await)
            }
            Self::Fanout => {
                let title = format!("{} watchers, {} updates/s", fanout::WATCHERS, fanout::UPDATES_PER_SECOND);
                (title, fanout::measure(subject, scale.rounds, scale.updates).await)
            }
        }
    }
}

/// Builds the server of this workspace as it is given to others.
fn build() -> Result<PathBuf, Void> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut build = Command::new(cargo);
    build.current_dir(workspace).args(["build", "--profile", "dist", "--package", "konverge-cli", "--bin", "konverge"]);
    if !build.status()?.success() {
        return Err(Void::new("the server does not build"));
    }
    let own = std::env::current_exe()?;
    // Built by the same cargo, it lies where this program does, unless this one is a debug build.
    let target = own.parent().and_then(Path::parent).ok_or_else(|| Void::new("this program lies nowhere"))?;
    Ok(target.join("dist").join("konverge"))
}
