//! The control plane of `konverge dev`. In: flags and a client. Out: controllers that run until they are told to stop.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use konverge::kube::Client;
use konverge_controllers::{ControlPlane, Health, Options, SimulationSettings, UnknownController};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Which controllers run, and how pods are simulated.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControlPlaneArgs {
    /// The controllers to run, as kube-controller-manager takes it: `*` for all, NAME for one, -NAME for all but one.
    /// Another program may do the part of those that do not run
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
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

fn time(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text.parse().map_err(|_| format!("{text:?} is no time; write it as 500ms, 2s or 1m"))?;
    Duration::try_from(time).map_err(|_| "a delay cannot be negative".to_owned())
}

impl ControlPlaneArgs {
    /// The options of the control plane.
    pub(crate) fn options(&self) -> Result<Options, UnknownController> {
        let simulation = SimulationSettings {
            nodes: self.nodes,
            start_delay: self.pod_start_delay,
            ready_delay: self.pod_ready_delay,
            stop_delay: self.pod_stop_delay,
            ..SimulationSettings::default()
        };
        Ok(Options { off: off(&self.controllers)?, simulation, ..Options::default() })
    }
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
    /// Starts the controllers.
    pub(crate) fn start(options: Options, client: Client) -> Result<Self, UnknownController> {
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
