//! Certificates that are replaced under load: our server only. Some connections stay open all the time, others are new for each
//! review and see the newest certificate. Any failure makes the run invalid. Out: how many reviews went well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::launch::{Launcher, Program, WebhookServer};
use super::load::{self, once};
use super::review::{Hook, Reviews};
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::meter::Meter;
use crate::report::{Figure, Figures};

/// Connections that stay open from the first certificate to the last.
const KEPT: usize = 8;

/// How long a new certificate may stay unknown. The server looks twice a second.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the stage.
pub(super) async fn measure(launcher: &Launcher<'_>, rotations: usize) -> Result<Figures, InvalidRun> {
    launcher.certificates.replace(0)?;
    let server = launcher.start(&Program::KONVERGE).await?;
    let (stop, connections) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let meter = Meter::start_exact(server.process())?;
    let mut tasks = Vec::new();
    for number in 0..KEPT {
        let hook = if number % 2 == 0 { Hook::Validate } else { Hook::Mutate };
        tasks.push(tokio::spawn(keep_sending(server.endpoint.connect().await?, hook, stop.clone())));
    }
    tasks.push(tokio::spawn(reconnect(server.endpoint.clone(), stop.clone(), connections.clone())));
    let mut known_after = Latencies::default();
    for version in 1..=rotations {
        let begun = Instant::now();
        launcher.certificates.replace(version)?;
        serves(&server, &launcher.certificates.certificate(version)?).await?;
        known_after.record(begun.elapsed());
    }
    stop.store(true, Relaxed);
    let latencies = load::joined(tasks).await?;
    let spent = meter.stop()?;
    expect("versions that were served", known_after.len(), rotations)?;
    let mut figures = Figures::default();
    figures.disturbed(&spent);
    let (count, connections) = (latencies.len(), connections.load(Relaxed));
    figures.add(
        Figure::rate(format!("reviews in {rotations} rotations, none failed"), count as f64, "")
            .with_note(format!("{connections} new connections, and {KEPT} that stayed open")),
    );
    figures.add(Figure::cost("p99 of a review meanwhile", latencies.millis(0.99), "ms").with_note(latencies.summary()));
    figures.add(Figure::cost("from new files to a new certificate, longest", known_after.millis(1.0) / 1e3, "s"));
    launcher.certificates.replace(0)?;
    Ok(figures)
}

/// Sends reviews over one connection, which the server must never close.
async fn keep_sending(
    mut connection: crate::http::Connection,
    hook: Hook,
    stop: Arc<AtomicBool>,
) -> Result<Latencies, InvalidRun> {
    let (mut reviews, mut latencies) = (Reviews::of(hook), Latencies::default());
    while !stop.load(Relaxed) {
        let sent = Instant::now();
        once(&mut connection, &mut reviews, latencies.len() as u64).await?;
        latencies.record(sent.elapsed());
    }
    Ok(latencies)
}

/// Sends each review over a new connection, which trusts all versions.
async fn reconnect(
    endpoint: crate::http::Endpoint,
    stop: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
) -> Result<Latencies, InvalidRun> {
    let (mut reviews, mut latencies) = (Reviews::of(Hook::Validate), Latencies::default());
    while !stop.load(Relaxed) {
        let sent = Instant::now();
        let mut connection = endpoint.connect().await.map_err(|invalid| invalid.during("a new connection"))?;
        once(&mut connection, &mut reviews, latencies.len() as u64).await?;
        latencies.record(sent.elapsed());
        connections.fetch_add(1, Relaxed);
    }
    Ok(latencies)
}

/// Waits until new connections see this certificate.
async fn serves(server: &WebhookServer, certificate: &[u8]) -> Result<(), InvalidRun> {
    let begun = Instant::now();
    while server.endpoint.connect_and_see().await?.1 != certificate {
        if begun.elapsed() > TIMEOUT {
            return Err(InvalidRun::new(format!("a new certificate is not served after {TIMEOUT:?}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
