//! Replicas of which one leads, and what happens when it goes (B8). In: widgets in a cluster, and three replicas as processes with warm caches.
//! Out: how long nobody reconciles after `kill -9` and after SIGTERM, to the end of the new leader's first reconcile, a write included.
//! The one that went is started again, and is ready, before the next goes.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Scale;
use super::cluster::Cluster;
use super::job::{Election, Implementation, Job, Task};
use super::launch::{RunningSubject, launch};
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

/// How many replicas there are.
pub(super) const REPLICAS: u64 = 3;

/// How long a leader has led before it goes. One that was elected a moment ago votes for nobody else yet.
const LED_FOR: Duration = Duration::from_secs(1);

/// How long the next may take to lead; a Lease runs out after 15 s.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// Aims, in milliseconds.
const RAFT_CRASH: [(f64, &str, f64); 3] = [(0.5, "p50", 400.0), (0.99, "p99", 800.0), (1.0, "max", f64::NAN)];
const LEASE_CRASH: [(f64, &str, f64); 2] = [(0.5, "p50", 15_500.0), (1.0, "max", 15_500.0)];
const HANDED_OVER: [(f64, &str, f64); 2] = [(0.5, "p50", 150.0), (1.0, "max", 150.0)];

/// How a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// `kill -9`
    Killed,
    /// SIGTERM
    Asked,
}

/// Replicas of which one leads.
struct Team<'a> {
    cores: Cores,
    cluster: &'a Cluster,
    elections: Vec<Election>,
    replicas: Vec<RunningSubject>,
    /// Who leads.
    leader: usize,
}

impl<'a> Team<'a> {
    /// Starts all and waits until all are ready and one leads.
    fn start(cores: Cores, cluster: &'a Cluster, elections: Vec<Election>) -> Result<Self, InvalidRun> {
        let mut team = Self { cores, cluster, elections, replicas: Vec::new(), leader: 0 };
        for number in 0..team.elections.len() {
            let replica = team.launch(number)?;
            team.replicas.push(replica);
        }
        let (leader, _) = team.next_leader(None, Instant::now())?;
        team.leader = leader;
        for replica in &mut team.replicas {
            replica.ready()?;
        }
        Ok(team)
    }

    fn launch(&self, number: usize) -> Result<RunningSubject, InvalidRun> {
        let election = self.elections.get(number).cloned().ok_or_else(|| InvalidRun::new("no such replica"))?;
        let task = Task::Lead { election };
        let server = self.cluster.url().to_owned();
        launch(self.cores, &Job { implementation: Implementation::Operator, server, threads: 2, task })
    }

    /// Waits for the first reconcile of somebody who is not `gone`. Returns also how long it took.
    fn next_leader(&mut self, gone: Option<usize>, since: Instant) -> Result<(usize, Duration), InvalidRun> {
        while since.elapsed() < LEADS_WITHIN {
            for (number, replica) in self.replicas.iter_mut().enumerate() {
                if Some(number) == gone {
                    continue;
                }
                if let Some((at, term)) = replica.led()? {
                    // One that led before it went told of it before.
                    if at > since {
                        return Ok((number, at - since));
                    }
                    eprintln!("bench: {number} led in term {term}, before the leader went");
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(InvalidRun::new("nobody leads within a minute"))
    }

    /// The resident memory of somebody who does not lead, in MiB.
    fn standby_memory(&self) -> Result<f64, InvalidRun> {
        let standby = self.replicas.get((self.leader + 1) % self.replicas.len());
        let standby = standby.ok_or_else(|| InvalidRun::new("no such replica"))?;
        Ok(standby.process().memory()?.rss as f64 / f64::from(1 << 20))
    }

    /// The leader goes. Returns after how long another has reconciled, when the team is complete again.
    fn lose(&mut self, end: End) -> Result<Duration, InvalidRun> {
        std::thread::sleep(LED_FOR);
        let leader = self.leader;
        let gone = self.replicas.get(leader).ok_or_else(|| InvalidRun::new("no such replica"))?.process();
        let since = Instant::now();
        gone.signal(match end {
            End::Killed => Signal::KILL,
            End::Asked => Signal::TERM,
        })?;
        let (next, took) = self.next_leader(Some(leader), since)?;
        self.replicas.get_mut(leader).map_or(Ok(()), RunningSubject::ended)?;
        let mut again = self.launch(leader)?;
        again.ready()?;
        if let Some(place) = self.replicas.get_mut(leader) {
            *place = again;
        }
        self.leader = next;
        Ok(took)
    }
}

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let cluster = Cluster::start(scale.led)?;
    let disk = tempfile::tempdir()?;
    let mut team = Team::start(cores, &cluster, raft(disk.path())?)?;
    let with_raft = team.standby_memory()?;
    report(&mut figures, "Raft, kill -9", &lose(&mut team, End::Killed, scale.crashes)?, &RAFT_CRASH);
    report(&mut figures, "Raft, SIGTERM", &lose(&mut team, End::Asked, scale.handovers)?, &HANDED_OVER);
    drop(team);
    let mut team = Team::start(cores, &cluster, vec![Election::Lease; REPLICAS as usize])?;
    let with_lease = team.standby_memory()?;
    report(&mut figures, "Lease, SIGTERM", &lose(&mut team, End::Asked, scale.handovers)?, &HANDED_OVER);
    report(&mut figures, "Lease, kill -9", &lose(&mut team, End::Killed, scale.expiries)?, &LEASE_CRASH);
    for (what, memory) in [("Raft", with_raft), ("a Lease", with_lease)] {
        let what = format!("resident memory of a standby with {what}, {} objects in its cache", scale.led);
        figures.add(Figure::cost(what, memory, "MiB"));
    }
    Ok(figures)
}

/// The leader goes so many times.
fn lose(team: &mut Team<'_>, end: End, times: usize) -> Result<Latencies, InvalidRun> {
    let mut took = Latencies::with_capacity(times);
    for time in 0..times {
        let pause = team.lose(end).map_err(|error| InvalidRun::new(format!("{end:?}, time {time}: {error}")))?;
        took.record(pause);
    }
    Ok(took)
}

fn report(figures: &mut Figures, what: &str, took: &Latencies, aims: &[(f64, &str, f64)]) {
    for (share, name, aim) in aims {
        let what = format!("{what}, to the next leader's first reconcile, {} times, {name}", took.len());
        let figure = Figure::cost(what, took.millis(*share), "ms");
        figures.add(if aim.is_nan() { figure } else { figure.with_aim(*aim) });
    }
}

/// Members that know each other by a list, each with its log in a directory.
fn raft(disk: &Path) -> Result<Vec<Election>, InvalidRun> {
    let ports = free_ports()?;
    let directory = |ordinal: u64| Some(disk.join(ordinal.to_string()));
    let member = |ordinal| Election::Raft { ordinal, ports: ports.clone(), directory: directory(ordinal) };
    Ok((0..REPLICAS).map(member).collect())
}

/// A port for each replica.
pub(super) fn free_ports() -> Result<Vec<u16>, InvalidRun> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..REPLICAS).map(bind).collect::<Result<Vec<_>, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
