//! The lifecycle of an operator: the only place that starts things. It stops them in the reverse order.
//!
//! ```text
//! start   metrics and probes → recorder → webhooks → leader election → caches → workers of all controllers → background tasks
//! stop    background tasks and workers finish → trigger streams → webhooks → caches → recorder writes what is left
//!         → leader election releases its Leases → probes
//! ```
//!
//! Metrics and probes come first, so that a slow start is seen. Webhooks come before the workers, whose writes may need them, and
//! end after them. Background tasks come last, because they may read and
//! trigger what the controllers serve; they and the workers are told to stop at the same time, and while the last of them
//! finishes, watches still bring changes, keys that tasks send are still taken, and events are still written. An error of a
//! background task that was told to stop is logged and changes nothing: the operator does what it was asked to do.
//!
//! Leases are released when nothing is left to write, so that the next leader never works beside this one. An instance that does not
//! lead runs all of this but for workers and background tasks, which wait for a term.
//!
//! Watches, workers and the recorder go on after a panic, and liveness fails until they work again. A controller that ends
//! by itself, and a background task that fails, end the operator: whoever started the process restarts it.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use konverge_runtime::{Error, EventLog, FieldManager, Result, Shards};
use tokio::sync::watch;
use tokio::task::JoinError;

use super::background::{Background, BackgroundTasks};
use super::leader::{Clients, Leader};
use super::manager::{Manager, field_manager_of};
use super::phase::Phase;
use crate::controller::AnyController;
use crate::metrics::Metrics;
use crate::probes::{Health, Probes};
use crate::settings::Settings;
use crate::state::States;
use crate::versions::Versions;
use crate::webhook::{self, LocalWebhooks, Served, ServedBy, WebhookServer};

/// How long the listener of the probes may take to end.
const PROBES_END_WITHIN: Duration = Duration::from_millis(500);

/// How long reviews that are running may take. A Pod has 30 s in all.
const WEBHOOKS_END_WITHIN: Duration = Duration::from_secs(1);

/// What an operator runs.
pub(super) struct Workload {
    pub controllers: Vec<Box<dyn AnyController>>,
    pub background: Vec<Background>,
    /// The state that all of them share.
    pub states: States,
    /// Who serves webhooks in a test, instead of a listener.
    pub local_webhooks: Option<LocalWebhooks>,
    /// Which instance works.
    pub leader: Leader,
}

/// Starts everything in order, waits for `stop` or a failure, and stops everything in the reverse order.
pub(super) async fn run(
    workload: Workload,
    settings: &Settings,
    clients: Clients,
    log: EventLog,
    metrics: &Metrics,
    health: Health,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let Workload { controllers, background, states, local_webhooks, leader } = workload;
    check_names(&controllers)?;
    check_field_managers(&controllers, settings)?;
    check_finalizers(&controllers)?;
    check_background_names(&background)?;
    let webhooks: Vec<Served> = controllers.iter().flat_map(|controller| controller.webhooks(&states)).collect();
    webhook::check(webhooks.iter().map(|served| &served.webhook))?;
    let versions: Vec<Versions> = controllers.iter().filter_map(|controller| controller.versions().cloned()).collect();
    versions.iter().try_for_each(|versions| versions.check().map_err(Error::permanent))?;
    // Before anybody can ask: without a check there is nothing that is not ready. A controller that starts replaces its own, and
    // so do webhooks.
    for controller in &controllers {
        health.readiness(&controller.name());
    }
    let served_by = ServedBy::of(settings, local_webhooks).filter(|_| !webhooks.is_empty() || !versions.is_empty());
    if served_by.is_some() {
        health.readiness(webhook::CHECK);
    }
    let probes = Probes::start(settings, metrics, &health, leader.shown())?;
    log_addresses(&probes);
    let every_client = clients.every.clone();
    let (manager, mut recording) = Manager::start(settings, clients, log, metrics, health, states);

    let (phase, told) = watch::channel(Phase::Running);
    let webhooks = match served_by {
        Some(served_by) => Some(WebhookServer::start(&manager, webhooks, versions, served_by, told.clone())?),
        None => None,
    };
    let is_elected = leader.is_elected();
    let mut campaign = leader.start(every_client, &manager);
    let exits = is_elected && settings.leader_election.exit_when_lost;
    let lost = campaign.lost();
    let lost = async {
        match exits {
            true => lost.await,
            false => std::future::pending().await,
        }
    };
    let mut running = tokio::task::JoinSet::new();
    for (at, controller) in controllers.into_iter().enumerate() {
        let writer = manager.writer_of(&*controller, at == 0);
        running.spawn(controller.start(&manager, writer, told.clone())?);
    }
    let mut background = BackgroundTasks::start(background, &manager, &told);

    let ended = tokio::select! {
        () = stop => Ok(()),
        Some(ended) = running.join_next() => Err(ended_by_itself(ended)),
        error = background.failed() => Err(error),
        () = recording.ended() => Err(Error::new("the task that writes events ended by itself")),
        error = campaign.broken() => Err(error),
        () = lost => Err(Error::new("this instance does not lead any more, and the settings say that it ends then")),
    };
    if let Err(error) = &ended {
        tracing::error!(error = format!("{error:#}"), "the operator stops because of an error");
    }
    tracing::info!("stopping: waiting for running reconciles and background tasks to finish");
    phase.send_replace(Phase::Stopping);
    manager.shards.iter().for_each(Shards::leave);
    let background = async {
        for error in background.stop(settings.graceful_shutdown_timeout).await {
            tracing::error!(error = format!("{error:#}"), "a background task failed after it was told to stop");
        }
        phase.send_replace(Phase::BackgroundEnded);
    };
    let finished = async { while running.join_next().await.is_some() {} };
    tokio::join!(background, finished);
    if let Some(webhooks) = webhooks {
        webhooks.stop(WEBHOOKS_END_WITHIN).await;
    }
    manager.stop(recording).await;
    campaign.stop().await;
    probes.stop(PROBES_END_WITHIN).await;
    tracing::info!(name = settings.name, "stopped");
    ended
}

