//! The benchmark of the framework, compared with kube's controller (B1 to B6, and B8). In: a scale. Out: a report. Every subject is a
//! process on a core of its own. Its server runs in this process: `replay` where the server should cost nothing, `cluster` where
//! it should be a real one. The implementations are measured alternately, and every run checks its results.
//!
//! ```text
//! launch ─▶ subject (the other process) ─▶ controllers, converge, hold ─▶ job::TaskResult
//! ```

mod cluster;
mod cold;
mod controllers;
mod converge;
mod events;
mod failover;
mod hold;
mod job;
mod kinds;
mod launch;
mod lead;
mod memory;
mod noop;
mod queue;
mod reconcile_counter;
mod replay;
mod replicated;
mod shards;
mod subject;

use std::time::Duration;

use crate::OperatorOptions;
use crate::compare::{self, median};
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::machine::{self, Busy, Machine};
use crate::process::Process;
use crate::report::{Comparison, Figures, Report, Section};

pub(crate) use cluster::Cluster;
pub(crate) use controllers::settings;
pub(crate) use kinds::Widget;
pub(crate) use subject::run_subject;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stage {
    /// Reconciles that find nothing to do, and the CPU time of an idle operator.
    B1,
    /// Parents that get their children.
    B2,
    /// The latency from a change to its reconcile.
    B3,
    /// The memory of cached objects.
    B4,
    /// The time from the start to the first reconcile.
    B5,
    /// The queue alone.
    B6,
    /// Replicas that divide the objects (a part of B8).
    Shards,
    /// Replicas of which one leads, and goes (a part of B8).
    Failover,
    /// Writes of replicated state (a part of B8).
    Replicated,
}

impl Stage {
    const ALL: [Stage; 9] =
        [Self::B1, Self::B2, Self::B3, Self::B4, Self::B5, Self::B6, Self::Shards, Self::Failover, Self::Replicated];
}

/// The size of a run.
pub(crate) struct Scale {
    /// The number of widgets, of storms and of rounds.
    noop: &'static [(usize, usize, usize)],
    /// How long the operator is idle.
    idle: Duration,
    /// The number of parents.
    parents: usize,
    /// The number of rounds with parents.
    converging: usize,
    /// The duration of changes at each rate.
    events: Duration,
    /// The two numbers of objects with which memory is measured.
    held: [usize; 2],
    /// The number of existing widgets at a start, and of rounds.
    cold: &'static [(usize, usize)],
    /// The number of widgets that replicas divide, and how long their reconciles are counted.
    sharded: usize,
    sharding: Duration,
    /// How often a replica comes and another stops.
    moves: usize,
    /// The number of widgets of replicas of which one leads, and how often it is killed with Raft, is asked to go, and is killed with a
    /// Lease.
    led: usize,
    crashes: usize,
    handovers: usize,
    expiries: usize,
    /// How long replicated state is written.
    replicating: Duration,
}

const FULL: Scale = Scale {
    noop: &[(10_000, 20, 7), (100_000, 5, 7)],
    idle: Duration::from_secs(10),
    parents: 1_000,
    converging: 7,
    events: Duration::from_secs(10),
    held: [10_000, 100_000],
    cold: &[(1, 30), (1_000, 15), (10_000, 9)],
    sharded: 3_000,
    sharding: Duration::from_secs(10),
    moves: 10,
    led: 10_000,
    crashes: 200,
    handovers: 20,
    expiries: 10,
    replicating: Duration::from_secs(5),
};

const QUICK: Scale = Scale {
    noop: &[(10_000, 5, 3), (100_000, 1, 1)],
    idle: Duration::from_secs(4),
    parents: 500,
    converging: 2,
    events: Duration::from_millis(1500),
    held: [5_000, 20_000],
    cold: &[(1, 7), (1_000, 5), (10_000, 3)],
    sharded: 600,
    sharding: Duration::from_secs(2),
    moves: 2,
    led: 1_000,
    crashes: 10,
    handovers: 5,
    expiries: 1,
    replicating: Duration::from_secs(1),
};

/// Runs the benchmark.
pub(crate) fn run(options: &OperatorOptions) -> Result<Report, InvalidRun> {
    let scale = if options.run.quick { QUICK } else { FULL };
    let load_before = machine::load();
    let cores = Cores::arrange();
    let mut sections = Vec::new();
    for stage in Stage::ALL {
        // The queue's benchmark has to be built first, which takes long.
        let wanted = options.only.is_empty() && !(options.run.quick && stage == Stage::B6);
        if wanted || options.only.contains(&stage) {
            eprintln!("bench: {stage:?} …");
            let (before, own) = (Busy::now()?, own_cpu()?);
            let outcome = stage.run(cores, &scale);
            let (busy, all) = Busy::now()?.since(&before);
            let others = busy.saturating_sub(own_cpu()?.saturating_sub(own));
            let mut section = Section::of(stage.title(), outcome);
            section.others = others.as_secs_f64() / all.as_secs_f64().max(0.01);
            sections.push(section);
        }
    }
    let facts = [
        ("run", if options.run.quick { "quick: figures are rough".to_owned() } else { "full".to_owned() }),
        (
            "cores",
            format!(
                "{}; subjects of two threads use both",
                cores.describe().replace("server", "subject").replace("clients", "servers")
            ),
        ),
        ("load before", load_before),
        ("load after", machine::load()),
        (
            "baseline",
            "kube's stock controller, in turn with ours in this run; ratio of rounds: median, 95 % interval".to_owned(),
        ),
        (
            "subjects",
            format!(
                "engine: konverge_runtime::Controller; operator: konverge::Operator; {} reconciles at a time",
                job::CONCURRENCY
            ),
        ),
    ];
    let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Report { machine: Machine::read()?, facts, sections })
}

impl Stage {
    fn title(self) -> &'static str {
        match self {
            Self::B1 => "B1: reconciles that find nothing to do",
            Self::B2 => "B2: parents that get three children, a finalizer and a status; our API server in memory",
            Self::B3 => "B3: from a change to its reconcile, 10,000 objects",
            Self::B4 => "B4: memory",
            Self::B5 => "B5: from exec to the end of the first reconcile",
            Self::B6 => "B6: the queue alone",
            Self::Shards => "B8: replicas that divide the objects into shards",
            Self::Failover => "B8: three replicas of which one leads, and goes",
            Self::Replicated => "B8: replicated state, three members",
        }
    }

    fn run(self, cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
        match self {
            Self::B1 => noop::measure(cores, scale),
            Self::B2 => converge::measure(cores, scale),
            Self::B3 => events::measure(cores, scale),
            Self::B4 => memory::measure(cores, scale),
            Self::B5 => cold::measure(cores, scale),
            Self::B6 => queue::measure(),
            Self::Shards => shards::measure(scale),
            Self::Failover => failover::measure(cores, scale),
            Self::Replicated => replicated::measure(scale),
        }
    }
}

/// CPU of this process and of all subjects that have ended.
fn own_cpu() -> Result<Duration, InvalidRun> {
    Ok(Process::own().cpu()? + Process::own().children_cpu()?)
}

/// Compares a cost of ours with that of another implementation.
fn compare_costs(theirs: &[f64], ours: &[f64]) -> Option<Comparison> {
    Some(Comparison { other: median(theirs), ratio: compare::ratio(theirs, ours) })
}

/// Compares a rate of ours with that of another implementation.
fn compare_rates(theirs: &[f64], ours: &[f64]) -> Option<Comparison> {
    Some(Comparison { other: median(theirs), ratio: compare::ratio(ours, theirs) })
}
