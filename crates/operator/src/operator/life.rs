//! The life of an operator: the only place that starts things; it stops them in the reverse order.
//!
//! ```text
//! start   metrics and probes → recorder → caches → workers
//! stop    workers finish → caches → recorder writes what is left → probes
//! ```
//!
//! Watches, workers and the recorder go on after a panic, and liveness says so until they do their work again. A part that
//! ends although nobody told it to ends the operator: whoever started the process starts it anew.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{
    Action, Backoff, Caches, Change, ControllerOptions, Error, EventLog, FieldManager, Object, QueueOptions, Rate,
    Recorder, RecorderOptions, Result, Run, WatchSettings, Writer, WriterOptions,
};
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{EVENTS, Operator};
use crate::kind::{Kind, Scope};
use crate::meter::ControllerMeter;
use crate::metrics::{Cached, KindMetrics, Metrics};
use crate::probes::{Health, Probes};
use crate::rules::Rules;
use crate::settings::Settings;

/// How long each step of a stop may take after the reconciles. A Pod has 30 s from SIGTERM to SIGKILL: 25 s for reconciles
/// to finish and 1 s for those that are cut leave 4 s, and these are three of them.
const WATCHES_END_WITHIN: Duration = Duration::from_millis(500);
const EVENTS_WRITTEN_WITHIN: Duration = Duration::from_secs(2);
const PROBES_END_WITHIN: Duration = Duration::from_millis(500);

/// One kind of an operator, whatever its type.
pub(super) trait Part: Send + Sync {
    /// What its controller is called.
    fn name(&self) -> String;

    fn start(self: Box<Self>, shared: &Shared<'_>, stop: watch::Receiver<bool>) -> Result<BoxFuture<'static, ()>>;

    /// What it has to be allowed.
    fn declared(&self) -> Rules;

    /// The CRD of its kind, if it knows one.
    fn definition(&self) -> Option<CustomResourceDefinition>;
}

/// What all parts share.
pub(super) struct Shared<'a> {
    pub settings: &'a Settings,
    /// The client of everything here, with its layers.
    pub client: Client,
    pub caches: Caches,
    pub writer: Writer,
    pub recorder: Recorder,
    pub metrics: &'a Metrics,
    pub health: Health,
}

impl<'a> Shared<'a> {
    /// All of it, and the task that writes the events.
    pub fn new(
        settings: &'a Settings,
        client: Client,
        log: EventLog,
        metrics: &'a Metrics,
        health: Health,
    ) -> (Self, Recording) {
        let writer = Writer::new(client.clone(), FieldManager::new(settings.field_manager()), WriterOptions::default());
        let instance = format!("{}-{}", settings.name, host_name());
        let options =
            RecorderOptions { controller: settings.name.clone(), instance, log, ..RecorderOptions::default() };
        let (recorder, recording) = Recorder::new(writer.clone(), options);
        let recording = Recording(tokio::spawn(recording.run()));
        let caches = Caches::new(client.clone(), WatchSettings::default());
        let shown = caches.clone();
        metrics.caches_from(move |each| {
            for cache in shown.all() {
                let (api, figures) = (&cache.target().resource, cache.figures());
                let restarts = figures.restarts;
                each(&api.kind, &api.group, Cached { objects: figures.objects, bytes: figures.bytes, restarts });
            }
        });
        let watched = caches.clone();
        health.liveness_from("watches", move || watched.liveness());
        let recorded = recorder.clone();
        health.liveness_from("events", move || recorded.liveness());
        (Self { settings, client, caches, writer, recorder, metrics, health }, recording)
    }

    /// Ends the watches and writes the events that are left.
    pub async fn close(self, mut recording: Recording) {
        if tokio::time::timeout(WATCHES_END_WITHIN, self.caches.shutdown()).await.is_err() {
            tracing::warn!("a watch did not end in time; something blocks its thread");
        }
        self.recorder.close();
        // One that ended by itself has been waited for, which may be done once.
        let is_left = !recording.0.is_finished();
        if is_left && tokio::time::timeout(EVENTS_WRITTEN_WITHIN, &mut recording.0).await.is_err() {
            tracing::warn!("events that were left could not be written in time");
        }
    }
}

/// The task that writes the events. It ends with this: an operator that is dropped writes nothing more, as after a crash.
pub(super) struct Recording(JoinHandle<()>);

