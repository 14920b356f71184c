//! Reconciles that find nothing to do (B1): first of all objects after the start, then of all objects several times more. Then
//! the CPU time of an idle operator.

use std::time::Duration;

use super::job::{Cost, Implementation, Job, Task, TaskResult};
use super::launch::run_job;
use super::replay::{Replay, WIDGETS};
use super::{Scale, compare_costs};
use crate::compare::{median, ratio};
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::report::{Figure, Figures};
use crate::widget;

/// The aim for the CPU time of a no-op reconcile of the engine, in µs.
const AIM: f64 = 1.5;
/// The aim for the CPU time of listing an object and reconciling it once, in µs.
const INITIAL_AIM: f64 = 8.0;
/// The aim for the speedup by a second thread.
const SCALING_AIM: f64 = 1.6;
/// The aim for the CPU time of an idle operator, in percent of a core.
const IDLE_AIM: f64 = 0.1;

/// The measurements of one subject in one round.
struct Sample {
    initial: Cost,
    storm: Cost,
    rss: u64,
}

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    for &(objects, storms, rounds) in scale.noop {
        replay.fill(WIDGETS, (0..objects).map(|number| widget::stored(number, number + 1, 0)));
        let mut samples: [[Vec<Sample>; 3]; 2] = Default::default();
        for _ in 0..rounds {
            for (threads, samples) in (1..).zip(&mut samples) {
                for (implementation, samples) in Implementation::CONTROLLERS.into_iter().zip(samples) {
                    samples.push(once(cores, &replay, implementation, threads, objects, storms)?);
                }
            }
        }
        add_figures(&mut figures, objects, &samples);
    }
    let (objects, ..) = scale.noop[0];
    replay.fill(WIDGETS, (0..objects).map(|number| widget::stored(number, number + 1, 0)));
    for implementation in Implementation::CONTROLLERS {
        let task = Task::Noop { objects, storms: 1, idle: scale.idle };
        let result = run_job(cores, &Job { implementation, server: replay.url().to_owned(), threads: 1, task })?;
        let TaskResult::Noop { idle, .. } = result else { return Err(InvalidRun::new("the result of another task")) };
        let share = 100.0 * idle.as_secs_f64() / scale.idle.as_secs_f64();
        let figure =
            Figure::cost(format!("{}: CPU while idle, {objects} objects", implementation.name()), share, "% of a core");
        figures.add(if implementation == Implementation::Kube { figure } else { figure.with_aim(IDLE_AIM) });
    }
    replay.check()?;
    Ok(figures)
}

fn once(
    cores: Cores,
    replay: &Replay,
    implementation: Implementation,
    threads: usize,
    objects: usize,
    storms: usize,
) -> Result<Sample, InvalidRun> {
    let task = Task::Noop { objects, storms, idle: Duration::ZERO };
    match run_job(cores, &Job { implementation, server: replay.url().to_owned(), threads, task })? {
        TaskResult::Noop { initial, storm, rss, .. } => Ok(Sample { initial, storm, rss }),
        _ => Err(InvalidRun::new("the result of another task")),
    }
}

fn add_figures(figures: &mut Figures, objects: usize, samples: &[[Vec<Sample>; 3]; 2]) {
    let of = |threads: usize, at: usize, of: &dyn Fn(&Sample) -> f64| -> Vec<f64> {
        samples[threads - 1][at].iter().map(of).collect()
    };
    const KUBE: usize = 2;
    for (at, implementation) in Implementation::CONTROLLERS.into_iter().enumerate() {
        let name = |what: &str| format!("{}: {what}, {objects} objects", implementation.name());
        for threads in [1, 2] {
            let cpu = |sample: &Sample| sample.storm.cpu_each();
            let (ours, theirs) = (of(threads, at, &cpu), of(threads, KUBE, &cpu));
            let what = if threads == 1 { name("CPU of a reconcile") } else { name("the same on 2 threads") };
            let mut figure = Figure::cost(what, median(&ours), "µs");
            figure = if at == KUBE { figure } else { figure.compared(compare_costs(&theirs, &ours)) };
            let rate = median(&of(threads, at, &|sample| sample.storm.rate()));
            figure = figure.with_note(format!("{rate:.0} reconciles/s"));
            figures.add(if implementation == Implementation::Engine && threads == 1 {
                figure.with_aim(AIM)
            } else {
                figure
            });
        }
        let rate = |sample: &Sample| sample.storm.rate();
        let scaling = ratio(&of(2, at, &rate), &of(1, at, &rate));
        let figure = Figure::rate(name("2 threads, times as fast as 1"), scaling.middle, "x");
        let figure = figure.with_note(format!("{:.2}–{:.2}", scaling.low, scaling.high));
        figures.add(if at == KUBE { figure } else { figure.with_aim(SCALING_AIM) });
        let initial = |sample: &Sample| sample.initial.cpu_each();
        let (ours, theirs) = (of(1, at, &initial), of(1, KUBE, &initial));
        let mut figure = Figure::cost(name("CPU from exec to all reconciled, each"), median(&ours), "µs");
        figure = if at == KUBE { figure } else { figure.compared(compare_costs(&theirs, &ours)).with_aim(INITIAL_AIM) };
        let wall = median(&of(1, at, &|sample| sample.initial.wall.as_secs_f64() * 1e3));
        figures.add(figure.with_note(format!("{wall:.0} ms by the clock")));
        let rss = |sample: &Sample| sample.rss as f64 / 1e6;
        let (ours, theirs) = (of(1, at, &rss), of(1, KUBE, &rss));
        let figure = Figure::cost(name("resident after the storms"), median(&ours), "MB");
        figures.add(if at == KUBE { figure } else { figure.compared(compare_costs(&theirs, &ours)) });
    }
}
