//! Reviews as fast as they are answered, by one, some and many connections that are kept alive, and by one that is new for each
//! review. Out: CPU for each review, rate and latencies of every server, and their relations.

use super::Scale;
use super::launch::{Launcher, Program, WebhookServer};
use super::load::{self, Reviewed};
use super::review::Hook;
use crate::compare::{median, ratio};
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

/// The aim for the CPU time of a review, in µs.
const AIM: f64 = 40.0;
/// How much less than Go's server, and than a bare one.
const GO_AIM: f64 = 3.0;
const BARE_AIM: f64 = 1.5;

/// How reviews are sent.
#[derive(Clone, Copy)]
enum Clients {
    /// By this number of connections that are kept alive.
    Kept(usize),
    /// By a new connection for each.
    New,
}

/// The measurements: which webhooks, and how.
const RUNS: [(Hook, Clients); 10] = [
    (Hook::Validate, Clients::Kept(1)),
    (Hook::Validate, Clients::Kept(16)),
    (Hook::Validate, Clients::Kept(64)),
    (Hook::Mutate, Clients::Kept(1)),
    (Hook::Mutate, Clients::Kept(16)),
    (Hook::Mutate, Clients::Kept(64)),
    (Hook::ValidateFewFields, Clients::Kept(16)),
    (Hook::MutateFewFields, Clients::Kept(16)),
    (Hook::Validate, Clients::New),
    (Hook::Mutate, Clients::New),
];

/// Runs the stage.
pub(super) async fn measure(
    launcher: &Launcher<'_>,
    programs: &[Program],
    scale: &Scale,
) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let servers = launcher.start_all(programs).await?;
    for server in &servers {
        // The first reviews pay for what is made only once.
        for hook in [Hook::Validate, Hook::Mutate] {
            load::closed(server, hook, 4, scale.closed / 2).await?;
        }
    }
    for (hook, clients) in RUNS {
        let only_ours = matches!(hook, Hook::ValidateFewFields | Hook::MutateFewFields);
        let servers = if only_ours { &servers[..1] } else { &servers[..] };
        let mut samples: Vec<Vec<Reviewed>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..scale.rounds {
            for (server, samples) in servers.iter().zip(&mut samples) {
                let reviewed = once(server, hook, clients, scale).await?;
                figures.disturbed(&reviewed.spent);
                samples.push(reviewed);
            }
        }
        add(&mut figures, programs, hook, clients, samples);
    }
    for (server, program) in servers.iter().zip(programs) {
        let rss = server.process().memory()?.rss as f64 / 1e6;
        figures.add(Figure::cost(format!("{}: resident after that", program.name()), rss, "MB"));
    }
    Ok(figures)
}

async fn once(server: &WebhookServer, hook: Hook, clients: Clients, scale: &Scale) -> Result<Reviewed, InvalidRun> {
    match clients {
        Clients::Kept(connections) => load::closed(server, hook, connections, scale.closed).await,
        Clients::New => load::reconnecting(server, hook, scale.closed).await,
    }
}

fn add(figures: &mut Figures, programs: &[Program], hook: Hook, clients: Clients, samples: Vec<Vec<Reviewed>>) {
    let how = match clients {
        Clients::Kept(1) => "1 connection".to_owned(),
        Clients::Kept(connections) => format!("{connections} connections"),
        Clients::New => "new connections".to_owned(),
    };
    let what = format!("{}, {how}", hook.name());
    let cpu = |samples: &[Reviewed]| samples.iter().map(Reviewed::cpu).collect::<Vec<f64>>();
    let costs: Vec<Vec<f64>> = samples.iter().map(|samples| cpu(samples)).collect();
    for ((program, samples), costs) in programs.iter().zip(samples).zip(&costs) {
        let rate = median(&samples.iter().map(Reviewed::rate).collect::<Vec<f64>>());
        let mut latencies = Latencies::default();
        samples.into_iter().for_each(|reviewed| latencies.extend(reviewed.latencies));
        let figure = Figure::cost(format!("{}: CPU, {what}", program.name()), median(costs), "µs");
        let figure = figure.with_note(format!("{rate:.0}/s; {}", latencies.summary()));
        let has_aim = program.is_ours() && matches!(clients, Clients::Kept(_));
        figures.add(if has_aim { figure.with_aim(AIM) } else { figure });
    }
    let Some((ours, others)) = costs.split_first() else { return };
    for (program, theirs) in programs.iter().skip(1).zip(others) {
        let relation = ratio(theirs, ours);
        let figure = Figure::rate(format!("{} to konverge: CPU, {what}", program.name()), relation.middle, "x");
        let figure = figure.with_note(format!("{:.2}–{:.2}", relation.low, relation.high));
        figures.add(match program {
            Program::Go(_) => figure.with_aim(GO_AIM),
            Program::Own(_) => figure.with_aim(BARE_AIM),
        });
    }
}
