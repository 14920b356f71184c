//! The operator's own listeners. In: where to listen, [`Metrics`], [`Health`] and who leads. Out: `/metrics`, `/healthz`,
//! `/readyz` and `/leader`, on one listener if their addresses are the same. They are the first to start and the last to stop, and
//! none outlives its [`Probes`].

use std::net::SocketAddr;
use std::time::Duration;

use konverge_serve::{BindError, BindOptions, Limits, Listener, Server};

use crate::metrics::Metrics;
use crate::settings::{BindAddress, Settings};

mod health;
mod leader_page;
mod pages;

#[cfg(test)]
mod tests;

pub use health::{Health, HealthCheck};
pub(crate) use leader_page::{GroupPage, LeaderPage};

use health::Probe;
use pages::{Content, Page, Pages};

/// Who leads, as JSON.
const LEADER_PATH: &str = "/leader";

/// The running listeners. Dropping this ends them at once; [`Probes::stop`] lets requests finish.
#[derive(Debug)]
pub(crate) struct Probes {
    servers: Vec<Server>,
    /// Which of the servers.
    metrics: Option<usize>,
    health: Option<usize>,
}

impl Probes {
    /// Binds the addresses and begins to answer. Has to be called within a tokio runtime.
    pub(crate) fn start(
        settings: &Settings,
        metrics: &Metrics,
        health: &Health,
        leader: LeaderPage,
    ) -> Result<Probes, ProbesError> {
        let probe = |path: &str, probe| Page { path: path.into(), content: Content::Probe(probe, health.clone()) };
        let mut of_metrics =
            vec![Page { path: settings.metrics.path.clone(), content: Content::Metrics(metrics.clone()) }];
        let mut of_health = vec![
            probe(&settings.health.liveness_path, Probe::Live),
            probe(&settings.health.readiness_path, Probe::Ready),
            Page { path: LEADER_PATH.into(), content: Content::Leader(leader) },
        ];
        let (at_metrics, at_health) = (settings.metrics.listen(), settings.health.listen());
        let shared = at_metrics.is_some() && at_metrics == at_health;
        if shared {
            of_metrics.append(&mut of_health);
        }
        // All addresses are taken before the first request is answered.
        let mut listeners = Vec::new();
        if let Some(address) = at_metrics {
            listeners.push((bind(address, "metrics", "--metrics-bind-address")?, of_metrics));
        }
        if let Some(address) = at_health.filter(|_| !shared) {
            listeners.push((bind(address, "probes", "--health-probe-bind-address")?, of_health));
        }
        let metrics = at_metrics.map(|_| 0);
        let health = at_health.map(|_| listeners.len() - 1);
        let servers = listeners.into_iter().map(|(listener, pages)| listener.serve(Pages::new(pages))).collect();
        Ok(Probes { servers, metrics, health })
    }

    /// Where metrics are served, with the real port.
    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.map(|i| self.servers[i].local_addr())
    }

    /// Where liveness and readiness are answered, with the real port.
    pub(crate) fn health_address(&self) -> Option<SocketAddr> {
        self.health.map(|i| self.servers[i].local_addr())
    }

    /// Stops accepting, lets running requests finish for this long, and cuts off the rest. When it returns, no task is left.
    pub(crate) async fn stop(self, within: Duration) {
        let mut servers = self.servers.into_iter();
        match (servers.next(), servers.next()) {
            (Some(first), Some(second)) => drop(tokio::join!(first.stop(within), second.stop(within))),
            (Some(only), None) => drop(only.stop(within).await),
            _ => {}
        }
    }
}

/// Why a listener could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve {what}; {flag} takes another address, or 0 for none")]
pub(crate) struct ProbesError {
    /// What was to be served.
    pub what: &'static str,
    /// The flag that says where.
    pub flag: &'static str,
    /// What went wrong.
    pub source: BindError,
}

/// For a kubelet, a Prometheus or two, and someone with curl: few connections, and none for long.
fn limits() -> Limits {
    Limits {
        connections: 64,
        header: Duration::from_secs(5),
        header_bytes: 16 << 10,
        header_count: 64,
        streams: 8,
        body_idle: Duration::from_secs(5),
        body_total: Duration::from_secs(5),
        write_stall: Duration::from_secs(10),
        ..Limits::default()
    }
}

fn bind(address: BindAddress, what: &'static str, flag: &'static str) -> Result<Listener, ProbesError> {
    let mut candidates = address.candidates().into_iter().peekable();
    loop {
        let candidate = candidates.next().expect("a listener that is switched off is not bound");
        let (address, port) = (candidate.ip(), candidate.port());
        match Listener::bind(BindOptions { address, port, limits: limits(), ..BindOptions::default() }) {
            Ok(listener) => return Ok(listener),
            // A machine without IPv6 says either.
            Err(BindError::NoSuchAddress { .. } | BindError::Other { .. }) if candidates.peek().is_some() => {}
            Err(source) => return Err(ProbesError { what, flag, source }),
        }
    }
}