impl Drop for Recording {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the machine is called; in a cluster that is the name of the Pod.
fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Says where metrics and probes are: settings may leave the port to the system.
fn tell_addresses(probes: &Probes) {
    let shown =
        |address: Option<SocketAddr>| address.map_or_else(|| "nowhere".to_owned(), |address| address.to_string());
    let (metrics, health) = (probes.metrics_address(), probes.health_address());
    if metrics.is_some() || health.is_some() {
        tracing::info!(metrics = shown(metrics), probes = shown(health), "metrics and probes are served");
    }
}

/// Starts everything in order, and stops it in the reverse order.
pub(super) async fn life(
    parts: Vec<Box<dyn Part>>,
    settings: &Settings,
    client: Client,
    log: EventLog,
    metrics: &Metrics,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let names: Vec<String> = parts.iter().map(|part| part.name()).collect();
    if let Some(twice) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(Error::permanent(format!(
            "two controllers of the operator are called {}; give one of them a name of its own with .named(…), and a \
             finalizer if both have one",
            names[twice]
        )));
    }
    let health = Health::default();
    let probes = Probes::start(settings, metrics, &health)?;
    tell_addresses(&probes);
    let (shared, mut recording) = Shared::new(settings, client, log, metrics, health);

    let (stopping, told) = watch::channel(false);
    let mut running = tokio::task::JoinSet::new();
    for part in parts {
        running.spawn(part.start(&shared, told.clone())?);
    }
    let ended = tokio::select! {
        () = stop => Ok(()),
        // None ends before it is told to, unless something is broken. Whoever started the process starts it anew.
        Some(ended) = running.join_next() => Err(Error::new(match ended {
            Err(error) => format!("a controller ended by itself: {error}"),
            Ok(()) => "a controller ended by itself".to_owned(),
        })),
        _ = &mut recording.0 => Err(Error::new("the task that writes events ended by itself")),
    };
    tracing::info!("stopping: waiting for running reconciles to finish");
    stopping.send_replace(true);
    while running.join_next().await.is_some() {}
    shared.close(recording).await;
    probes.stop(PROBES_END_WITHIN).await;
    ended
}

impl<R: Kind> Part for Operator<R> {
    fn name(&self) -> String {
        self.controller_name()
    }

    fn start(self: Box<Self>, shared: &Shared<'_>, mut stop: watch::Receiver<bool>) -> Result<BoxFuture<'static, ()>> {
        let (name, owner) = (self.controller_name(), R::resource());
        let settings = self.overrides.over(&shared.settings.controller);
        // What this kind does differently is as wrong as a setting can be.
        Settings { controller: settings.clone(), ..shared.settings.clone() }.check()?;
        let metrics = shared.metrics.controller(&name);
        metrics.set_max_concurrent(settings.max_concurrent_reconciles);
        let mut backoff = Backoff {
            initial: settings.backoff.initial,
            max: settings.backoff.max,
            multiplier: settings.backoff.multiplier,
            max_retries: settings.backoff.max_retries,
            jitter: settings.backoff.jitter,
        };
        if let Some(pause) = self.error_requeue {
            backoff = Backoff { initial: pause, max: pause, jitter: 0.0, ..backoff };
        }
        let rate = (settings.rate_limit.per_second > 0.0).then(|| Rate {
            // Less than one in all of time is none.
            every: Duration::try_from_secs_f64(1.0 / settings.rate_limit.per_second).unwrap_or(Duration::MAX),
            burst: settings.rate_limit.burst,
        });
        let options = ControllerOptions {
            concurrency: settings.max_concurrent_reconciles,
            timeout: settings.reconcile_timeout,
            resync: shared.settings.sync_period,
            drain: shared.settings.graceful_shutdown_timeout,
            queue: QueueOptions { backoff, rate, ..QueueOptions::default() },
            predicate: self.predicate.clone(),
            urgent: self.urgent.clone(),
            meter: Arc::new(ControllerMeter { metrics: metrics.clone(), ready: Some(shared.health.readiness(&name)) }),
            ..ControllerOptions::default()
        };
        // Several namespaces are several watches: nothing outside of them is read.
        let mut namespaces = if R::scope() == Scope::Cluster { Vec::new() } else { shared.settings.namespaces.clone() };
        // One that was named twice is counted once.
        namespaces.sort();
        namespaces.dedup();
        let steps = Arc::new(self.steps(shared, namespaces, options)?);
        let controller = steps.engine.controller.clone();
        let kind = shared.metrics.kind(&owner.group, &owner.kind);
        let counting: Vec<_> = controller.primaries().iter().map(|cache| cache.subscribe(count(&kind))).collect();
        let reconciler = move |run: Run| -> BoxFuture<'static, Result<Action>> {
            let steps = steps.clone();
            Box::pin(async move { steps.walk(run).await })
        };
        let workers = Arc::downgrade(&controller);
        shared.health.liveness_from(&format!("workers-{name}"), move || {
            workers.upgrade().map_or(Ok(()), |controller| controller.liveness())
        });
        Ok(Box::pin(async move {
            let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
            controller.run(Arc::new(reconciler), stopped).await;
            drop(counting);
        }))
    }

