//! What a stretch of work costs. In: the process that serves. Out: wall time, its CPU, the CPU of this client and how
//! much the rest of the machine was busy meanwhile, which says how far the walls are to be believed.

use std::time::{Duration, Instant};

use crate::machine;
use crate::process::Process;
use crate::void::Void;

/// A running measurement.
pub struct Meter {
    server: Process,
    begun: Instant,
    server_cpu: Duration,
    client_cpu: Duration,
    machine: machine::Busy,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// By the clock.
    pub wall: Duration,
    /// CPU time of the server.
    pub server: Duration,
    /// CPU time of this process.
    pub client: Duration,
    /// The share of all cores that other processes took: 0 to 1.
    pub others: f64,
}

impl Meter {
    /// Begins.
    pub fn start(server: Process) -> Result<Self, Void> {
        let machine = machine::Busy::now()?;
        let (server_cpu, client_cpu) = (server.cpu()?, Process::own().cpu()?);
        Ok(Self { server, begun: Instant::now(), server_cpu, client_cpu, machine })
    }

    /// Ends.
    pub fn stop(self) -> Result<Spent, Void> {
        let wall = self.begun.elapsed();
        let server = self.server.cpu()?.saturating_sub(self.server_cpu);
        let client = Process::own().cpu()?.saturating_sub(self.client_cpu);
        let (busy, all) = machine::Busy::now()?.since(&self.machine);
        let others = busy.saturating_sub(server + client).as_secs_f64() / all.as_secs_f64().max(0.01);
        Ok(Spent { wall, server, client, others })
    }
}

impl Spent {
    /// Microseconds of server CPU for each of `count`.
    pub fn server_each(&self, count: usize) -> f64 {
        each(self.server, count)
    }

    /// Microseconds of client CPU for each of `count`.
    pub fn client_each(&self, count: usize) -> f64 {
        each(self.client, count)
    }

    /// How many a second.
    pub fn rate(&self, count: usize) -> f64 {
        count as f64 / self.wall.as_secs_f64()
    }

    /// Both stretches together.
    pub fn and(&self, other: &Spent) -> Spent {
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