/// Controllers are told apart by their names in metrics, in readiness and in reports of failures.
fn check_names(controllers: &[Box<dyn AnyController>]) -> Result<()> {
    let names: Vec<String> = controllers.iter().map(|controller| controller.name()).collect();
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        Some(twice) => Err(Error::permanent(format!(
            "two controllers of the operator are called {}; give one of them a name of its own with .named(…)",
            names[twice]
        ))),
        None => Ok(()),
    }
}

/// Two controllers with one field manager would remove the fields that the other one applied. Servers accept at most 128 bytes,
/// so long names may become the same.
fn check_field_managers(controllers: &[Box<dyn AnyController>], settings: &Settings) -> Result<()> {
    let mut known: Vec<(FieldManager, String)> = Vec::new();
    for (at, controller) in controllers.iter().enumerate() {
        let name = controller.name();
        let manager =
            if at == 0 { FieldManager::new(settings.field_manager()) } else { field_manager_of(settings, &name) };
        if let Some((_, first)) = known.iter().find(|(other, _)| *other == manager) {
            return Err(Error::permanent(format!(
                "the controllers {first} and {name} would have the same field manager, {manager}; give one of them a shorter name \
                 with .named(…), or the operator a shorter field manager"
            )));
        }
        known.push((manager, name));
    }
    Ok(())
}

/// Background tasks are told apart by their names in the log and in errors.
fn check_background_names(background: &[Background]) -> Result<()> {
    let names: Vec<&str> = background.iter().map(Background::name).collect();
    match (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        Some(twice) => Err(Error::permanent(format!(
            "two background tasks of the operator are called {}; give one of them another name",
            names[twice]
        ))),
        None => Ok(()),
    }
}

/// Two controllers of one kind that keep the same finalizer would lose a cleanup: the first that is done releases the object.
fn check_finalizers(controllers: &[Box<dyn AnyController>]) -> Result<()> {
    let kept: Vec<_> = controllers
        .iter()
        .filter_map(|controller| {
            let api = controller.kind().resource();
            Some(((api.group.as_str(), api.kind.as_str(), controller.finalizer()?), controller.name()))
        })
        .collect();
    for (at, (key, name)) in kept.iter().enumerate() {
        if let Some((_, first)) = kept[..at].iter().find(|(known, _)| known == key) {
            let (_, kind, finalizer) = key;
            return Err(Error::permanent(format!(
                "{first} and {name} both keep the finalizer {finalizer} on every {kind}, so that the first cleanup that is \
                 done would release the object; give one of them a finalizer of its own with .finalizer(…)"
            )));
        }
    }
    Ok(())
}

