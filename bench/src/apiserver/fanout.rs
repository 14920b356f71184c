//! One client that patches, and a hundred that watch. Updates are sent at a fixed rate whatever the server does, and the latency
//! of a delivery counts from the time at which its update was due, so that delays of the server are not hidden. Out: CPU per
//! delivery, latencies, and the same with a watcher that never reads. Every watcher has to see every update once, in order.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::load::{self, Listed, Until};
use crate::baseline;
use crate::child::{Server, ServerProgram, Storage, Transport};
use crate::http::{self, Connection};
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::report::{Figure, Figures};
use crate::widget::{self, WIDGETS};

/// The number of watchers.
pub(super) const WATCHERS: usize = 100;
/// The rate of updates.
pub(super) const UPDATES_PER_SECOND: u32 = 300;

/// The number of widgets that are updated in turn.
const WIDGETS_UPDATED: usize = 1000;
/// The number of updates without watchers, to know the cost of an update itself.
const PATCHES_ALONE: usize = 3000;
/// How long deliveries may take before the run is invalid.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The measurements of one round.
struct Round {
    latencies: Latencies,
    spent: Spent,
    /// The growth of resident memory in bytes.
    growth: i64,
}

/// Runs rounds of updates, alternately without and with a stalled watcher.
pub(super) async fn measure(program: &ServerProgram, rounds: usize, updates: usize) -> Result<Figures, InvalidRun> {
    let mut figures = Figures::default();
    over_tls(program, rounds, updates, &mut figures).await?;
    let server = program.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    load::create(&server, 16, 0, Until::Number(WIDGETS_UPDATED)).await?;
    let mut sequence = 1;
    let alone = patch(&server, &mut sequence, PATCHES_ALONE, None).await?;
    figures.disturbed(&alone);
    let note = format!("client {:.0} µs; one client, no watcher", alone.client_each(PATCHES_ALONE));
    figures.add(Figure::cost("CPU for each patch", alone.server_each(PATCHES_ALONE), "µs").with_note(note));

    let (mut calm, mut stalled) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        calm.push(round(&server, &mut sequence, updates, false).await?);
        stalled.push(round(&server, &mut sequence, updates, true).await?);
    }
    let (calm, stalled) = (sum(calm), sum(stalled));
    let deliveries = updates * rounds * WATCHERS;
    for (outcome, name) in [(&calm, "all reading"), (&stalled, "one stalled")] {
        figures.disturbed(&outcome.spent);
        expect("deliveries", outcome.latencies.len(), deliveries)?;
        let cpu = outcome.spent.server_each(deliveries);
        let note = format!("client {:.1} µs; {deliveries} deliveries", outcome.spent.client_each(deliveries));
        let what = format!("CPU for each delivery, {name}");
        figures
            .add(Figure::cost(what, cpu, "µs").with_aim(6.0).with_baseline(baseline::DELIVERY_CPU_US).with_note(note));
        for (share, percent, baseline) in [(0.5, 50, baseline::DELIVERY_P50_MS), (0.99, 99, baseline::DELIVERY_P99_MS)]
        {
            let what = format!("due to delivered p{percent}, {name}");
            let figure = Figure::cost(what, outcome.latencies.millis(share), "ms").with_baseline(baseline);
            figures.add(if percent == 99 { figure.with_aim(10.0) } else { figure });
        }
        let what = format!("resident memory grew, {name}");
        figures.add(Figure::cost(what, outcome.growth as f64 / 1e6, "MB").with_note("history of the updates included"));
    }
    let ratio = stalled.latencies.millis(0.99) / calm.latencies.millis(0.99);
    figures.add(Figure::cost("p99 of others, stalled to calm", ratio, "x").with_aim(1.1));
    Ok(figures)
}

/// The same over TLS, without a stalled watcher.
async fn over_tls(
    program: &ServerProgram,
    rounds: usize,
    updates: usize,
    figures: &mut Figures,
) -> Result<(), InvalidRun> {
    let server = program.start_with_widgets(Storage::Memory, Transport::Tls).await?;
    load::create(&server, 16, 0, Until::Number(WIDGETS_UPDATED)).await?;
    let mut sequence = 1;
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push(round(&server, &mut sequence, updates, false).await?);
    }
    let outcome = sum(all);
    let deliveries = updates * rounds * WATCHERS;
    figures.disturbed(&outcome.spent);
    expect("deliveries over TLS", outcome.latencies.len(), deliveries)?;
    let note = format!("client {:.1} µs", outcome.spent.client_each(deliveries));
    let cpu = Figure::cost("CPU for each delivery over TLS", outcome.spent.server_each(deliveries), "µs");
    figures.add(cpu.with_aim(8.0).with_baseline(baseline::DELIVERY_CPU_US).with_note(note));
    let p99 = Figure::cost("due to delivered p99 over TLS", outcome.latencies.millis(0.99), "ms");
    figures.add(p99.with_aim(10.0).with_baseline(baseline::DELIVERY_P99_MS));
    Ok(())
}

