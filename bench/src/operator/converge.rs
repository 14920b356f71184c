//! Parents that get their children (B2): a finalizer, a ConfigMap, a Service, a Deployment without replicas and a status. In:
//! widgets in a cluster. Out: time, CPU, and requests counted at the server. Five writes for each parent is the minimum.

mod bare;
mod framework;
mod stock;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kube::Client;

use super::cluster::{Cluster, Counts};
use super::job::{Implementation, Job, Task, TaskResult};
use super::launch::launch;
use super::{Scale, compare_costs, compare_rates};
use crate::compare::median;
use crate::cores::Cores;
use crate::invalid_run::{InvalidRun, expect};
use crate::report::{Figure, Figures};

/// The image of the Deployment that never runs.
const IMAGE: &str = "registry.example.com/shop/web:v1.42.0";

/// The minimum of writes for each parent.
const MIN_WRITES: f64 = 5.0;

/// How long there must be no write until the run counts as done.
const IDLE: Duration = Duration::from_millis(400);

/// The longest time for a run.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Counts reconciles.
#[derive(Clone, Default)]
pub(super) struct Reconciles {
    all: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Reconciles {
    /// Counts one.
    fn count<T, E>(&self, outcome: &Result<T, E>) {
        self.all.fetch_add(1, Relaxed);
        if outcome.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    /// The result of the task.
    pub(super) fn result(&self) -> TaskResult {
        TaskResult::Converge { reconciles: self.all.load(Relaxed), failed: self.failed.load(Relaxed) }
    }
}

/// Starts an implementation.
pub(super) async fn start(
    implementation: Implementation,
    client: Client,
    parents: usize,
) -> Result<Reconciles, InvalidRun> {
    let reconciles = Reconciles::default();
    match implementation {
        Implementation::Operator => framework::start(client, reconciles.clone()),
        Implementation::Kube => stock::start(client, reconciles.clone()),
        Implementation::Bare => bare::write(client, parents).await?,
        Implementation::Engine => return Err(InvalidRun::new("the engine does not take part in this stage")),
    }
    Ok(reconciles)
}

/// The measurements of one run.
struct Converged {
    /// From the start until all children exist.
    wall: Duration,
    /// CPU of the subject until it was idle.
    cpu: Duration,
    writes: usize,
    reads: usize,
    conflicts: usize,
    refused: usize,
    reconciles: usize,
}

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let (parents, implementations) =
        (scale.parents, [Implementation::Operator, Implementation::Kube, Implementation::Bare]);
    let mut runs: [Vec<Converged>; 3] = Default::default();
    for _ in 0..scale.converging {
        for (implementation, runs) in implementations.iter().zip(&mut runs) {
            runs.push(once(cores, *implementation, parents)?);
        }
    }
    let each = |at: usize, of: &dyn Fn(&Converged) -> f64| runs[at].iter().map(of).collect::<Vec<f64>>();
    let per = |at: usize, of: &dyn Fn(&Converged) -> usize| median(&each(at, &|run| of(run) as f64 / parents as f64));
    let mut figures = Figures::default();
    for (at, implementation) in implementations.iter().enumerate() {
        let name = |what: &str| format!("{}: {what}", implementation.name());
        let ours = *implementation == Implementation::Operator;
        let aim = |figure: Figure, aim: f64| if ours { figure.with_aim(aim) } else { figure };
        figures.add(aim(Figure::cost(name("writes for each parent"), per(at, &|run| run.writes), ""), MIN_WRITES));
        if *implementation != Implementation::Bare {
            figures.add(aim(Figure::cost(name("reads for each parent"), per(at, &|run| run.reads), ""), 0.0));
            figures.add(aim(Figure::cost(name("conflicts"), per(at, &|run| run.conflicts) * parents as f64, ""), 0.0));
            figures.add(Figure::cost(name("other refusals"), per(at, &|run| run.refused) * parents as f64, ""));
            figures.add(Figure::cost(name("reconciles for each parent"), per(at, &|run| run.reconciles), ""));
        }
        let cpu = |run: &Converged| run.cpu.as_secs_f64() * 1e6 / parents as f64;
        let mut figure = Figure::cost(name("CPU for each parent"), median(&each(at, &cpu)), "µs");
        if ours {
            figure = figure.compared(compare_costs(&each(1, &cpu), &each(0, &cpu)));
        }
        figures.add(figure);
        let rate = |run: &Converged| parents as f64 / run.wall.as_secs_f64();
        let mut figure = Figure::rate(name("parents a second"), median(&each(at, &rate)), "/s");
        if ours {
            figure = figure.compared(compare_rates(&each(1, &rate), &each(0, &rate)));
            let share = crate::compare::ratio(&each(0, &rate), &each(2, &rate));
            figures.add(figure);
            figure = Figure::rate(name("of what the bare writes reach"), share.middle * 100.0, "%").with_aim(95.0);
            figure = figure.with_note(format!("{:.0}–{:.0} %", share.low * 100.0, share.high * 100.0));
        }
        figures.add(figure);
    }
    Ok(figures)
}

fn once(cores: Cores, implementation: Implementation, parents: usize) -> Result<Converged, InvalidRun> {
    let cluster = Cluster::start(parents)?;
    let job = Job { implementation, server: cluster.url().to_owned(), threads: 1, task: Task::Converge { parents } };
    let mut subject = launch(cores, &job)?;
    let counts = cluster.counts();
    let get = |of: fn(&Counts) -> &AtomicUsize| of(counts).load(Relaxed);
    let writes = || get(|counts| &counts.writes);
    let in_time = || match subject.begun.elapsed() < TIMEOUT {
        true => Ok(()),
        false => Err(InvalidRun::new(format!(
            "{}: {} writes, and some children are still missing",
            implementation.name(),
            writes()
        ))),
    };
    // The check takes time of the server, so it is not made before the minimum of writes was seen.
    while writes() < parents * MIN_WRITES as usize || !cluster.converged(parents)? {
        in_time()?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let wall = subject.begun.elapsed();
    let (mut before, mut since) = (writes(), Instant::now());
    while since.elapsed() < IDLE {
        in_time()?;
        std::thread::sleep(Duration::from_millis(20));
        if writes() != before {
            (before, since) = (writes(), Instant::now());
        }
    }
    let cpu = subject.process().cpu_exact()?;
    expect("all children still exist", cluster.converged(parents)?, true)?;
    subject.stop();
    let (_, result) = subject.result()?;
    let TaskResult::Converge { reconciles, failed } = result else {
        return Err(InvalidRun::new("the result of another task"));
    };
    let (conflicts, refused) = (get(|counts| &counts.conflicts), get(|counts| &counts.refused));
    if conflicts == 0 {
        expect("reconciles that failed", failed, 0)?;
    }
    let (writes, reads) = (writes(), get(|counts| &counts.reads));
    Ok(Converged { wall, cpu, writes, reads, conflicts, refused, reconciles })
}
