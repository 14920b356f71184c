//! The messages between this program and a subject: a job on the command line, and lines of JSON on its output. A subject may
//! be any program in any language. Only data.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latencies;

/// Which implementation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Implementation {
    /// `konverge_runtime::Controller`: the engine, with objects as bytes.
    Engine,
    /// `konverge::Operator`: what users write.
    Operator,
    /// `kube::runtime::Controller`, with its defaults.
    Kube,
    /// The same writes without a controller.
    Bare,
}

impl Implementation {
    /// Ours at both levels, and kube's.
    pub(super) const CONTROLLERS: [Implementation; 3] =
        [Implementation::Engine, Implementation::Operator, Implementation::Kube];

    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Operator => "operator",
            Self::Kube => "kube",
            Self::Bare => "bare",
        }
    }
}

/// A job for a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The implementation.
    pub implementation: Implementation,
    /// The address of the server: `http://127.0.0.1:4321`.
    pub server: String,
    /// The number of threads.
    pub threads: usize,
    /// The task.
    pub task: Task,
}

/// The concurrency of all implementations.
pub(super) const CONCURRENCY: usize = 16;

/// The task of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Reconcile all widgets once, then all of them `storms` times more, then stay idle.
    Noop {
        /// The number of widgets.
        objects: usize,
        /// How often all are woken.
        storms: usize,
        /// How long to stay idle afterwards.
        idle: Duration,
    },
    /// Reconcile widgets that change, until `changes` changes were seen.
    Events {
        /// The number of widgets.
        objects: usize,
        /// The number of changes.
        changes: usize,
        /// How long a reconcile pauses, as if it waited for a response.
        pause: Option<Duration>,
        /// The resync period.
        resync: Option<Duration>,
    },
    /// Fill a cache, then list all objects again.
    Hold {
        /// The number of objects.
        objects: usize,
        /// Their kind.
        kind: Held,
    },
    /// Reconcile one widget.
    Cold,
    /// Take part in an election, and tell of the first reconcile of each term.
    Lead {
        /// How the leader is elected.
        election: Election,
    },
    /// Give every widget its children, until the standard input is closed.
    Converge {
        /// The number of widgets.
        parents: usize,
    },
}

/// How replicas elect their leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Election {
    /// By a Lease of the cluster.
    Lease,
    /// Among themselves.
    Raft {
        /// Which member this is.
        ordinal: u64,
        /// The ports of all members.
        ports: Vec<u16>,
        /// Where its log is; none: in memory.
        directory: Option<PathBuf>,
    },
}

/// What is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Held {
    /// Widgets.
    Widgets,
    /// Pods.
    Pods,
    /// The metadata of widgets.
    WidgetMetadata,
}

/// The cost of some work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Cost {
    /// CPU time of the whole process.
    pub cpu: Duration,
    /// Wall time.
    pub wall: Duration,
    /// The number of operations.
    pub count: usize,
}

impl Cost {
    /// Microseconds of CPU for each operation.
    pub(super) fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }

    /// Operations per second.
    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// A line on the output of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    /// The preparation is done, and changes may come.
    Ready,
    /// The first reconcile of this term has ended.
    Led(u64),
    /// The task is done.
    Done(TaskResult),
    /// The task failed.
    Failed(String),
}

/// The result of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum TaskResult {
    /// See [`Task::Noop`].
    Noop {
        /// From the start of the process to every object reconciled once.
        initial: Cost,
        /// The storms after that.
        storm: Cost,
        /// Resident memory after the storms.
        rss: u64,
        /// CPU time while idle.
        idle: Duration,
    },
    /// See [`Task::Events`].
    Events {
        /// The latencies from the time at which a change was due to its reconcile.
        latencies: Latencies,
        /// All reconciles, those of resyncs included.
        cost: Cost,
    },
    /// See [`Task::Hold`].
    Hold {
        /// Resident memory with an empty cache.
        base: u64,
        /// Resident memory with all objects.
        full: u64,
        /// The peak while all objects were listed again.
        peak: u64,
        /// Resident memory after that.
        after: u64,
        /// The cost of filling the cache.
        cost: Cost,
    },
    /// See [`Task::Cold`].
    Cold {
        /// CPU time until the first reconcile.
        cpu: Duration,
    },
    /// See [`Task::Lead`].
    Lead,
    /// See [`Task::Converge`].
    Converge {
        /// The number of reconciles.
        reconciles: usize,
        /// The number of failed reconciles.
        failed: usize,
    },
}
