//! The machine of the benchmark. Out: kernel, processor, load, and the time of an fsync. Figures cannot be compared without
//! these facts.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;

/// Facts about the machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// `uname -r`
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// The number of cores.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
}

impl Machine {
    /// Reads the facts.
    pub(crate) fn read() -> Result<Self, InvalidRun> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        Ok(Self {
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cpu: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory: total.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default() * 1024,
        })
    }
}

/// The load averages: 1, 5, 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The CPU time of all cores since the machine started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    busy: Duration,
    all: Duration,
}

impl Busy {
    /// The time up to now.
    pub(crate) fn now() -> Result<Self, InvalidRun> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let all: u64 = ticks.iter().sum();
        Ok(Self { busy: Duration::from_millis((all - idle) * 10), all: Duration::from_millis(all * 10) })
    }

    /// Busy time and total time since `then`.
    pub(crate) fn since(&self, then: &Busy) -> (Duration, Duration) {
        (self.busy.saturating_sub(then.busy), self.all.saturating_sub(then.all))
    }
}

/// How long the disk of `directory` takes to make 4 KiB durable, `count` times over.
pub(crate) fn fsync(directory: &Path, count: usize) -> Result<Latencies, InvalidRun> {
    let path = directory.join("fsync-probe");
    let mut file = File::create(&path)?;
    let block = [0x5a; 4096];
    let mut latencies = Latencies::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        latencies.record(begun.elapsed());
    }
    drop(file);
    fs::remove_file(&path)?;
    Ok(latencies)
}

/// The type of the file system of a directory. Figures from `tmpfs` say nothing about durable writes.
pub(crate) fn file_system(directory: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let on = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        directory.starts_with(point).then_some((point.len(), kind))
    });
    // The longest mount point counts, and of two mounts at the same path the later one.
    on.max_by_key(|(length, _)| *length).map_or("unknown", |(_, kind)| kind).to_owned()
}
