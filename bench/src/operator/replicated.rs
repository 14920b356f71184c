//! Replicated state (B8). In: three members in this process, in memory and on disk. Out: writes a second that a majority has acknowledged, of
//! one writer and of sixteen.

use std::time::{Duration, Instant};

use konverge::{RaftNodeManager, Replicated};

use super::Scale;
use super::failover::{REPLICAS, free_ports};
use super::lead::member;
use crate::invalid_run::InvalidRun;
use crate::report::{Figure, Figures};

/// How long the members may take to elect their first leader.
const LEADS_WITHIN: Duration = Duration::from_secs(30);

/// How large a value is.
const VALUE: usize = 256;

/// Runs the stage.
pub(super) fn measure(scale: &Scale) -> Result<Figures, InvalidRun> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Figures::default();
    for on_disk in [false, true] {
        let disk = tempfile::tempdir()?;
        let members = runtime.block_on(start(on_disk.then(|| disk.path())))?;
        let leader = leader(&members)?;
        for writers in [1, 16] {
            let rate = runtime.block_on(writes(&leader, writers, scale.replicating))?;
            let place = if on_disk { "synced to disk" } else { "in memory" };
            let what = format!("puts of {VALUE} bytes, {place}, {writers} at a time");
            figures.add(Figure::rate(what, rate, "writes/s"));
        }
        runtime.block_on(async {
            for member in members {
                member.shutdown().await;
            }
        });
    }
    Ok(figures)
}

async fn start(disk: Option<&std::path::Path>) -> Result<Vec<RaftNodeManager>, InvalidRun> {
    let ports = free_ports()?;
    let mut members = Vec::new();
    for ordinal in 0..REPLICAS {
        let config = member(ordinal, &ports, disk.map(|disk| disk.join(ordinal.to_string())));
        members.push(RaftNodeManager::new(config).await.map_err(|error| InvalidRun::new(error.to_string()))?);
    }
    Ok(members)
}

/// Waits until a member leads and all of them vote.
fn leader(members: &[RaftNodeManager]) -> Result<Replicated, InvalidRun> {
    let begun = Instant::now();
    while begun.elapsed() < LEADS_WITHIN {
        let leads = members.iter().find(|member| member.leadership().term().is_some());
        if let Some(leader) = leads.filter(|leader| leader.status().voters.len() == members.len()) {
            return Ok(leader.replicated());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(InvalidRun::new("no member leads"))
}

async fn writes(state: &Replicated, writers: usize, time: Duration) -> Result<f64, InvalidRun> {
    let begun = Instant::now();
    let writer = |number: usize| {
        let state = state.clone();
        async move {
            let (key, mut count) = (format!("bench/{number}"), 0_usize);
            while begun.elapsed() < time {
                state.put(&key, vec![b'x'; VALUE]).await.map_err(|error| InvalidRun::new(error.to_string()))?;
                count += 1;
            }
            Ok::<_, InvalidRun>(count)
        }
    };
    let counts = futures_util::future::try_join_all((0..writers).map(|number| tokio::spawn(writer(number)))).await;
    let counts = counts.map_err(|error| InvalidRun::new(error.to_string()))?;
    let count = counts.into_iter().sum::<Result<usize, _>>()?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
