//! Reconciles that find nothing to do (B1): all objects once from the start, then all of them again and again. Then
//! nothing, which should cost nothing.

use std::time::Duration;

use super::job::{Answer, Cost, Job, Task, Who};
use super::launch::ask;
use super::replay::{Replay, WIDGETS};
use super::{Scale, costs_beside};
use crate::compare::{median, ratio};
use crate::cores::Cores;
use crate::report::{Figure, Figures};
use crate::void::Void;
use crate::widget;

/// What a no-op reconcile of the engine may cost, in µs.
const AIM: f64 = 1.5;
/// What taking an object in and reconciling it once may cost, in µs.
const INITIAL_AIM: f64 = 8.0;
/// How many times as fast two threads should be.
const SCALING_AIM: f64 = 1.6;
/// The share of a core that an idle operator may take, in percent.
const IDLE_AIM: f64 = 0.1;

/// What one subject did in one round.
struct Sample {
    initial: Cost,
    storm: Cost,
    rss: u64,
}

/// Measures.
pub fn measure(cores: Cores, scale: &Scale) -> Result<Figures, Void> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    for &(objects, storms, rounds) in scale.noop {
        replay.fill(WIDGETS, (0..objects).map(|number| widget::kept(number, number + 1, 0)));
        let mut samples: [[Vec<Sample>; 3]; 2] = Default::default();
        for _ in 0..rounds {
            for (threads, samples) in (1..).zip(&mut samples) {
                for (who, samples) in Who::CONTROLLERS.into_iter().zip(samples) {
                    samples.push(once(cores, &replay, who, threads, objects, storms)?);
                }
            }
        }
        tell(&mut figures, objects, &samples);
    }
    let (objects, ..) = scale.noop[0];
    replay.fill(WIDGETS, (0..objects).map(|number| widget::kept(number, number + 1, 0)));
    for who in Who::CONTROLLERS {
        let task = Task::Noop { objects, storms: 1, idle: scale.idle };
        let answer = ask(cores, &Job { who, server: replay.url().to_owned(), threads: 1, task })?;
        let Answer::Noop { idle, .. } = answer else { return Err(Void::new("an answer to another task")) };
        let share = 100.0 * idle.as_secs_f64() / scale.idle.as_secs_f64();
        let figure = Figure::cost(format!("{}: CPU while idle, {objects} objects", who.name()), share, "% of a core");
        figures.add(if who == Who::Kube { figure } else { figure.aiming(IDLE_AIM) });
    }
    replay.check()?;
    Ok(figures)
}

fn once(
    cores: Cores,
    replay: &Replay,
    who: Who,
    threads: usize,
    objects: usize,
    storms: usize,
) -> Result<Sample, Void> {
    let task = Task::Noop { objects, storms, idle: Duration::ZERO };
    match ask(cores, &Job { who, server: replay.url().to_owned(), threads, task })? {
        Answer::Noop { initial, storm, rss, .. } => Ok(Sample { initial, storm, rss }),
        _ => Err(Void::new("an answer to another task")),
    }
}

fn tell(figures: &mut Figures, objects: usize, samples: &[[Vec<Sample>; 3]; 2]) {
    let of = |threads: usize, at: usize, of: &dyn Fn(&Sample) -> f64| -> Vec<f64> {
        samples[threads - 1][at].iter().map(of).collect()
    };
    const KUBE: usize = 2;
    for (at, who) in Who::CONTROLLERS.into_iter().enumerate() {
        let name = |what: &str| format!("{}: {what}, {objects} objects", who.name());
        for threads in [1, 2] {
            let cpu = |sample: &Sample| sample.storm.cpu_each();
            let (ours, theirs) = (of(threads, at, &cpu), of(threads, KUBE, &cpu));
            let what = if threads == 1 { name("CPU of a reconcile") } else { name("the same on 2 threads") };
            let mut figure = Figure::cost(what, median(&ours), "µs");
            figure = if at == KUBE { figure } else { figure.beside(costs_beside(&theirs, &ours)) };
            let rate = median(&of(threads, at, &|sample| sample.storm.rate()));
            figure = figure.noting(format!("{rate:.0} reconciles/s"));
            figures.add(if who == Who::Engine && threads == 1 { figure.aiming(AIM) } else { figure });
        }
        let rate = |sample: &Sample| sample.storm.rate();
        let scaling = ratio(&of(2, at, &rate), &of(1, at, &rate));
        let figure = Figure::rate(name("2 threads, times as fast as 1"), scaling.middle, "x");
        let figure = figure.noting(format!("{:.2}–{:.2}", scaling.low, scaling.high));
        figures.add(if at == KUBE { figure } else { figure.aiming(SCALING_AIM) });
        let initial = |sample: &Sample| sample.initial.cpu_each();
        let (ours, theirs) = (of(1, at, &initial), of(1, KUBE, &initial));
        let mut figure = Figure::cost(name("CPU from exec to all reconciled, each"), median(&ours), "µs");
        figure = if at == KUBE { figure } else { figure.beside(costs_beside(&theirs, &ours)).aiming(INITIAL_AIM) };
        let wall = median(&of(1, at, &|sample| sample.initial.wall.as_secs_f64() * 1e3));
        figures.add(figure.noting(format!("{wall:.0} ms by the clock")));
        let rss = |sample: &Sample| sample.rss as f64 / 1e6;
        let (ours, theirs) = (of(1, at, &rss), of(1, KUBE, &rss));
        let figure = Figure::cost(name("resident after the storms"), median(&ours), "MB");
        figures.add(if at == KUBE { figure } else { figure.beside(costs_beside(&theirs, &ours)) });
    }
}
