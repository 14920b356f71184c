//! A core for the server and another for its clients, so that neither takes the other's time. Done by the `taskset`
//! command; without it, or on one core, everything runs everywhere and the report says so.

use std::process::{Command, Stdio};

use crate::process::Process;

/// Where server and clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The server on core 0, the clients on core 1, of so many.
    Apart(usize),
    /// Wherever the kernel puts them.
    Anywhere,
}

impl Cores {
    /// Moves this process to the clients' core, if that can be done.
    pub fn arrange() -> Self {
        // Asked before it is pinned: afterwards there is one.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores > 1 && pin("1") { Self::Apart(cores) } else { Self::Anywhere }
    }

    /// Does `spawn` so that the child is born on the server's core: nothing is measured that is not the server's own.
    pub fn for_server<T>(self, spawn: impl FnOnce() -> T) -> T {
        self.on("0", spawn)
    }

    /// Does `spawn` so that the child may use all cores, the clients' included: for what is to be measured on several.
    pub fn for_all<T>(self, spawn: impl FnOnce() -> T) -> T {
        match self {
            Self::Apart(cores) => self.on(&format!("0-{}", cores - 1), spawn),
            Self::Anywhere => spawn(),
        }
    }

    fn on<T>(self, cores: &str, spawn: impl FnOnce() -> T) -> T {
        if self == Self::Anywhere {
            return spawn();
        }
        pin(cores);
        let child = spawn();
        pin("1");
        child
    }

    /// As the report says it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Apart(_) => "server on core 0, clients on core 1",
            Self::Anywhere => "not pinned: server and clients share all cores",
        }
    }
}

/// Pins the calling thread's process; the children it makes from now on inherit that.
fn pin(cores: &str) -> bool {
    let own = Process::own().0.to_string();
    let mut taskset = Command::new("taskset");
    taskset.args(["-p", "-c", cores, &own]).stdout(Stdio::null()).stderr(Stdio::null());
    taskset.status().is_ok_and(|status| status.success())
}
