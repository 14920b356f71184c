//! CPU time and memory of a process. In: a process id. Out: figures of the kernel, from `/proc`, so that the server does not take
//! part in its own measurement.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::invalid_run::InvalidRun;

/// The unit of `/proc/PID/stat`: Linux always reports 100 ticks per second.
const TICKS_PER_SECOND: u64 = 100;

/// One process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(pub u32);

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Resident.
    pub rss: u64,
    /// Resident, with shared pages counted in proportion (PSS).
    pub pss: u64,
    /// Resident and not backed by a file: what the process allocated. The rest is mostly pages of the program, of which the
    /// kernel maps more or fewer from one machine to the next, and which it can take back.
    pub anonymous: u64,
    /// The peak of resident memory.
    pub peak: u64,
}

impl Process {
    /// This process.
    pub(crate) fn own() -> Self {
        Self(std::process::id())
    }

    /// User and system time of all threads, also of those that have ended. Precise to 20 ms.
    pub(crate) fn cpu(self) -> Result<Duration, InvalidRun> {
        self.ticks(11)
    }

    /// The sum of two neighbouring times of `/proc/PID/stat`; `at` is the number of fields between the name and the first.
    fn ticks(self, at: usize) -> Result<Duration, InvalidRun> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain spaces and parentheses; numbers follow it.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let ticks: Vec<u64> = fields.split_whitespace().skip(at).take(2).filter_map(|n| n.parse().ok()).collect();
        match ticks[..] {
            [user, system] => Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND)),
            _ => Err(InvalidRun::new(format!("/proc/{}/stat has no times", self.0))),
        }
    }

    /// User and system time of the children that it has waited for.
    pub(crate) fn children_cpu(self) -> Result<Duration, InvalidRun> {
        self.ticks(13)
    }

    /// CPU time of the threads that are alive, precise to the nanosecond. Only for processes whose threads have not ended.
    pub(crate) fn cpu_exact(self) -> Result<Duration, InvalidRun> {
        let mut total = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))? {
            // A thread may end after it was listed.
            let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let spent = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default();
            total += Duration::from_nanos(spent);
        }
        Ok(total)
    }

    /// Its memory now.
    pub(crate) fn memory(self) -> Result<Memory, InvalidRun> {
        let status = self.read("status")?;
        // The file cannot be read for processes of other users; then PSS is zero.
        let rollup = self.read("smaps_rollup").unwrap_or_default();
        Ok(Memory {
            rss: field(&status, "VmRSS"),
            pss: field(&rollup, "Pss"),
            anonymous: field(&status, "RssAnon"),
            peak: field(&status, "VmHWM"),
        })
    }

    /// Sends it a signal.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), InvalidRun> {
        let id = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| InvalidRun::new(format!("{} is not the id of a process", self.0)))?;
        kill_process(id, signal)
            .map_err(|error| InvalidRun::new(format!("cannot send {signal:?} to {}: {error}", self.0)))
    }

    fn read(self, file: &str) -> Result<String, InvalidRun> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).map_err(|error| InvalidRun::new(format!("{path}: {error}")))
    }
}

/// A field that is written `Name:   123 kB`.
fn field(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        for (text, name, expect) in [
            ("VmHWM:\t     120 kB\nVmRSS:\t      80 kB\n", "VmRSS", 80 * 1024),
            ("Pss:    7 kB\nPss_Anon:   5 kB\n", "Pss", 7 * 1024),
            ("", "VmRSS", 0),
        ] {
            assert_eq!(field(text, name), expect, "{name}");
        }
    }

    #[test]
    fn this_process_has_memory_and_spends_time() {
        let own = Process::own();
        let memory = own.memory().unwrap();
        assert!(memory.rss > 0 && memory.peak >= memory.rss, "{memory:?}");
        let before = own.cpu_exact().unwrap();
        // Other tests are threads of this process, and take their time with them when they end.
        assert!((0..1_000_000).any(|_| own.cpu_exact().unwrap() > before));
    }
}
