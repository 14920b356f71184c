//! Parents that get their children (B2): a finalizer, a ConfigMap, a Service, a Deployment without replicas and a status.
//! In: widgets in a cluster. Out: what it took, counted at the server. Five writes for each parent is the least.

mod bare;
mod framework;
mod stock;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kube::Client;

use super::cluster::{Cluster, Counts};
use super::job::{Answer, Job, Task, Who};
use super::launch::launch;
use super::{Scale, costs_beside, rates_beside};
use crate::compare::median;
use crate::cores::Cores;
use crate::report::{Figure, Figures};
use crate::void::{Void, expect};

/// The image of the Deployment that never runs.
const IMAGE: &str = "registry.example.com/shop/web:v1.42.0";

/// Writes that nobody can do without.
const LEAST: f64 = 5.0;

/// How long the server must not have been written to before everything counts as done.
const QUIET: Duration = Duration::from_millis(400);

/// How long all may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// Reconciles so far.
#[derive(Clone, Default)]
pub struct Reconciles {
    all: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Reconciles {
    /// One more.
    fn count<T, E>(&self, outcome: &Result<T, E>) {
        self.all.fetch_add(1, Relaxed);
        if outcome.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    /// As the subject tells it.
    pub fn answer(&self) -> Answer {
        Answer::Converge { reconciles: self.all.load(Relaxed), failed: self.failed.load(Relaxed) }
    }
}

/// Starts one of the subjects.
pub async fn start(who: Who, client: Client, parents: usize) -> Result<Reconciles, Void> {
    let reconciles = Reconciles::default();
    match who {
        Who::Operator => framework::start(client, reconciles.clone()),
        Who::Kube => stock::start(client, reconciles.clone()),
        Who::Bare => bare::write(client, parents).await?,
        Who::Engine => return Err(Void::new("the engine has no children of its own")),
    }
    Ok(reconciles)
}

/// What one subject did.
struct Converged {
    /// From the start to all that should be there.
    wall: Duration,
    /// CPU of the subject until it was quiet.
    cpu: Duration,
    writes: usize,
    reads: usize,
    conflicts: usize,
    refused: usize,
    reconciles: usize,
}

/// Measures.
pub fn measure(cores: Cores, scale: &Scale) -> Result<Figures, Void> {
    let (parents, whos) = (scale.parents, [Who::Operator, Who::Kube, Who::Bare]);
    let mut runs: [Vec<Converged>; 3] = Default::default();
    for _ in 0..scale.converging {
        for (who, runs) in whos.iter().zip(&mut runs) {
            runs.push(once(cores, *who, parents)?);
        }
    }
    let each = |at: usize, of: &dyn Fn(&Converged) -> f64| runs[at].iter().map(of).collect::<Vec<f64>>();
    let per = |at: usize, of: &dyn Fn(&Converged) -> usize| median(&each(at, &|run| of(run) as f64 / parents as f64));
    let mut figures = Figures::default();
    for (at, who) in whos.iter().enumerate() {
        let name = |what: &str| format!("{}: {what}", who.name());
        let ours = *who == Who::Operator;
        let aim = |figure: Figure, aim: f64| if ours { figure.aiming(aim) } else { figure };
        figures.add(aim(Figure::cost(name("writes for each parent"), per(at, &|run| run.writes), ""), LEAST));
        if *who != Who::Bare {
            figures.add(aim(Figure::cost(name("reads for each parent"), per(at, &|run| run.reads), ""), 0.0));
            figures.add(aim(Figure::cost(name("conflicts"), per(at, &|run| run.conflicts) * parents as f64, ""), 0.0));
            figures.add(Figure::cost(name("other refusals"), per(at, &|run| run.refused) * parents as f64, ""));
            figures.add(Figure::cost(name("reconciles for each parent"), per(at, &|run| run.reconciles), ""));
        }
        let cpu = |run: &Converged| run.cpu.as_secs_f64() * 1e6 / parents as f64;
        let mut figure = Figure::cost(name("CPU for each parent"), median(&each(at, &cpu)), "µs");
        if ours {
            figure = figure.beside(costs_beside(&each(1, &cpu), &each(0, &cpu)));
        }
        figures.add(figure);
        let rate = |run: &Converged| parents as f64 / run.wall.as_secs_f64();
        let mut figure = Figure::rate(name("parents a second"), median(&each(at, &rate)), "/s");
        if ours {
            figure = figure.beside(rates_beside(&each(1, &rate), &each(0, &rate)));
            let share = crate::compare::ratio(&each(0, &rate), &each(2, &rate));
            figures.add(figure);
            figure = Figure::rate(name("of what the bare writes reach"), share.middle * 100.0, "%").aiming(95.0);
            figure = figure.noting(format!("{:.0}–{:.0} %", share.low * 100.0, share.high * 100.0));
        }
        figures.add(figure);
    }
    Ok(figures)
}

fn once(cores: Cores, who: Who, parents: usize) -> Result<Converged, Void> {
    let cluster = Cluster::start(parents)?;
    let job = Job { who, server: cluster.url().to_owned(), threads: 1, task: Task::Converge { parents } };
    let mut subject = launch(cores, &job)?;
    let counts = cluster.counts();
    let get = |of: fn(&Counts) -> &AtomicUsize| of(counts).load(Relaxed);
    let writes = || get(|counts| &counts.writes);
    let in_time = || match subject.begun.elapsed() < PATIENCE {
        true => Ok(()),
        false => Err(Void::new(format!("{}: {} writes and still not all is there", who.name(), writes()))),
    };
    // Looking costs the server time, so nobody looks before it can be done.
    while writes() < parents * LEAST as usize || !cluster.converged(parents)? {
        in_time()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let wall = subject.begun.elapsed();
    let (mut before, mut since) = (writes(), Instant::now());
    while since.elapsed() < QUIET {
        in_time()?;
        std::thread::sleep(Duration::from_millis(20));
        if writes() != before {
            (before, since) = (writes(), Instant::now());
        }
    }
    let cpu = subject.process().cpu_exact()?;
    expect("everything is still there", cluster.converged(parents)?, true)?;
    subject.stop();
    let (_, answer) = subject.answer()?;
    let Answer::Converge { reconciles, failed } = answer else { return Err(Void::new("an answer to another task")) };
    let (conflicts, refused) = (get(|counts| &counts.conflicts), get(|counts| &counts.refused));
    if conflicts == 0 {
        expect("reconciles that failed", failed, 0)?;
    }
    let (writes, reads) = (writes(), get(|counts| &counts.reads));
    Ok(Converged { wall, cpu, writes, reads, conflicts, refused, reconciles })
}
