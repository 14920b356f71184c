//! Many widgets created by some clients at the same time. In: a server and a plan. Out: how many there are, and how long
//! each took. Every answer that is not "created" voids the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::child::Server;
use crate::http;
use crate::latency::Latencies;
use crate::meter::{Meter, Spent};
use crate::void::{Void, expect};
use crate::widget::{self, WIDGETS};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// When there are widgets up to this number.
    Number(usize),
    /// When so much time has passed.
    Elapsed(Duration),
}

/// What was created.
pub struct Created {
    /// How many.
    pub count: usize,
    /// How long each took.
    pub latencies: Latencies,
    /// What it cost.
    pub spent: Spent,
}

/// Creates widgets from number `first` on.
pub async fn create(server: &Server, clients: usize, first: usize, until: Until) -> Result<Created, Void> {
    let mut connections = Vec::with_capacity(clients);
    for _ in 0..clients {
        connections.push(server.endpoint.connect().await?);
    }
    let next = Arc::new(AtomicUsize::new(first));
    let meter = Meter::start(server.process())?;
    let begun = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let next = next.clone();
            tokio::spawn(async move {
                let mut latencies = Latencies::default();
                loop {
                    let over = match until {
                        Until::Number(last) => next.load(Relaxed) >= last,
                        Until::Elapsed(time) => begun.elapsed() >= time,
                    };
                    if over {
                        return Ok::<_, Void>(latencies);
                    }
                    let body = widget::widget(next.fetch_add(1, Relaxed));
                    let request = http::request("POST", WIDGETS, "application/json", &body);
                    let sent = Instant::now();
                    connection.call(&request, 201).await?;
                    latencies.record(sent.elapsed());
                }
            })
        })
        .collect();
    let mut latencies = Latencies::default();
    for task in tasks {
        latencies.extend(task.await.map_err(|error| Void::new(error.to_string()))??);
    }
    let spent = meter.stop()?;
    let count = next.load(Relaxed) - first;
    expect("creates that were acknowledged", latencies.len(), count)?;
    Ok(Created { count, latencies, spent })
}

/// Voids the run unless the server has so many widgets.
pub async fn check_count(server: &Server, expected: usize) -> Result<(), Void> {
    let body = server.endpoint.once(&http::get(WIDGETS), 200).await?;
    expect("widgets in the list", Listed::parse(&body)?.items.len(), expected)
}

/// As much of a list as checks need.
#[derive(Deserialize)]
pub struct Listed {
    /// Its own metadata.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<IgnoredAny>,
}

/// The metadata of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The version of the whole list.
    pub resource_version: String,
}

impl Listed {
    /// Reads a list.
    pub fn parse(body: &[u8]) -> Result<Self, Void> {
        serde_json::from_slice(body).map_err(|error| Void::new(format!("the list is not readable: {error}")))
    }
}