    fn declared(&self) -> Rules {
        let own = self.rules.clone().allow::<R>(["get", "list", "watch"]).allow_part::<R>("status", ["patch"]);
        // To block the deletion of an owner takes the right to change its finalizers.
        let own = own.allow_part::<R>("finalizers", ["update"]);
        let own = if self.finalizer.is_some() { own.allow::<R>(["patch"]) } else { own };
        match R::scope() {
            // They are in no namespace, so what belongs to them is looked at in all.
            Scope::Cluster => own.allow::<Event>(EVENTS).everywhere(),
            Scope::Namespaced => own,
        }
    }

    fn definition(&self) -> Option<CustomResourceDefinition> {
        R::definition()
    }
}

/// Counts the objects of a kind by namespace and phase.
fn count(kind: &KindMetrics) -> impl FnMut(Change) + Send + use<> {
    let kind = kind.clone();
    move |change| {
        let phase = |object: &Object| {
            let phase = object.pointer("/status/phase").and_then(|json| serde_json::from_str::<String>(json).ok());
            phase.unwrap_or_default()
        };
        let namespace = change.object().namespace().unwrap_or_default();
        match (change.before(), change.after()) {
            (None, Some(after)) => kind.added(namespace, &phase(after)),
            (Some(before), Some(after)) => kind.moved(namespace, &phase(before), &phase(after)),
            (Some(before), None) => kind.removed(namespace, &phase(before)),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{BindAddress, HealthSettings, MetricsSettings};

    /// A controller that ends as soon as it begins.
    struct Brief {
        name: &'static str,
        panics: bool,
    }

    impl Part for Brief {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn start(self: Box<Self>, _: &Shared<'_>, _: watch::Receiver<bool>) -> Result<BoxFuture<'static, ()>> {
            Ok(Box::pin(async move { assert!(!self.panics, "it is broken") }))
        }

        fn declared(&self) -> Rules {
            Rules::new()
        }

        fn definition(&self) -> Option<CustomResourceDefinition> {
            None
        }
    }

    /// An operator that is never told to stop, with these controllers.
    async fn lived(parts: &[(&'static str, bool)]) -> String {
        let parts = parts.iter().map(|(name, panics)| Box::new(Brief { name, panics: *panics }) as Box<dyn Part>);
        lived_with(parts.collect(), quiet()).await
    }

    /// Settings of an operator that serves nothing.
    fn quiet() -> Settings {
        Settings {
            metrics: MetricsSettings { enabled: false, ..MetricsSettings::default() },
            health: HealthSettings { enabled: false, ..HealthSettings::default() },
            ..Settings::default()
        }
    }

    async fn lived_with(parts: Vec<Box<dyn Part>>, settings: Settings) -> String {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let (client, log, metrics) = (Client::try_from(config).unwrap(), EventLog::default(), Metrics::default());
        let lived = life(parts, &settings, client, log, &metrics, std::future::pending()).await;
        lived.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn an_operator_does_not_outlive_a_controller() {
        assert_eq!(lived(&[("a", false)]).await, "a controller ended by itself");
        let panicked = lived(&[("a", true)]).await;
        assert!(
            panicked.starts_with("a controller ended by itself: ") && panicked.contains("it is broken"),
            "{panicked}"
        );
    }

    /// A controller that does nothing, and takes it that nobody needs events any more.
    struct Rude;

    impl Part for Rude {
        fn name(&self) -> String {
            "rude".to_owned()
        }

        fn start(
            self: Box<Self>,
            shared: &Shared<'_>,
            mut stop: watch::Receiver<bool>,
        ) -> Result<BoxFuture<'static, ()>> {
            shared.recorder.close();
            Ok(Box::pin(async move { drop(stop.wait_for(|stop| *stop).await) }))
        }

        fn declared(&self) -> Rules {
            Rules::new()
        }

        fn definition(&self) -> Option<CustomResourceDefinition> {
            None
        }
    }

    #[tokio::test]
    async fn an_operator_does_not_outlive_its_events() {
        let ended = lived_with(vec![Box::new(Rude)], quiet()).await;
        assert_eq!(ended, "the task that writes events ended by itself");
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
            lived_with(vec![Box::new(Brief { name: "a", panics: false })], settings).await;
            drop(logging);
            let text = String::from_utf8(log.0.lock().clone()).unwrap();
            for (what, is_on) in [("metrics", metrics), ("probes", health)] {
                let port = text.split_once(&format!("{what}=\"127.0.0.1:")).and_then(|(_, rest)| rest.split_once('"'));
                let port = port.map(|(port, _)| port.parse::<u16>().unwrap());
                assert_eq!(port.is_some_and(|port| port > 0), is_on, "{what}: {text}");
            }
        }
    }

    #[tokio::test]
    async fn names_are_not_shared() {
        let refused = lived(&[("a", false), ("b", false), ("a", false)]).await;
        assert!(refused.starts_with("two controllers of the operator are called a; "), "{refused}");
    }
}
