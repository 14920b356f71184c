//! The framework, measured beside kube's stock controller (B1 to B6). In: a scale. Out: a report. Every subject is a
//! process of its own, on a core of its own, against a server in this process: `replay` where the server should cost
//! nothing, `cluster` where it should be real. The subjects take turns, round by round, and every run checks what it did.
//!
//! ```text
//! launch ─▶ perform (the other process) ─▶ controllers, converge, hold ─▶ job::Answer
//! ```

mod cluster;
mod cold;
mod controllers;
mod converge;
mod events;
mod hold;
mod job;
mod kinds;
mod launch;
mod memory;
mod noop;
mod perform;
mod queue;
mod replay;
mod tally;

use std::time::Duration;

use crate::OperatorOptions;
use crate::compare::{self, median};
use crate::cores::Cores;
use crate::machine::{self, Busy, Machine};
use crate::process::Process;
use crate::report::{Beside, Figures, Report, Section};
use crate::void::Void;

pub use perform::perform;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Stage {
    /// Reconciles that find nothing to do, and what an idle operator takes.
    B1,
    /// Parents that get their children.
    B2,
    /// From a change to its reconcile.
    B3,
    /// Memory.
    B4,
    /// From the start to the first reconcile.
    B5,
    /// The queue alone.
    B6,
}

impl Stage {
    const ALL: [Stage; 6] = [Self::B1, Self::B2, Self::B3, Self::B4, Self::B5, Self::B6];
}

/// How much is done.
pub struct Scale {
    /// Widgets, how often all are woken, and rounds.
    noop: &'static [(usize, usize, usize)],
    /// How long nothing happens.
    idle: Duration,
    /// Widgets that get children.
    parents: usize,
    /// Rounds of that.
    converging: usize,
    /// How long changes come at each rate.
    events: Duration,
    /// Widgets, fewer and more, whose memory is compared.
    held: [usize; 2],
    /// Widgets that are there at a start, and rounds.
    cold: &'static [(usize, usize)],
}

const FULL: Scale = Scale {
    noop: &[(10_000, 20, 7), (100_000, 5, 7)],
    idle: Duration::from_secs(10),
    parents: 1_000,
    converging: 7,
    events: Duration::from_secs(10),
    held: [10_000, 100_000],
    cold: &[(1, 30), (1_000, 15), (10_000, 9)],
};

const QUICK: Scale = Scale {
    noop: &[(10_000, 5, 3), (100_000, 1, 1)],
    idle: Duration::from_secs(4),
    parents: 500,
    converging: 2,
    events: Duration::from_millis(1500),
    held: [5_000, 20_000],
    cold: &[(1, 7), (1_000, 5), (10_000, 3)],
};

/// Measures.
pub fn run(options: &OperatorOptions) -> Result<Report, Void> {
    let scale = if options.run.quick { QUICK } else { FULL };
    let load_before = machine::load();
    let cores = Cores::arrange();
    let mut sections = Vec::new();
    for stage in Stage::ALL {
        // The queue's benchmark has to be built first, which is not quick.
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
            "anchor",
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
        }
    }

    fn run(self, cores: Cores, scale: &Scale) -> Result<Figures, Void> {
        match self {
            Self::B1 => noop::measure(cores, scale),
            Self::B2 => converge::measure(cores, scale),
            Self::B3 => events::measure(cores, scale),
            Self::B4 => memory::measure(cores, scale),
            Self::B5 => cold::measure(cores, scale),
            Self::B6 => queue::measure(),
        }
    }
}

/// CPU of this process and of all subjects that have ended.
fn own_cpu() -> Result<Duration, Void> {
    Ok(Process::own().cpu()? + Process::own().children_cpu()?)
}

/// What another subject needed of something that costs, beside ours.
fn costs_beside(theirs: &[f64], ours: &[f64]) -> Option<Beside> {
    Some(Beside { other: median(theirs), ratio: compare::ratio(theirs, ours) })
}

/// How fast another subject was, beside ours.
fn rates_beside(theirs: &[f64], ours: &[f64]) -> Option<Beside> {
    Some(Beside { other: median(theirs), ratio: compare::ratio(ours, theirs) })
}
