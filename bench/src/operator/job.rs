//! What one subject is told to do, and what it answers: lines of JSON over its command line and its output, so that a
//! subject may be any program in any language. Nothing here acts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latencies;

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// `konverge_runtime::Controller`: the engine, with objects as bytes.
    Engine,
    /// `konverge::Operator`: what users write.
    Operator,
    /// `kube::runtime::Controller`, as it comes.
    Kube,
    /// Nobody: the same writes without a controller.
    Bare,
}

impl Who {
    /// Ours at both levels, and the stock controller.
    pub const CONTROLLERS: [Who; 3] = [Who::Engine, Who::Operator, Who::Kube];

    /// As the table says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Operator => "operator",
            Self::Kube => "kube",
            Self::Bare => "bare",
        }
    }
}

/// A subject and its task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Who does it.
    pub who: Who,
    /// `http://127.0.0.1:4321`
    pub server: String,
    /// On so many threads.
    pub threads: usize,
    /// What.
    pub task: Task,
}

/// How many reconciles at a time, whoever does them.
pub const CONCURRENCY: usize = 16;

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Reconcile all widgets once, then all of them so many times more, then wait that long.
    Noop {
        /// How many widgets there are.
        objects: usize,
        /// How often all are woken.
        storms: usize,
        /// How long to do nothing afterwards.
        idle: Duration,
    },
    /// Reconcile what changes, until so many changes were seen.
    Events {
        /// How many widgets there are.
        objects: usize,
        /// How many changes come.
        changes: usize,
        /// How long a reconcile waits, as for an answer.
        pause: Option<Duration>,
        /// How often all are looked at again.
        resync: Option<Duration>,
    },
    /// Keep objects, then list them all again.
    Hold {
        /// How many there are.
        objects: usize,
        /// Of which kind.
        kind: Held,
    },
    /// Reconcile one widget.
    Cold,
    /// Give every widget its children, until told to stop.
    Converge {
        /// How many widgets there are.
        parents: usize,
    },
}

/// What is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// Widgets.
    Widgets,
    /// Pods.
    Pods,
    /// The metadata of widgets.
    WidgetMetadata,
}

/// What work cost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the whole process.
    pub cpu: Duration,
    /// By the clock.
    pub wall: Duration,
    /// How many were done.
    pub count: usize,
}

impl Cost {
    /// Microseconds of CPU for each.
    pub fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }

    /// How many a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// What a subject prints, one a line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// What was to be done first is done.
    Ready,
    /// All is done.
    Done(Answer),
    /// It cannot be done.
    Failed(String),
}

/// What came of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// See [`Task::Noop`].
    Noop {
        /// From the start of the process to every object reconciled once.
        initial: Cost,
        /// All that came after.
        storm: Cost,
        /// Resident memory after it.
        rss: u64,
        /// CPU while there was nothing to do.
        idle: Duration,
    },
    /// See [`Task::Events`].
    Events {
        /// From when a change was due to its reconcile.
        latencies: Latencies,
        /// All reconciles, those of resyncs included.
        cost: Cost,
    },
    /// See [`Task::Hold`].
    Hold {
        /// Resident memory before anything was kept.
        base: u64,
        /// With everything kept.
        full: u64,
        /// The most while all was listed again.
        peak: u64,
        /// Some time after that.
        after: u64,
        /// What it took to take them in.
        cost: Cost,
    },
    /// See [`Task::Cold`].
    Cold {
        /// CPU until then.
        cpu: Duration,
    },
    /// See [`Task::Converge`].
    Converge {
        /// How many reconciles there were.
        reconciles: usize,
        /// How many of them failed.
        failed: usize,
    },
}
