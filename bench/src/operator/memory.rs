//! The memory of a cached object (B4): the growth between few and many objects, which leaves out the memory of the process
//! itself, and the peak while all objects are listed again.

use super::job::{Held, Implementation, Job, Task, TaskResult};
use super::launch::run_job;
use super::replay::{PODS, Replay, WIDGETS};
use super::{Scale, compare_costs};
use crate::cores::Cores;
use crate::invalid_run::InvalidRun;
use crate::report::{Figure, Figures};
use crate::{pod, widget};

/// The measurements of one subject.
struct Sample {
    base: f64,
    full: f64,
    peak: f64,
    after: f64,
    cpu_each: f64,
}

/// Runs the stage.
pub(super) fn measure(cores: Cores, scale: &Scale) -> Result<Figures, InvalidRun> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    replay.fill(WIDGETS, std::iter::empty());
    let base = once(cores, &replay, Implementation::Engine, 0, Held::Widgets)?;
    let note = "no metrics, no probes";
    figures.add(Figure::cost("engine: resident, connected, without objects", base.full / 1e6, "MB").with_note(note));
    let base = once(cores, &replay, Implementation::Kube, 0, Held::Widgets)?;
    figures.add(Figure::cost("kube: resident, connected, without objects", base.full / 1e6, "MB"));
    let operator = Job {
        implementation: Implementation::Operator,
        server: replay.url().to_owned(),
        threads: 1,
        task: Task::Noop { objects: 0, storms: 0, idle: std::time::Duration::from_secs(1) },
    };
    let TaskResult::Noop { rss, .. } = run_job(cores, &operator)? else {
        return Err(InvalidRun::new("the result of another task"));
    };
    let figure = Figure::cost("operator: resident, without objects", rss as f64 / 1e6, "MB").with_aim(10.0);
    figures.add(figure.with_note("with metrics and probes, without TLS"));
    for (held, what, aim) in [
        (Held::Widgets, "widget", Aim::TimesJson(1.15)),
        (Held::WidgetMetadata, "widget's metadata", Aim::Bytes(450.0)),
        (Held::Pods, "Pod", Aim::Bytes(6_300.0)),
    ] {
        let json = match held {
            Held::Pods => pod::stored(7, 8).to_string().len(),
            _ => widget::stored(7, 8, 0).to_string().len(),
        } as f64;
        let mut seen = Vec::new();
        for objects in scale.held {
            match held {
                Held::Pods => replay.fill(PODS, (0..objects).map(|number| pod::stored(number, number + 1))),
                Held::WidgetMetadata => {
                    replay.fill_metadata(WIDGETS, (0..objects).map(|number| widget::stored(number, number + 1, 0)))
                }
                Held::Widgets => replay.fill(WIDGETS, (0..objects).map(|number| widget::stored(number, number + 1, 0))),
            }
            let ours = once(cores, &replay, Implementation::Engine, objects, held)?;
            seen.push((ours, once(cores, &replay, Implementation::Kube, objects, held)?));
        }
        replay.fill(PODS, std::iter::empty());
        let [(few, theirs_few), (many, theirs)] = &seen[..] else {
            return Err(InvalidRun::new("two sizes are compared"));
        };
        let more = (scale.held[1] - scale.held[0]) as f64;
        let (each, theirs_each) = ((many.full - few.full) / more, (theirs.full - theirs_few.full) / more);
        let limit = match aim {
            Aim::Bytes(bytes) => bytes,
            Aim::TimesJson(times) => times * json,
        };
        let figure = Figure::cost(format!("engine: for each {what}"), each, "B").with_aim(limit);
        let figure = figure.compared(compare_costs(&[theirs_each], &[each]));
        figures.add(figure.with_note(format!("{json:.0} B of JSON each, {} of them", scale.held[1])));
        let relist = |sample: &Sample| (sample.peak - sample.base) / (sample.full - sample.base);
        let (ours, other) = (relist(many), relist(theirs));
        let figure = Figure::cost(format!("engine: peak of a relist of {what}s"), ours, "x").with_aim(1.15);
        figures.add(figure.compared(compare_costs(&[other], &[ours])));
        let (ours, other) = (many.after / many.full, theirs.after / theirs.full);
        let figure = Figure::cost(format!("engine: after a relist of {what}s"), ours, "x").with_aim(1.05);
        figures.add(figure.compared(compare_costs(&[other], &[ours])));
        let figure = Figure::cost(format!("engine: CPU to take in a {what}"), many.cpu_each, "µs");
        figures.add(figure.compared(compare_costs(&[theirs.cpu_each], &[many.cpu_each])));
    }
    replay.check()?;
    Ok(figures)
}

enum Aim {
    Bytes(f64),
    TimesJson(f64),
}

fn once(
    cores: Cores,
    replay: &Replay,
    implementation: Implementation,
    objects: usize,
    kind: Held,
) -> Result<Sample, InvalidRun> {
    let job = Job { implementation, server: replay.url().to_owned(), threads: 1, task: Task::Hold { objects, kind } };
    match run_job(cores, &job)? {
        TaskResult::Hold { base, full, peak, after, cost } => Ok(Sample {
            base: base as f64,
            full: full as f64,
            peak: peak as f64,
            after: after as f64,
            cpu_each: cost.cpu_each(),
        }),
        _ => Err(InvalidRun::new("the result of another task")),
    }
}
