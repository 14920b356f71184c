//! One patcher, a hundred watchers. Updates are sent at a fixed pace whatever the server does, and a delivery is timed from
//! when its update was due, so that a slow server cannot hide. Out: CPU for each delivery, latencies, and the same with a
//! watcher that never reads. Every watcher has to see every update once, in order.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::load::{self, Listed, Until};
use crate::anchor;
use crate::child::{Server, Storage, Subject, Transport};
use crate::http::{self, Connection};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::report::{Figure, Figures};
use crate::void::{Void, expect};
use crate::widget::{self, WIDGETS};

/// Those who watch.
pub const WATCHERS: usize = 100;
/// The pace of updates.
pub const UPDATES_PER_SECOND: u32 = 300;

/// The widgets that are updated in turn.
const WIDGETS_UPDATED: usize = 1000;
/// Updates without watchers, to know their share.
const PATCHES_ALONE: usize = 3000;
/// How long deliveries may take before the run is void.
const PATIENCE: Duration = Duration::from_secs(60);

/// One round.
struct Round {
    latencies: Latencies,
    spent: Spent,
    /// Bytes of resident memory more than before.
    growth: i64,
}

/// So many rounds of so many updates, by turns without and with a stalled watcher.
pub async fn measure(subject: &Subject, rounds: usize, updates: usize) -> Result<Figures, Void> {
    let mut figures = Figures::default();
    let server = subject.start_with_widgets(Storage::Memory, Transport::Plain).await?;
    load::create(&server, 16, 0, Until::Number(WIDGETS_UPDATED)).await?;
    let mut sequence = 1;
    let alone = patch(&server, &mut sequence, PATCHES_ALONE, None).await?;
    figures.disturbed(&alone);
    let note = format!("client {:.0} µs; one client, no watcher", alone.client_each(PATCHES_ALONE));
    figures.add(Figure::cost("CPU for each patch", alone.server_each(PATCHES_ALONE), "µs").noting(note));

    let (mut calm, mut stalled) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        calm.push(round(&server, &mut sequence, updates, false).await?);
        stalled.push(round(&server, &mut sequence, updates, true).await?);
    }
    let (calm, stalled) = (all(calm), all(stalled));
    let deliveries = updates * rounds * WATCHERS;
    for (outcome, name) in [(&calm, "all reading"), (&stalled, "one stalled")] {
        figures.disturbed(&outcome.spent);
        expect("deliveries", outcome.latencies.len(), deliveries)?;
        let cpu = outcome.spent.server_each(deliveries);
        let note = format!("client {:.1} µs; {deliveries} deliveries", outcome.spent.client_each(deliveries));
        let what = format!("CPU for each delivery, {name}");
        figures.add(Figure::cost(what, cpu, "µs").aiming(6.0).anchored(anchor::DELIVERY_CPU_US).noting(note));
        for (share, percent, anchor) in [(0.5, 50, anchor::DELIVERY_P50_MS), (0.99, 99, anchor::DELIVERY_P99_MS)] {
            let what = format!("due to delivered p{percent}, {name}");
            let figure = Figure::cost(what, outcome.latencies.millis(share), "ms").anchored(anchor);
            figures.add(if percent == 99 { figure.aiming(10.0) } else { figure });
        }
        let what = format!("resident memory grew, {name}");
        figures.add(Figure::cost(what, outcome.growth as f64 / 1e6, "MB").noting("history of the updates included"));
    }
    let ratio = stalled.latencies.millis(0.99) / calm.latencies.millis(0.99);
    figures.add(Figure::cost("p99 of others, stalled to calm", ratio, "x").aiming(1.1));
    Ok(figures)
}

fn all(rounds: Vec<Round>) -> Round {
    let none = Round { latencies: Latencies::default(), spent: Spent::default(), growth: 0 };
    rounds.into_iter().fold(none, |mut sum, round| {
        sum.latencies.extend(round.latencies);
        Round { latencies: sum.latencies, spent: sum.spent.and(&round.spent), growth: sum.growth + round.growth }
    })
}

async fn round(server: &Server, sequence: &mut usize, updates: usize, stall: bool) -> Result<Round, Void> {
    let newest = server.endpoint.once(&http::get(&format!("{WIDGETS}?limit=1")), 200).await?;
    let version = Listed::parse(&newest)?.metadata.resource_version;
    let watch = http::get(&format!("{WIDGETS}?watch=1&resourceVersion={version}"));
    let begun: Arc<OnceLock<Instant>> = Arc::default();
    let mut watchers = Vec::with_capacity(WATCHERS);
    for _ in 0..WATCHERS {
        let mut connection = server.endpoint.connect().await?;
        expect("status of a watch", connection.open(&watch).await?, 200)?;
        let reading = read(connection, *sequence, updates, begun.clone());
        watchers.push(tokio::spawn(tokio::time::timeout(PATIENCE, reading)));
    }
    let stalled = if stall { Some(server.endpoint.stall(&watch).await?) } else { None };
    let before = server.process().memory()?.rss;
    let meter = Meter::start(server.process())?;
    patch(server, sequence, updates, Some(&begun)).await?;
    let mut latencies = Latencies::default();
    for watcher in watchers {
        let outcome = watcher.await.map_err(|error| Void::new(error.to_string()))?;
        latencies.extend(outcome.map_err(|_| Void::new("a watcher waits in vain for updates"))??);
    }
    let spent = meter.stop()?;
    let growth = server.process().memory()?.rss as i64 - before as i64;
    drop(stalled);
    Ok(Round { latencies, spent, growth })
}

/// Sends updates, at the pace if `begun` is to say when they began, else one after the other.
async fn patch(
    server: &Server,
    sequence: &mut usize,
    updates: usize,
    begun: Option<&OnceLock<Instant>>,
) -> Result<Spent, Void> {
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

/// When an update is due, after the first.
fn due(at: usize) -> Duration {
    Duration::from_secs(1) * at as u32 / UPDATES_PER_SECOND
}

/// Reads a watch until it has shown all updates, and times each.
async fn read(
    mut connection: Connection,
    first: usize,
    updates: usize,
    begun: Arc<OnceLock<Instant>>,
) -> Result<Latencies, Void> {
    let mut latencies = Latencies::with_capacity(updates);
    let mut bytes = Vec::new();
    while latencies.len() < updates {
        if !connection.more(&mut bytes).await? {
            return Err(Void::new("a watch ended"));
        }
        let arrived = Instant::now();
        let mut used = 0;
        while let Some(end) = bytes[used..].iter().position(|byte| *byte == b'\n') {
            let line = &bytes[used..used + end];
            used += end + 1;
            let at = latencies.len();
            let seen = widget::sequence(line).filter(|_| line.starts_with(b"{\"type\":\"MODIFIED\""));
            expect("update that a watcher saw", seen, Some(first + at))?;
            let begun = begun.get().ok_or_else(|| Void::new("an update came before it was sent"))?;
            latencies.record(arrived.saturating_duration_since(*begun + due(at)));
        }
        bytes.drain(..used);
    }
    Ok(latencies)
}
