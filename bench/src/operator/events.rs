//! From a change to its reconcile (B3). Changes come at random times, whether or not the last was seen, and carry when they
//! were due; so a subject that stalls shows it in every change that waits meanwhile. Quiet first, and then while all
//! objects are looked at again and again, with reconciles that wait as for an answer.

use std::time::{Duration, Instant};

use super::job::{Answer, Job, Task, Who};
use super::launch::launch;
use super::replay::{Replay, WIDGETS};
use super::tally::now;
use super::{Scale, costs_beside};
use crate::cores::Cores;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};
use crate::void::{Void, expect};
use crate::widget::{self, Random};

/// How many widgets there are. None changes twice in a run, so that each change has a reconcile of its own.
const OBJECTS: usize = 10_000;

/// What an answer takes.
const PAUSE: Duration = Duration::from_millis(1);

/// What happens beside the changes.
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

/// Measures.
pub fn measure(cores: Cores, scale: &Scale) -> Result<Figures, Void> {
    let replay = Replay::start()?;
    replay.fill(WIDGETS, (0..OBJECTS).map(|number| widget::kept(number, number + 1, 0)));
    let mut figures = Figures::default();
    for setting in &SETTINGS {
        // A resync has to begin, and to be over.
        let time = if setting.resync.is_some() { scale.events.max(Duration::from_secs(6)) } else { scale.events };
        let mut seen = Vec::new();
        for who in Who::CONTROLLERS {
            seen.push((who, once(cores, &replay, who, setting, time)?));
        }
        let theirs = seen.last().map(|(_, latencies)| latencies.clone()).unwrap_or_default();
        for (who, latencies) in &seen {
            for (share, name) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")] {
                let what = format!("{}: {}, {name}", who.name(), setting.name);
                let (ours, theirs) = (latencies.millis(share), theirs.millis(share));
                let mut figure = Figure::cost(what, ours, "ms");
                if *who != Who::Kube {
                    figure = figure.beside(costs_beside(&[theirs], &[ours]));
                    figure = match (name, setting.rate) {
                        ("p50", 0..=500) => figure.aiming(0.25),
                        ("p99", 0..=500) => figure.aiming(2.0),
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

fn once(cores: Cores, replay: &Replay, who: Who, setting: &Setting, time: Duration) -> Result<Latencies, Void> {
    let changes = (setting.rate as f64 * time.as_secs_f64()) as usize;
    let task = Task::Events { objects: OBJECTS, changes, pause: setting.pause, resync: setting.resync };
    let mut subject = launch(cores, &Job { who, server: replay.url().to_owned(), threads: 1, task })?;
    subject.ready()?;
    send(replay, setting.rate, changes);
    let (_, answer) = subject.answer()?;
    let Answer::Events { latencies, .. } = answer else { return Err(Void::new("an answer to another task")) };
    expect("changes that were seen", latencies.len(), changes)?;
    Ok(latencies)
}

/// Sends changes at random times that a rate gives, and never waits for anybody.
fn send(replay: &Replay, rate: usize, changes: usize) {
    let (mut random, begun, began) = (Random::new(rate as u64), Instant::now(), now());
    let mut due = Duration::ZERO;
    for change in 0..changes {
        due += Duration::from_secs_f64(-random.share().ln() / rate as f64);
        let stamp = began + due.as_nanos() as u64;
        // Made before it is due, so that making it is not late.
        let object = widget::kept(change % OBJECTS, OBJECTS + change + 1, stamp);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        replay.change(WIDGETS, &object);
    }
}