/// The error of a controller that ended before it was told to.
fn ended_by_itself(ended: Result<Result<()>, JoinError>) -> Error {
    match ended {
        Ok(Ok(())) => Error::new("a controller ended by itself"),
        Ok(Err(error)) => error,
        Err(error) => Error::new(format!("a controller ended by itself: {error}")),
    }
}

/// Logs where metrics and probes are served: settings may leave the port to the system.
fn log_addresses(probes: &Probes) {
    let shown =
        |address: Option<SocketAddr>| address.map_or_else(|| "nowhere".to_owned(), |address| address.to_string());
    let (metrics, health) = (probes.metrics_address(), probes.health_address());
    if metrics.is_some() || health.is_some() {
        tracing::info!(metrics = shown(metrics), probes = shown(health), "metrics and probes are served");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    use konverge_runtime::Writer;

    use super::*;
    use crate::api_kind::ApiKind;
    use crate::builders::ConfigMap;
    use crate::rules::Rules;
    use crate::settings::{BindAddress, HealthSettings, MetricsSettings};

    /// A controller that ends as soon as it begins.
    struct Brief {
        name: &'static str,
        panics: bool,
        kind: ApiKind,
    }

    impl Brief {
        fn boxed(name: &'static str, panics: bool) -> Box<dyn AnyController> {
            Box::new(Self { name, panics, kind: ApiKind::of::<ConfigMap>() })
        }
    }

    impl AnyController for Brief {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn kind(&self) -> &ApiKind {
            &self.kind
        }

        fn finalizer(&self) -> Option<&str> {
            None
        }

        fn start(
            self: Box<Self>,
            _: &Manager<'_>,
            _: Writer,
            _: watch::Receiver<Phase>,
        ) -> Result<BoxFuture<'static, Result<()>>> {
            Ok(Box::pin(async move {
                assert!(!self.panics, "it is broken");
                Ok(())
            }))
        }

        fn rules(&self) -> Rules {
            Rules::new()
        }

        fn definition(&self) -> Option<CustomResourceDefinition> {
            None
        }

        fn webhooks(&self, _: &States) -> Vec<Served> {
            Vec::new()
        }
    }

    /// An operator that is never told to stop, with these controllers.
    async fn run_until_error(controllers: &[(&'static str, bool)]) -> String {
        let controllers = controllers.iter().map(|(name, panics)| Brief::boxed(name, *panics));
        run_with(controllers.collect(), quiet()).await
    }

    /// Settings of an operator that serves nothing.
    fn quiet() -> Settings {
        Settings {
            metrics: MetricsSettings { enabled: false, ..MetricsSettings::default() },
            health: HealthSettings { enabled: false, ..HealthSettings::default() },
            ..Settings::default()
        }
    }

    async fn run_with(controllers: Vec<Box<dyn AnyController>>, settings: Settings) -> String {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(config).unwrap();
        let (log, metrics) = (EventLog::default(), Metrics::default());
        let clients = Clients::of_only(client);
        let (background, states, leader) = (Vec::new(), States::default(), Leader::always());
        let workload = Workload { controllers, background, states, local_webhooks: None, leader };
        run(workload, &settings, clients, log, &metrics, Health::default(), std::future::pending())
            .await
            .unwrap_err()
            .to_string()
    }

    #[tokio::test]
    async fn an_operator_does_not_outlive_a_controller() {
        assert_eq!(run_until_error(&[("a", false)]).await, "a controller ended by itself");
        let panicked = run_until_error(&[("a", true)]).await;
        assert!(
            panicked.starts_with("a controller ended by itself: ") && panicked.contains("it is broken"),
            "{panicked}"
        );
    }

    /// A controller that does nothing, and takes it that nobody needs events any more.
    struct Rude {
        kind: ApiKind,
    }

    impl AnyController for Rude {
        fn name(&self) -> String {
            "rude".to_owned()
        }

        fn kind(&self) -> &ApiKind {
            &self.kind
        }

        fn finalizer(&self) -> Option<&str> {
            None
        }

        fn start(
            self: Box<Self>,
            manager: &Manager<'_>,
            _: Writer,
            mut phase: watch::Receiver<Phase>,
        ) -> Result<BoxFuture<'static, Result<()>>> {
            manager.recorder.close();
            Ok(Box::pin(async move {
                drop(phase.wait_for(|phase| *phase >= Phase::Stopping).await);
                Ok(())
            }))
        }

        fn rules(&self) -> Rules {
            Rules::new()
        }

        fn definition(&self) -> Option<CustomResourceDefinition> {
            None
        }

        fn webhooks(&self, _: &States) -> Vec<Served> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn an_operator_does_not_outlive_its_events() {
        let ended = run_with(vec![Box::new(Rude { kind: ApiKind::of::<ConfigMap>() })], quiet()).await;
        assert_eq!(ended, "the task that writes events ended by itself");
    }

    /// A controller that looks at readiness when it starts, while the probes are served already.
    struct Curious {
        kind: ApiKind,
        was_ready: Arc<parking_lot::Mutex<Option<bool>>>,
    }

    impl AnyController for Curious {
        fn name(&self) -> String {
            "curious".to_owned()
        }

        fn kind(&self) -> &ApiKind {
            &self.kind
        }

        fn finalizer(&self) -> Option<&str> {
            None
        }

        fn start(
            self: Box<Self>,
            manager: &Manager<'_>,
            _: Writer,
            _: watch::Receiver<Phase>,
        ) -> Result<BoxFuture<'static, Result<()>>> {
            *self.was_ready.lock() = Some(manager.health.is_ready());
            Ok(Box::pin(async { Ok(()) }))
        }

        fn rules(&self) -> Rules {
            Rules::new()
        }

        fn definition(&self) -> Option<CustomResourceDefinition> {
            None
        }

        fn webhooks(&self, _: &States) -> Vec<Served> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn an_operator_is_not_ready_before_its_controllers_have_started() {
        let was_ready = Arc::new(parking_lot::Mutex::new(None));
        let curious = Curious { kind: ApiKind::of::<ConfigMap>(), was_ready: was_ready.clone() };
        run_with(vec![Box::new(curious)], quiet()).await;
        assert_eq!(*was_ready.lock(), Some(false));
    }

    /// The log, as text.
    #[derive(Clone, Default)]
    struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn ports_that_the_system_chose_are_in_the_log() {
        let free = || BindAddress::loopback(0);
        for (metrics, health) in [(true, true), (true, false), (false, true), (false, false)] {
            let settings = Settings {
                metrics: MetricsSettings { enabled: metrics, address: free(), ..MetricsSettings::default() },
                health: HealthSettings { enabled: health, address: free(), ..HealthSettings::default() },
                ..Settings::default()
            };
            let log = Log::default();
            let writes = log.clone();
            let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writes.clone()).finish();
            let logging = tracing::subscriber::set_default(subscriber);
            run_with(vec![Brief::boxed("a", false)], settings).await;
            drop(logging);
            let text = String::from_utf8(log.0.lock().clone()).unwrap();
            let last = text.lines().last().unwrap_or_default();
            assert!(last.contains(" stopped ") && last.contains("name=\"konverge\""), "{text}");
            for (what, is_on) in [("metrics", metrics), ("probes", health)] {
                let port = text.split_once(&format!("{what}=\"127.0.0.1:")).and_then(|(_, rest)| rest.split_once('"'));
                let port = port.map(|(port, _)| port.parse::<u16>().unwrap());
                assert_eq!(port.is_some_and(|port| port > 0), is_on, "{what}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn names_are_not_shared() {
        let refused = run_until_error(&[("a", false), ("b", false), ("a", false)]).await;
        assert!(refused.starts_with("two controllers of the operator are called a; "), "{refused}");
    }

    #[tokio::test]
    async fn field_managers_are_not_shared() {
        // Both are the same in the first 128 bytes of `konverge-…`.
        let long = |end: &str| -> &'static str { format!("{}{end}", "x".repeat(125)).leak() };
        let refused = run_until_error(&[("a", false), (long("y"), false), (long("z"), false)]).await;
        assert!(refused.contains("would have the same field manager, konverge-xxx"), "{refused}");
        let short = run_until_error(&[("a", false), ("b", false)]).await;
        assert_eq!(short, "a controller ended by itself");
    }

    #[tokio::test]
    async fn background_tasks_have_names_of_their_own() {
        let task = |name: &str| Background::new(name.to_owned(), |_| async { Ok(()) });
        let same = check_background_names(&[task("sync"), task("poll"), task("sync")]).unwrap_err().to_string();
        assert!(same.starts_with("two background tasks of the operator are called sync; "), "{same}");
        assert!(check_background_names(&[task("sync"), task("poll")]).is_ok());
    }
}
