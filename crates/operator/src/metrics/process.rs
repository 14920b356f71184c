//! The process itself: memory, CPU, files. In: `/proc`, when the page is made. Out: the numbers every Prometheus client
//! has. Where there is no `/proc` there are none.

use std::fs;

/// Units of time in `/proc`: a hundredth of a second on every Linux that Rust runs on, whatever the kernel's own tick.
const TICKS: f64 = 100.0;

pub(super) struct Process {
    /// Seconds since 1970, read once: the answer of `/proc` moves when the clock is set.
    started: Option<f64>,
}

impl Process {
    pub(super) fn start() -> Process {
        let boot = fs::read_to_string("/proc/stat").ok();
        let boot = boot.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("btime ")));
        let boot = boot.and_then(|text| text.trim().parse::<f64>().ok());
        let ticks = stat().and_then(|fields| number(&fields, 22));
        Process { started: boot.zip(ticks).map(|(boot, ticks)| boot + ticks / TICKS) }
    }

    pub(super) fn started(&self) -> Option<f64> {
        self.started
    }

    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let fields = stat()?;
        Some((number(&fields, 14)? + number(&fields, 15)?) / TICKS)
    }

    pub(super) fn virtual_bytes(&self) -> Option<f64> {
        number(&stat()?, 23)
    }

    pub(super) fn resident_bytes(&self) -> Option<f64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
    }

    pub(super) fn open_files(&self) -> Option<f64> {
        // The folder itself is open while it is read.
        Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
    }

    pub(super) fn max_files(&self) -> Option<f64> {
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(f64::INFINITY),
            soft => soft.parse().ok(),
        }
    }
}

/// The fields of `/proc/self/stat` from the third on; the second is a name with any characters in it.
fn stat() -> Option<Vec<String>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(String::from).collect())
}

/// A field by its number in proc(5).
fn number(fields: &[String], field: usize) -> Option<f64> {
    fields.get(field - 3)?.parse().ok()
}
