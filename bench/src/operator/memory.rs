//! What a cached object takes (B4): the growth between few and many, so that what a process has anyway does not count, and
//! the peak while all are listed again.

use super::job::{Answer, Held, Job, Task, Who};
use super::launch::ask;
use super::replay::{PODS, Replay, WIDGETS};
use super::{Scale, costs_beside};
use crate::cores::Cores;
use crate::report::{Figure, Figures};
use crate::void::Void;
use crate::{pod, widget};

/// What was seen of one subject with some objects.
struct Sample {
    base: f64,
    full: f64,
    peak: f64,
    after: f64,
    cpu_each: f64,
}

/// Measures.
pub fn measure(cores: Cores, scale: &Scale) -> Result<Figures, Void> {
    let replay = Replay::start()?;
    let mut figures = Figures::default();
    replay.fill(WIDGETS, std::iter::empty());
    let base = once(cores, &replay, Who::Engine, 0, Held::Widgets)?;
    let note = "no metrics, no probes";
    figures.add(Figure::cost("engine: resident, connected, without objects", base.full / 1e6, "MB").noting(note));
    let base = once(cores, &replay, Who::Kube, 0, Held::Widgets)?;
    figures.add(Figure::cost("kube: resident, connected, without objects", base.full / 1e6, "MB"));
    let operator = Job {
        who: Who::Operator,
        server: replay.url().to_owned(),
        threads: 1,
        task: Task::Noop { objects: 0, storms: 0, idle: std::time::Duration::from_secs(1) },
    };
    let Answer::Noop { rss, .. } = ask(cores, &operator)? else { return Err(Void::new("an answer to another task")) };
    let figure = Figure::cost("operator: resident, without objects", rss as f64 / 1e6, "MB").aiming(10.0);
    figures.add(figure.noting("with metrics and probes, without TLS"));
    for (held, what, aim) in [
        (Held::Widgets, "widget", Aim::TimesJson(1.15)),
        (Held::WidgetMetadata, "widget's metadata", Aim::Bytes(450.0)),
        (Held::Pods, "Pod", Aim::Bytes(6_300.0)),
    ] {
        let json = match held {
            Held::Pods => pod::kept(7, 8).to_string().len(),
            _ => widget::kept(7, 8, 0).to_string().len(),
        } as f64;
        let mut seen = Vec::new();
        for objects in scale.held {
            match held {
                Held::Pods => replay.fill(PODS, (0..objects).map(|number| pod::kept(number, number + 1))),
                Held::WidgetMetadata => {
                    replay.fill_metadata(WIDGETS, (0..objects).map(|number| widget::kept(number, number + 1, 0)))
                }
                Held::Widgets => replay.fill(WIDGETS, (0..objects).map(|number| widget::kept(number, number + 1, 0))),
            }
            let ours = once(cores, &replay, Who::Engine, objects, held)?;
            seen.push((ours, once(cores, &replay, Who::Kube, objects, held)?));
        }
        replay.fill(PODS, std::iter::empty());
        let [(few, theirs_few), (many, theirs)] = &seen[..] else { return Err(Void::new("two sizes are compared")) };
        let more = (scale.held[1] - scale.held[0]) as f64;
        let (each, theirs_each) = ((many.full - few.full) / more, (theirs.full - theirs_few.full) / more);
        let limit = match aim {
            Aim::Bytes(bytes) => bytes,
            Aim::TimesJson(times) => times * json,
        };
        let figure = Figure::cost(format!("engine: for each {what}"), each, "B").aiming(limit);
        let figure = figure.beside(costs_beside(&[theirs_each], &[each]));
        figures.add(figure.noting(format!("{json:.0} B of JSON each, {} of them", scale.held[1])));
        let relist = |sample: &Sample| (sample.peak - sample.base) / (sample.full - sample.base);
        let (ours, other) = (relist(many), relist(theirs));
        let figure = Figure::cost(format!("engine: peak of a relist of {what}s"), ours, "x").aiming(1.15);
        figures.add(figure.beside(costs_beside(&[other], &[ours])));
        let (ours, other) = (many.after / many.full, theirs.after / theirs.full);
        let figure = Figure::cost(format!("engine: after a relist of {what}s"), ours, "x").aiming(1.05);
        figures.add(figure.beside(costs_beside(&[other], &[ours])));
        let figure = Figure::cost(format!("engine: CPU to take in a {what}"), many.cpu_each, "µs");
        figures.add(figure.beside(costs_beside(&[theirs.cpu_each], &[many.cpu_each])));
    }
    replay.check()?;
    Ok(figures)
}

enum Aim {
    Bytes(f64),
    TimesJson(f64),
}

fn once(cores: Cores, replay: &Replay, who: Who, objects: usize, kind: Held) -> Result<Sample, Void> {
    let job = Job { who, server: replay.url().to_owned(), threads: 1, task: Task::Hold { objects, kind } };
    match ask(cores, &job)? {
        Answer::Hold { base, full, peak, after, cost } => Ok(Sample {
            base: base as f64,
            full: full as f64,
            peak: peak as f64,
            after: after as f64,
            cpu_each: cost.cpu_each(),
        }),
        _ => Err(Void::new("an answer to another task")),
    }
}
