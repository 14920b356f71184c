//! From the start of a process to the end of its first reconcile (B5), with some objects already there.

use super::job::{Answer, Job, Task, Who};
use super::launch::launch;
use super::replay::{Replay, WIDGETS};
use super::{Scale, costs_beside};
use crate::compare::median;
use crate::cores::Cores;
use crate::report::{Figure, Figures};
use crate::void::Void;
use crate::widget;

/// Measures.
pub fn measure(cores: Cores, scale: &Scale) -> Result<Figures, Void> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    for &(objects, rounds) in scale.cold {
        replay.fill(WIDGETS, (0..objects).map(|number| widget::kept(number, number + 1, 0)));
        let mut walls: [Vec<f64>; 3] = Default::default();
        let mut cpus: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            for (at, who) in Who::CONTROLLERS.into_iter().enumerate() {
                let job = Job { who, server: replay.url().to_owned(), threads: 1, task: Task::Cold };
                let subject = launch(cores, &job)?;
                let begun = subject.begun;
                let (answered, answer) = subject.answer()?;
                let Answer::Cold { cpu } = answer else { return Err(Void::new("an answer to another task")) };
                walls[at].push((answered - begun).as_secs_f64() * 1e3);
                cpus[at].push(cpu.as_secs_f64() * 1e3);
            }
        }
        for (at, who) in Who::CONTROLLERS.into_iter().enumerate() {
            let what = format!("{}: {objects} objects", who.name());
            let figure = Figure::cost(what, median(&walls[at]), "ms");
            let figure = figure.noting(format!("{:.1} ms of CPU", median(&cpus[at])));
            if who == Who::Kube {
                figures.add(figure);
                continue;
            }
            let figure = figure.beside(costs_beside(&walls[2], &walls[at]));
            figures.add(figure.aiming(match objects {
                0..=1 => 30.0,
                2..=1_000 => 60.0,
                _ => 250.0,
            }));
        }
    }
    replay.check()?;
    Ok(figures)
}
