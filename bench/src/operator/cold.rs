//! The time from the start of a process to the end of its first reconcile (B5), with existing objects.

use super::job::{Implementation, Job, Task, TaskResult};
use super::launch::launch;
use super::replay::{Replay, WIDGETS};
use super::{Scale, compare_costs};
use crate::compare::median;
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::report::{Figure, Figures};
use crate::widget;

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    for &(objects, rounds) in scale.cold {
        replay.fill(WIDGETS, (0..objects).map(|number| widget::stored(number, number + 1, 0)));
        let mut walls: [Vec<f64>; 3] = Default::default();
        let mut cpus: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            for (at, implementation) in Implementation::CONTROLLERS.into_iter().enumerate() {
                let job = Job { implementation, server: replay.url().to_owned(), threads: 1, task: Task::Cold };
                let subject = launch(cores, &job)?;
                let begun = subject.begun;
                let (ended, result) = subject.result()?;
                let TaskResult::Cold { cpu } = result else {
                    return Err(InvalidRun::new("the result of another task"));
                };
                walls[at].push((ended - begun).as_secs_f64() * 1e3);
                cpus[at].push(cpu.as_secs_f64() * 1e3);
            }
        }
        for (at, implementation) in Implementation::CONTROLLERS.into_iter().enumerate() {
            let what = format!("{}: {objects} objects", implementation.name());
            let figure = Figure::cost(what, median(&walls[at]), "ms");
            let figure = figure.with_note(format!("{:.1} ms of CPU", median(&cpus[at])));
            if implementation == Implementation::Kube {
                figures.add(figure);
                continue;
            }
            let figure = figure.compared(compare_costs(&walls[2], &walls[at]));
            figures.add(figure.with_aim(match objects {
                0..=1 => 30.0,
                2..=1_000 => 60.0,
                _ => 250.0,
            }));
        }
    }
    replay.check()?;
    Ok(figures)
}
