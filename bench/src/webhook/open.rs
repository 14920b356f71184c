//! Reviews that come at a given rate, as from clients that do not wait for each other. Out: latencies from when a review was
//! due, and CPU for each review, of every server.

use super::Scale;
use super::launch::{Launcher, Program};
use super::load;
use super::review::Hook;
use crate::compare::median;
use crate::invalid_run::InvalidRun;
use crate::latency::Latencies;
use crate::report::{Figure, Figures};

/// Reviews a second.
pub(super) const RATE: usize = 1_000;

/// API servers keep some connections to a webhook.
const CONNECTIONS: usize = 16;

/// A create of a Pod asks both.
const HOOKS: &[Hook] = &[Hook::Mutate, Hook::Validate];

/// The aim for the 99th percentile, in ms.
const AIM: f64 = 1.0;

/// Runs the stage.
pub(super) async fn measure(
    launcher: &Launcher<'_>,
    programs: &[Program],
    scale: &Scale,
) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    let servers = launcher.start_all(programs).await?;
    for server in &servers {
        load::open(server, HOOKS, CONNECTIONS, RATE, RATE / 2).await?;
    }
    let count = (RATE as f64 * scale.open.as_secs_f64()) as usize;
    let mut samples: Vec<(Latencies, Vec<f64>)> = servers.iter().map(|_| Default::default()).collect();
    for _ in 0..scale.open_rounds {
        for (server, (latencies, costs)) in servers.iter().zip(&mut samples) {
            let reviewed = load::open(server, HOOKS, CONNECTIONS, RATE, count).await?;
            figures.disturbed(&reviewed.spent);
            costs.push(reviewed.cpu());
            latencies.extend(reviewed.latencies);
        }
    }
    for (program, (latencies, costs)) in programs.iter().zip(samples) {
        let name = program.name();
        for (share, quantile) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")] {
            let figure = Figure::cost(format!("{name}: {quantile}"), latencies.millis(share), "ms");
            let has_aim = quantile == "p99" && program.is_ours();
            figures.add(if has_aim { figure.with_aim(AIM) } else { figure });
        }
        let figure = Figure::cost(format!("{name}: CPU"), median(&costs), "µs");
        figures.add(figure.with_note(format!("{} reviews, every other one mutates", latencies.len())));
    }
    Ok(figures)
}
