//! What the kernel says about one process. In: a process id. Out: its CPU time and memory. Read from `/proc`, so that the
//! server is measured alone and from outside.

use std::fs;
use std::time::Duration;

use crate::void::Void;

/// The unit of `/proc/PID/stat`, which Linux fixes at 100 a second for programs to read.
const TICKS_PER_SECOND: u64 = 100;

/// One process.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident.
    pub rss: u64,
    /// Resident, with shared pages counted in part.
    pub pss: u64,
    /// Resident and of no file: what the process allocated. The rest is mostly pages of the program, which the kernel maps
    /// in larger or smaller pieces from one machine to the next, and can take back.
    pub anonymous: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

impl Process {
    /// This one.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// User and system time of all threads, also of those that ended. Exact to 20 ms.
    pub fn cpu(self) -> Result<Duration, Void> {
        self.ticks(11)
    }

    /// Two neighbouring times of `/proc/PID/stat`, the first of them so many fields behind the name.
    fn ticks(self, at: usize) -> Result<Duration, Void> {
        let stat = self.read("stat")?;
        // The name in parentheses may hold anything; what follows it is numbers.
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let ticks: Vec<u64> = fields.split_whitespace().skip(at).take(2).filter_map(|n| n.parse().ok()).collect();
        match ticks[..] {
            [user, system] => Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND)),
            _ => Err(Void::new(format!("/proc/{}/stat has no times", self.0))),
        }
    }

    /// The same of the children it has waited for.
    pub fn children_cpu(self) -> Result<Duration, Void> {
        self.ticks(13)
    }

    /// CPU time of the threads that are alive, to the nanosecond: for a process too young to have lost any.
    pub fn cpu_exact(self) -> Result<Duration, Void> {
        let mut total = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0))? {
            // A thread may end between the listing and the look.
            let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let spent = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default();
            total += Duration::from_nanos(spent);
        }
        Ok(total)
    }

    /// Its memory now.
    pub fn memory(self) -> Result<Memory, Void> {
        let status = self.read("status")?;
        // Another user's smaps may not be read; then there is no proportional figure.
        let rollup = self.read("smaps_rollup").unwrap_or_default();
        Ok(Memory {
            rss: field(&status, "VmRSS"),
            pss: field(&rollup, "Pss"),
            anonymous: field(&status, "RssAnon"),
            peak: field(&status, "VmHWM"),
        })
    }

    fn read(self, file: &str) -> Result<String, Void> {
        let path = format!("/proc/{}/{file}", self.0);
        fs::read_to_string(&path).map_err(|error| Void::new(format!("{path}: {error}")))
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