fn sum(rounds: Vec<Round>) -> Round {
    let none = Round { latencies: Latencies::default(), spent: Spent::default(), growth: 0 };
    rounds.into_iter().fold(none, |mut sum, round| {
        sum.latencies.extend(round.latencies);
        Round { latencies: sum.latencies, spent: sum.spent.and(&round.spent), growth: sum.growth + round.growth }
    })
}

async fn round(server: &Server, sequence: &mut usize, updates: usize, stall: bool) -> Result<Round, InvalidRun> {
    let newest = server.endpoint.once(&http::get(&format!("{WIDGETS}?limit=1")), 200).await?;
    let version = Listed::parse(&newest)?.metadata.resource_version;
    let watch = http::get(&format!("{WIDGETS}?watch=1&resourceVersion={version}"));
    let begun: Arc<OnceLock<Instant>> = Arc::default();
    let mut watchers = Vec::with_capacity(WATCHERS);
    for _ in 0..WATCHERS {
        let mut connection = server.endpoint.connect().await?;
        expect("status of a watch", connection.open(&watch).await?, 200)?;
        let reading = read(connection, *sequence, updates, begun.clone());
        watchers.push(tokio::spawn(tokio::time::timeout(TIMEOUT, reading)));
    }
    let stalled = if stall { Some(server.endpoint.stall(&watch).await?) } else { None };
    let before = server.process().memory()?.rss;
    let meter = Meter::start(server.process())?;
    patch(server, sequence, updates, Some(&begun)).await?;
    let mut latencies = Latencies::default();
    for watcher in watchers {
        let outcome = watcher.await.map_err(|error| InvalidRun::new(error.to_string()))?;
        latencies.extend(outcome.map_err(|_| InvalidRun::new("a watcher did not get all updates in time"))??);
    }
    let spent = meter.stop()?;
    let growth = server.process().memory()?.rss as i64 - before as i64;
    drop(stalled);
    Ok(Round { latencies, spent, growth })
}

/// Sends updates: at the fixed rate if `begun` is given, which it sets to the time of the first, and else one after the other.
async fn patch(
    server: &Server,
    sequence: &mut usize,
    updates: usize,
    begun: Option<&OnceLock<Instant>>,
) -> Result<Spent, InvalidRun> {
    let mut connection = server.endpoint.connect().await?;
    let meter = Meter::start(server.process())?;
    let start = begun.map(|begun| *begun.get_or_init(Instant::now));
    for at in 0..updates {
        if let Some(start) = start {
            tokio::time::sleep_until((start + due(at)).into()).await;
        }
        let path = widget::path(*sequence % WIDGETS_UPDATED);
        let request = http::request("PATCH", &path, "application/merge-patch+json", &widget::renumber(*sequence));
        connection.call(&request, 200).await?;
        *sequence += 1;
    }
    meter.stop()
}

/// The time from the first update until this one is due.
fn due(at: usize) -> Duration {
    Duration::from_secs(1) * at as u32 / UPDATES_PER_SECOND
}

/// Reads a watch until all updates have come, and records their latencies.
async fn read(
    mut connection: Connection,
    first: usize,
    updates: usize,
    begun: Arc<OnceLock<Instant>>,
) -> Result<Latencies, InvalidRun> {
    let mut latencies = Latencies::with_capacity(updates);
    let mut bytes = Vec::new();
    while latencies.len() < updates {
        if !connection.more(&mut bytes).await? {
            return Err(InvalidRun::new("a watch ended"));
        }
        let arrived = Instant::now();
        let mut used = 0;
        while let Some(end) = bytes[used..].iter().position(|byte| *byte == b'\n') {
            let line = &bytes[used..used + end];
            used += end + 1;
            let at = latencies.len();
            let seen = widget::sequence(line).filter(|_| line.starts_with(b"{\"type\":\"MODIFIED\""));
            expect("update that a watcher saw", seen, Some(first + at))?;
            let begun = begun.get().ok_or_else(|| InvalidRun::new("an update came before it was sent"))?;
            latencies.record(arrived.saturating_duration_since(*begun + due(at)));
        }
        bytes.drain(..used);
    }
    Ok(latencies)
}
