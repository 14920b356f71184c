//! Pins the server to one core and its clients to another, so that neither takes CPU time from the other. Uses the `taskset`
//! command; without it, or on one core, nothing is pinned, and the report says so.

use std::process::{Command, Stdio};

use crate::process::Process;

/// Where server and clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// The server runs on core 0 and the clients on core 1. Has the number of cores.
    Pinned(usize),
    /// The server may use all cores, of which there are so many, and the clients run on core 1.
    ServerOnAll(usize),
    /// The kernel chooses the cores.
    NotPinned,
}

impl Cores {
    /// Pins this process to the clients' core, if possible.
    pub(crate) fn arrange() -> Self {
        // Read before this process is pinned: afterwards the number is one.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 1 && pin("1") { Self::Pinned(cores) } else { Self::NotPinned }
    }

    /// The same with a server that may use all cores, for measurements of what its threads do to each other.
    pub(crate) fn server_on_all(self) -> Self {
        match self {
            Self::Pinned(cores) => Self::ServerOnAll(cores),
            other => other,
        }
    }

    /// Calls `spawn` while this process is pinned to the server's core, which the child inherits.
    pub(crate) fn for_server<T>(self, spawn: impl FnOnce() -> T) -> T {
        match self {
            Self::ServerOnAll(_) => self.for_all(spawn),
            Self::Pinned(_) | Self::NotPinned => self.on("0", spawn),
        }
    }

    /// Calls `spawn` so that the child may use all cores, that of the clients included, for measurements with several threads.
    pub(crate) fn for_all<T>(self, spawn: impl FnOnce() -> T) -> T {
        match self {
            Self::Pinned(cores) | Self::ServerOnAll(cores) => self.on(&format!("0-{}", cores - 1), spawn),
            Self::NotPinned => spawn(),
        }
    }

    fn on<T>(self, cores: &str, spawn: impl FnOnce() -> T) -> T {
        if self == Self::NotPinned {
            return spawn();
        }
        pin(cores);
        let child = spawn();
        pin("1");
        child
    }

    /// The text for the report.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Pinned(_) => "server on core 0, clients on core 1",
            Self::ServerOnAll(_) => "server on all cores, clients on core 1",
            Self::NotPinned => "not pinned: server and clients share all cores",
        }
    }
}

/// Pins this process; children that it spawns later inherit that.
fn pin(cores: &str) -> bool {
    let own = Process::own().0.to_string();
    let mut taskset = Command::new("taskset");
    taskset.args(["-p", "-c", cores, &own]).stdout(Stdio::null()).stderr(Stdio::null());
    taskset.status().is_ok_and(|status| status.success())
}
