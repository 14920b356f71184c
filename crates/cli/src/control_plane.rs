//! The control plane beside an API server: what kube-controller-manager, scheduler and kubelets are to a cluster. In: flags and
//! a client. Out: controllers that run until they are told to stop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use konverge::Metrics;
use konverge::kube::Client;
use konverge_apiserver::AdmissionPlugins;
use konverge_controllers::{ControlPlane, Health, Options, SimulationSettings, UnknownController};
use konverge_serve::Certificates;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::own_authority::OwnAuthority;

/// How pods are simulated.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct SimulationArgs {
    /// How many nodes are simulated
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub nodes: usize,
    /// How long a simulated pod takes to start, as 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    pub pod_start_delay: Duration,
    /// How long it then takes to become ready
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    pub pod_ready_delay: Duration,
    /// How long it takes to end when it is deleted
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    pub pod_stop_delay: Duration,
}

impl SimulationArgs {
    /// One node, and pods that start, become ready and end at once.
    pub(crate) fn at_once() -> Self {
        let zero = Duration::ZERO;
        Self { nodes: 1, pod_start_delay: zero, pod_ready_delay: zero, pod_stop_delay: zero }
    }

    /// Whether no flag changes how pods are simulated.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::at_once()
    }
}

/// A time of the command line.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text.parse().map_err(|_| format!("{text:?} is no time; write it as 500ms, 2s or 1m"))?;
    Duration::try_from(time).map_err(|_| "a delay cannot be negative".to_owned())
}

/// The options of a control plane whose controllers are named as kube-controller-manager takes them.
pub(crate) fn options(controllers: &[String], simulation: &SimulationArgs) -> Result<Options, UnknownController> {
    let simulation = SimulationSettings {
        nodes: simulation.nodes,
        start_delay: simulation.pod_start_delay,
        ready_delay: simulation.pod_ready_delay,
        stop_delay: simulation.pod_stop_delay,
        ..SimulationSettings::default()
    };
    Ok(Options { off: off(controllers)?, simulation, ..Options::default() })
}

/// The admission plugins that a server with this control plane has by default. The plugin ServiceAccount needs the controller
/// that creates the account of each namespace.
pub(crate) fn admission(control_plane: &Options) -> AdmissionPlugins {
    match control_plane.off.contains("serviceaccount-controller") {
        false => AdmissionPlugins::kubernetes(),
        true => AdmissionPlugins::default(),
    }
}

/// Whether approved CertificateSigningRequests are signed.
pub(crate) fn signs(control_plane: &Options) -> bool {
    !control_plane.off.contains("certificatesigningrequest-signing-controller")
}

/// The controllers that are switched off.
fn off(words: &[String]) -> Result<BTreeSet<String>, UnknownController> {
    let known: Vec<&'static str> = ControlPlane::controllers().collect();
    let all = || known.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let everything = words.iter().any(|word| word == "*") || words.iter().all(|word| word.starts_with('-'));
    let mut off = if everything { BTreeSet::new() } else { all() };
    for word in words.iter().filter(|word| *word != "*" && !word.is_empty()) {
        let name = word.strip_prefix('-').unwrap_or(word);
        if !known.contains(&name) {
            return Err(UnknownController { name: name.to_owned(), known });
        }
        match word.starts_with('-') {
            true => off.insert(name.to_owned()),
            false => off.remove(name),
        };
    }
    Ok(off)
}

/// A running control plane. Dropping it ends the controllers at once; [`RunningControlPlane::stop`] waits for running
/// reconciles to finish.
pub(crate) struct RunningControlPlane {
    stop: watch::Sender<bool>,
    health: Health,
    task: JoinHandle<()>,
}

impl RunningControlPlane {
    /// Starts the controllers. The CA of the certificates is published for pods and signs what is approved; the work of the
    /// controllers is counted in `metrics`.
    pub(crate) fn start(
        options: &Options,
        client: Client,
        metrics: &Metrics,
        certificates: &Certificates,
    ) -> Result<Self, UnknownController> {
        let counted = metrics.clone();
        let options = Options {
            root_ca: certificates.ca_pem().map(str::to_owned),
            signer: certificates.ca_pem().map(|_| Arc::new(OwnAuthority(certificates.clone())) as _),
            meter: Arc::new(move |name| konverge::__private::controller_meter(&counted, name)),
            ..options.clone()
        };
        let control_plane = ControlPlane::new(client, options)?;
        let (stop, mut stopped) = watch::channel(false);
        let health = control_plane.health();
        let task = tokio::spawn(control_plane.run_until(async move { drop(stopped.wait_for(|stop| *stop).await) }));
        Ok(Self { stop, health, task })
    }

    /// The health of the controllers.
    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Stops the controllers and waits for running reconciles to finish.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the control plane ended with an error");
        }
    }
}

impl Drop for RunningControlPlane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_kube_controller_manager_takes_them() {
        let all = ControlPlane::controllers().count();
        for (text, expect) in [
            ("*", Ok(0)),
            ("", Ok(all)),
            ("*,-deployment-controller", Ok(1)),
            ("-deployment-controller,-replicaset-controller", Ok(2)),
            ("deployment-controller", Ok(all - 1)),
            ("*,nonsense", Err("nonsense")),
            ("-nonsense", Err("nonsense")),
        ] {
            let words: Vec<String> = text.split(',').map(str::to_owned).collect();
            let got = off(&words).map(|off| off.len()).map_err(|error| error.name);
            assert_eq!(got, expect.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn times() {
        for (text, expect) in [
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("2s", Some(2000)),
            ("1m", Some(60_000)),
            ("soon", None),
            ("-1s", None),
        ] {
            assert_eq!(time(text).ok().map(|time| time.as_millis()), expect, "{text}");
        }
    }
}
