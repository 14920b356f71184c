//! A replica that takes part in an election. In: how the leader is elected. Out: a line when its cache is full and it votes, and a line at the end of the
//! first reconcile of each of its terms, in which it has written a status. It ends at SIGTERM as every operator does.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use konverge::prelude::*;
use konverge::{Health, LoggingSettings, RaftConfig, Term, start_logging};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::controllers::settings;
use super::job::{Election, Line, TaskResult};
use super::kinds::{Widget, WidgetStatus};
use super::subject::print_line;
use crate::invalid_run::InvalidRun;

/// How often a replica looks whether it is ready.
const LOOK: Duration = Duration::from_millis(1);

/// Runs the operator until SIGTERM.
pub(super) async fn lead(election: Election, client: Client) -> Result<TaskResult, InvalidRun> {
    // RUST_LOG shows more.
    let _logging = start_logging(&LoggingSettings { level: "error".into(), ..LoggingSettings::default() });
    let health = Health::new();
    let last = Arc::new(AtomicU64::new(0));
    let mut settings = settings();
    settings.leader_election.enabled = matches!(election, Election::Lease);
    let mut operator = Operator::<Widget>::new().settings(settings).client(client).health(health.clone()).reconcile(
        move |ctx: Context<Widget>| {
            let last = last.clone();
            async move {
                let term = Term::of_this_task().map(|term| term.number).unwrap_or_default();
                // The first term of a Lease is 0.
                if last.fetch_max(term + 1, Relaxed) <= term {
                    ctx.set_status(WidgetStatus { ready: true, observed_generation: Some(term as i64) }).await?;
                    print_line(&Line::Led(term)).map_err(Error::permanent)?;
                }
                Ok(Action::await_change())
            }
        },
    );
    if let Election::Raft { ordinal, ports, directory } = election {
        operator = operator.with_leader_election(member(ordinal, &ports, directory));
    }
    let mut asked = signal(SignalKind::terminate())?;
    let run = operator.run_until(async move {
        asked.recv().await;
    });
    let ready = async {
        // There are no checks before it has begun to fill its cache, which takes much longer than a look.
        for is_ready in [true, false] {
            while health.is_ready() == is_ready {
                tokio::time::sleep(LOOK).await;
            }
        }
        print_line(&Line::Ready)
    };
    let (ended, told) = tokio::join!(run, ready);
    told?;
    ended.map_err(|error| InvalidRun::new(error.to_string()))?;
    Ok(TaskResult::Lead)
}

/// A member on this machine.
pub(super) fn member(ordinal: u64, ports: &[u16], directory: Option<std::path::PathBuf>) -> RaftConfig {
    let peers = ports.iter().enumerate().map(|(ordinal, port)| (ordinal as u64, format!("127.0.0.1:{port}")));
    let mut config = RaftConfig::new("bench").node_id(ordinal).bind_address(Ipv4Addr::LOCALHOST.into()).peers(peers);
    if let Some(port) = ports.get(ordinal as usize) {
        config = config.port(*port);
    }
    match directory {
        Some(directory) => config.data_dir(directory),
        None => config,
    }
}
