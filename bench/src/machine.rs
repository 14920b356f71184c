//! The machine the figures belong to. Out: kernel, processor, load, and how long its disk takes to make bytes durable.
//! Figures without these facts cannot be compared.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::latency::Latencies;
use crate::void::Void;

/// Facts about the machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// `uname -r`
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// How many of them.
    pub cores: usize,
    /// Memory in bytes.
    pub memory: u64,
}

impl Machine {
    /// Reads them.
    pub fn read() -> Result<Self, Void> {
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
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// How busy all cores have been since the machine started.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    busy: Duration,
    all: Duration,
}

impl Busy {
    /// Up to now.
    pub fn now() -> Result<Self, Void> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest time is part of user.
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let all: u64 = ticks.iter().sum();
        Ok(Self { busy: Duration::from_millis((all - idle) * 10), all: Duration::from_millis(all * 10) })
    }

    /// Busy time and all time since then.
    pub fn since(&self, then: &Busy) -> (Duration, Duration) {
        (self.busy.saturating_sub(then.busy), self.all.saturating_sub(then.all))
    }
}

/// How long the disk of `directory` takes to make 4 KiB durable, `count` times over.
pub fn fsync(directory: &Path, count: usize) -> Result<Latencies, Void> {
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

/// The kind of file system a directory is on: a figure from `tmpfs` is no durable figure.
pub fn file_system(directory: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let on = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        directory.starts_with(point).then_some((point.len(), kind))
    });
    // The longest mount point wins, and of two on the same place the later one.
    on.max_by_key(|(length, _)| *length).map_or("unknown", |(_, kind)| kind).to_owned()
}
