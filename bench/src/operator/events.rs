//! The latency from a change to its reconcile (B3). Changes come at random times, whether or not the one before was seen, and
//! carry the time at which they were due. So a subject that stalls has a high latency for every change that waits meanwhile.
//! Measured without other work, with reconciles that pause, and during resyncs of all objects.

use std::time::{Duration, Instant};

use super::job::{Implementation, Job, Task, TaskResult};
use super::launch::launch;
use super::reconcile_counter::now;
use super::replay::{Replay, WIDGETS};
use super::{Scale, compare_costs};
use crate::cores::Cores;
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::report::{Figure, Figures};
use crate::widget::{self, Random};

/// The number of widgets. No widget changes twice in a run, so that each change has a reconcile of its own.
const OBJECTS: usize = 10_000;

/// How long a reconcile pauses.
const PAUSE: Duration = Duration::from_millis(1);

/// The load of one measurement.
struct Setting {
    name: &'static str,
    /// Changes a second.
    rate: usize,
    pause: Option<Duration>,
    resync: Option<Duration>,
}

const SETTINGS: [Setting; 5] = [
    Setting { name: "100 changes/s", rate: 100, pause: None, resync: None },
    Setting { name: "500 changes/s", rate: 500, pause: None, resync: None },
    Setting { name: "1000 changes/s", rate: 1000, pause: None, resync: None },
    Setting { name: "500/s, reconciles of 1 ms", rate: 500, pause: Some(PAUSE), resync: None },
    Setting {
        name: "500/s, reconciles of 1 ms, all resynced every 3 s",
        rate: 500,
        pause: Some(PAUSE),
        resync: Some(Duration::from_secs(3)),
    },
];

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let replay = Replay::start()?;
    replay.fill(WIDGETS, (0..OBJECTS).map(|number| widget::stored(number, number + 1, 0)));
    let mut figures = Figures::default();
    for setting in &SETTINGS {
        // The run has to contain a whole resync.
        let time = if setting.resync.is_some() { scale.events.max(Duration::from_secs(6)) } else { scale.events };
        let mut seen = Vec::new();
        for implementation in Implementation::CONTROLLERS {
            seen.push((implementation, once(cores, &replay, implementation, setting, time)?));
        }
        let theirs = seen.last().map(|(_, latencies)| latencies.clone()).unwrap_or_default();
        for (implementation, latencies) in &seen {
            for (share, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")] {
                let what = format!("{}: {}, {name}", implementation.name(), setting.name);
                let (ours, theirs) = (latencies.millis(share), theirs.millis(share));
                let mut figure = Figure::cost(what, ours, "ms");
                if *implementation != Implementation::Kube {
                    figure = figure.compared(compare_costs(&[theirs], &[ours]));
                    figure = match (name, setting.rate) {
                        ("p50", 0..=500) => figure.with_aim(0.25),
                        ("p99", 0..=500) => figure.with_aim(2.0),
                        _ => figure,
                    };
                }
                figures.add(figure);
            }
        }
    }
    replay.check()?;
    Ok(figures)
}

fn once(
    cores: Cores,
    replay: &Replay,
    implementation: Implementation,
    setting: &Setting,
    time: Duration,
) -> Result<Latencies, InvalidRun> {
    let changes = (setting.rate as f64 * time.as_secs_f64()) as usize;
    let task = Task::Events { objects: OBJECTS, changes, pause: setting.pause, resync: setting.resync };
    let mut subject = launch(cores, &Job { implementation, server: replay.url().to_owned(), threads: 1, task })?;
    subject.ready()?;
    send(replay, setting.rate, changes);
    let (_, result) = subject.result()?;
    let TaskResult::Events { latencies, .. } = result else {
        return Err(InvalidRun::new("the result of another task"));
    };
    expect("changes that were seen", latencies.len(), changes)?;
    Ok(latencies)
}

/// Sends changes at random times with this mean rate, and never waits for the subject.
fn send(replay: &Replay, rate: usize, changes: usize) {
    let (mut random, begun, began) = (Random::new(rate as u64), Instant::now(), now());
    let mut due = Duration::ZERO;
    for change in 0..changes {
        due += Duration::from_secs_f64(-random.fraction().ln() / rate as f64);
        let stamp = began + due.as_nanos() as u64;
        // The object is made before the change is due, so that it can be sent in time.
        let object = widget::stored(change % OBJECTS, OBJECTS + change + 1, stamp);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        replay.change(WIDGETS, &object);
    }
}
