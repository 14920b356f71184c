//! Sends reviews. In: a server, a webhook, and how: by connections that are kept alive, by new ones, or at a rate. Out: the cost
//! and the latency of each review. Every answer is checked; a wrong one makes the run invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::launch::WebhookServer;
use super::review::{Hook, Reviews};
use crate::http::Connection;
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::widget::Random;

/// The result of many reviews.
pub(super) struct Reviewed {
    /// The latency of each.
    pub latencies: Latencies,
    /// Their cost.
    pub spent: Spent,
}

impl Reviewed {
    /// Microseconds of the server's CPU for each review.
    pub(super) fn cpu(&self) -> f64 {
        self.spent.server_each(self.latencies.len())
    }

    /// Reviews per second.
    pub(super) fn rate(&self) -> f64 {
        self.spent.rate(self.latencies.len())
    }
}

/// Sends reviews for `time`, each connection the next one as soon as it has its answer.
pub(super) async fn closed(
    server: &WebhookServer,
    hook: Hook,
    connections: usize,
    time: Duration,
) -> Result<Reviewed, InvalidRun> {
    let numbers = Arc::<AtomicU64>::default();
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push((server.endpoint.connect().await?, Reviews::of(hook), numbers.clone()));
    }
    let meter = Meter::start_exact(server.process())?;
    let begun = Instant::now();
    let tasks = clients.into_iter().map(|(mut connection, mut reviews, numbers)| {
        tokio::spawn(async move {
            let mut latencies = Latencies::default();
            while begun.elapsed() < time {
                let sent = Instant::now();
                once(&mut connection, &mut reviews, numbers.fetch_add(1, Relaxed)).await?;
                latencies.record(sent.elapsed());
            }
            Ok(latencies)
        })
    });
    let latencies = joined(tasks.collect()).await?;
    let spent = meter.stop()?;
    expect("reviews that were answered", latencies.len() as u64, numbers.load(Relaxed))?;
    Ok(Reviewed { latencies, spent })
}

/// Sends reviews for `time`, one after the other, each over a new connection.
pub(super) async fn reconnecting(server: &WebhookServer, hook: Hook, time: Duration) -> Result<Reviewed, InvalidRun> {
    let mut reviews = Reviews::of(hook);
    let mut latencies = Latencies::default();
    let meter = Meter::start_exact(server.process())?;
    let begun = Instant::now();
    while begun.elapsed() < time {
        let sent = Instant::now();
        let mut connection = server.endpoint.connect().await?;
        once(&mut connection, &mut reviews, latencies.len() as u64).await?;
        latencies.record(sent.elapsed());
    }
    Ok(Reviewed { latencies, spent: meter.stop()? })
}

/// Sends `count` reviews at random times with this mean rate, whether or not earlier ones were answered. They go to the webhooks
/// in turn. A latency begins when the review was due, so it has the time that the review waited for a connection.
pub(super) async fn open(
    server: &WebhookServer,
    hooks: &'static [Hook],
    connections: usize,
    rate: usize,
    count: usize,
) -> Result<Reviewed, InvalidRun> {
    let mut random = Random::new(rate as u64);
    let mut due = Duration::ZERO;
    let arrivals = (0..count).map(|_| {
        due += Duration::from_secs_f64(-random.fraction().ln() / rate as f64);
        due
    });
    let arrivals: Arc<[Duration]> = arrivals.collect();
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        let reviews: Vec<Reviews> = hooks.iter().map(|hook| Reviews::of(*hook)).collect();
        clients.push((server.endpoint.connect().await?, reviews));
    }
    let next = Arc::new(Mutex::new(0));
    let meter = Meter::start_exact(server.process())?;
    let begun = Instant::now();
    let tasks = clients.into_iter().map(|(mut connection, mut reviews)| {
        let (next, arrivals) = (next.clone(), arrivals.clone());
        tokio::spawn(async move {
            let mut latencies = Latencies::default();
            while let Some((number, due)) = arrival(&next, &arrivals, begun).await {
                let at = number % reviews.len();
                once(&mut connection, &mut reviews[at], number as u64).await?;
                latencies.record(begun.elapsed().saturating_sub(due));
            }
            Ok(latencies)
        })
    });
    let latencies = joined(tasks.collect()).await?;
    let spent = meter.stop()?;
    expect("reviews that were answered", latencies.len(), count)?;
    Ok(Reviewed { latencies, spent })
}

/// Waits until the next review is due. The wait never sleeps, because a sleep is only precise to a millisecond; answers that
/// come meanwhile are read.
async fn arrival(next: &Mutex<usize>, arrivals: &[Duration], begun: Instant) -> Option<(usize, Duration)> {
    let mut next = next.lock().await;
    let number = *next;
    let due = *arrivals.get(number)?;
    *next += 1;
    while begun.elapsed() < due {
        tokio::task::yield_now().await;
    }
    Some((number, due))
}

/// Sends one review and checks its answer.
pub(super) async fn once(connection: &mut Connection, reviews: &mut Reviews, number: u64) -> Result<(), InvalidRun> {
    let answer = connection.call(reviews.request(number), 200).await?;
    reviews.check(&answer)
}

/// The latencies of all tasks.
pub(super) async fn joined(
    tasks: Vec<tokio::task::JoinHandle<Result<Latencies, InvalidRun>>>,
) -> Result<Latencies, InvalidRun> {
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.extend(task.await.map_err(|error| InvalidRun::new(error.to_string()))??);
    }
    Ok(latencies)
}
