//! Measures the cost of some work. In: the process of the server. Out: wall time, CPU time of the server and of this client, and
//! how busy other processes kept the machine, which shows whether wall times can be trusted.

use std::time::{Duration, Instant};

use crate::invalid_run::InvalidRun;
use crate::machine;
use crate::process::Process;

/// How much the difference of two times in ticks may be too large: user and system time are both rounded.
const TICKS_ERROR: Duration = Duration::from_millis(30);

/// A running measurement.
pub(crate) struct Meter {
    server: Process,
    begun: Instant,
    server_cpu: Duration,
    /// The same to the nanosecond, if that is asked for.
    server_exact: Option<Duration>,
    client_cpu: Duration,
    machine: machine::Busy,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Wall time.
    pub wall: Duration,
    /// CPU time of the server.
    pub server: Duration,
    /// CPU time of this process.
    pub client: Duration,
    /// The share of all cores that other processes used: 0 to 1.
    pub others: f64,
}

impl Meter {
    /// Starts a measurement.
    pub(crate) fn start(server: Process) -> Result<Self, InvalidRun> {
        let machine = machine::Busy::now()?;
        let (server_cpu, client_cpu) = (server.cpu()?, Process::own().cpu()?);
        Ok(Self { server, begun: Instant::now(), server_cpu, server_exact: None, client_cpu, machine })
    }

    /// Starts a measurement in which the CPU time of the server is precise to the nanosecond instead of 20 ms.
    pub(crate) fn start_exact(server: Process) -> Result<Self, InvalidRun> {
        let meter = Self::start(server)?;
        Ok(Self { server_exact: Some(server.cpu_exact()?), ..meter })
    }

    /// Ends the measurement.
    pub(crate) fn stop(self) -> Result<Spent, InvalidRun> {
        let wall = self.begun.elapsed();
        let exact = self.server_exact.map(|before| self.server.cpu_exact().map(|now| now.saturating_sub(before)));
        let by_ticks = self.server.cpu()?.saturating_sub(self.server_cpu);
        // The exact time lacks what a thread used that has ended meanwhile.
        let server = exact.transpose()?.filter(|exact| *exact + TICKS_ERROR > by_ticks).unwrap_or(by_ticks);
        let client = Process::own().cpu()?.saturating_sub(self.client_cpu);
        let (busy, all) = machine::Busy::now()?.since(&self.machine);
        let others = busy.saturating_sub(server + client).as_secs_f64() / all.as_secs_f64().max(0.01);
        Ok(Spent { wall, server, client, others })
    }
}

impl Spent {
    /// Microseconds of server CPU per operation.
    pub(crate) fn server_each(&self, count: usize) -> f64 {
        each(self.server, count)
    }

    /// Microseconds of client CPU per operation.
    pub(crate) fn client_each(&self, count: usize) -> f64 {
        each(self.client, count)
    }

    /// Operations per second.
    pub(crate) fn rate(&self, count: usize) -> f64 {
        count as f64 / self.wall.as_secs_f64()
    }

    /// The sum of two measurements.
    pub(crate) fn and(&self, other: &Spent) -> Spent {
        let wall = self.wall + other.wall;
        let weight = |spent: &Spent| spent.others * spent.wall.as_secs_f64() / wall.as_secs_f64().max(1e-9);
        Spent {
            wall,
            server: self.server + other.server,
            client: self.client + other.client,
            others: weight(self) + weight(other),
        }
    }
}

fn each(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}
