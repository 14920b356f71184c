//! Creates widgets with several clients. In: a server and when to stop. Out: the number of widgets, and the latency of each
//! create. Any response other than 201 makes the run invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::child::Server;
use crate::http;
use crate::invalid_run::{InvalidRun, expect};
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::widget::{self, WIDGETS};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// When widgets up to this number exist.
    Number(usize),
    /// When this time has passed.
    Elapsed(Duration),
}

/// The result of creates.
pub(super) struct Created {
    /// The number of widgets.
    pub count: usize,
    /// The latency of each create.
    pub latencies: Latencies,
    /// Their cost.
    pub spent: Spent,
}

/// Creates widgets, beginning with number `first`.
pub(super) async fn create(server: &Server, clients: usize, first: usize, until: Until) -> Result<Created, InvalidRun> {
    let request = |number| http::request("POST", WIDGETS, "application/json", &widget::widget(number));
    create_with(server, clients, first, until, request).await
}

/// Sends creates that `request` makes, beginning with number `first`.
pub(super) async fn create_with(
    server: &Server,
    clients: usize,
    first: usize,
    until: Until,
    request: impl Fn(usize) -> Vec<u8> + Copy + Send + 'static,
) -> Result<Created, InvalidRun> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(server.endpoint.connect().await?);
    }
    let next = Arc::new(AtomicUsize::new(first));
    let meter = Meter::start_exact(server.process())?;
    let begun = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let next = next.clone();
            tokio::spawn(async move {
                let mut latencies = Latencies::default();
                loop {
                    let is_done = match until {
                        Until::Number(last) => next.load(Relaxed) >= last,
                        Until::Elapsed(time) => begun.elapsed() >= time,
                    };
                    if is_done {
                        return Ok::<_, InvalidRun>(latencies);
                    }
                    let request = request(next.fetch_add(1, Relaxed));
                    let sent = Instant::now();
                    connection.call(&request, 201).await?;
                    latencies.record(sent.elapsed());
                }
            })
        })
        .collect();
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.extend(task.await.map_err(|error| InvalidRun::new(error.to_string()))??);
    }
    let spent = meter.stop()?;
    let count = next.load(Relaxed) - first;
    expect("creates that were acknowledged", latencies.len(), count)?;
    Ok(Created { count, latencies, spent })
}

/// Fails unless the server has this number of widgets.
pub(super) async fn check_count(server: &Server, expected: usize) -> Result<(), InvalidRun> {
    let body = server.endpoint.once(&http::get(WIDGETS), 200).await?;
    expect("widgets in the list", Listed::parse(&body)?.items.len(), expected)
}

/// The parts of a list that checks need.
#[derive(Deserialize)]
pub(super) struct Listed {
    /// The metadata of the list.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<IgnoredAny>,
}

/// The metadata of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMeta {
    /// The resource version of the list.
    pub resource_version: String,
}

impl Listed {
    /// Reads a list.
    pub(super) fn parse(body: &[u8]) -> Result<Self, InvalidRun> {
        serde_json::from_slice(body).map_err(|error| InvalidRun::new(format!("cannot read the list: {error}")))
    }
}
