//! What all controllers of a process share: client, caches, writer, recorder, metrics, health. The word is
//! controller-runtime's.

use std::time::Duration;

use konverge_runtime::{
    Cache, Caches, Change, EventLog, FieldManager, Leadership, Recorder, RecorderOptions, Shards, Subscription, Target,
    WatchSettings, Writer, WriterOptions,
};
use kube::Client;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::leader::Clients;
use crate::metrics::{CacheMetrics, Metrics};
use crate::probes::Health;
use crate::settings::Settings;
use crate::state::States;

/// How long watches may take to end, and then the recorder to write the events that are left. A Pod has 30 s from SIGTERM
/// to SIGKILL: reconciles take up to 25 s by default, and 1 s if they are cut off.
const WATCHES_END_WITHIN: Duration = Duration::from_millis(500);
const EVENTS_WRITTEN_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Manager<'a> {
    pub settings: &'a Settings,
    /// The client of everything here, with its layers. It writes only while this instance leads.
    pub client: Client,
    /// The client for what every instance writes: certificates and registrations of webhooks.
    pub every_client: Client,
    /// Whether this instance leads.
    pub leadership: Leadership,
    /// The shards, if the objects are divided among the instances.
    pub shards: Option<Shards>,
    pub caches: Caches,
    pub writer: Writer,
    pub recorder: Recorder,
    pub metrics: &'a Metrics,
    pub health: Health,
    /// The state of the operator, which all its controllers see.
    pub states: States,
    /// What counts the objects of reconciled kinds for the metrics: once for each watch, which several controllers may share.
    counting: Mutex<Vec<(Target, Subscription)>>,
}

impl<'a> Manager<'a> {
    /// The manager, and the task that writes events.
    pub(crate) fn start(
        settings: &'a Settings,
        clients: Clients,
        log: EventLog,
        metrics: &'a Metrics,
        health: Health,
        states: States,
    ) -> (Self, RecorderHandle) {
        let Clients { leader: client, every: every_client, leadership, shards } = clients;
        let writer = Writer::new(client.clone(), FieldManager::new(settings.field_manager()), WriterOptions::default());
        let instance = format!("{}-{}", settings.name, host_name());
        let options =
            RecorderOptions { controller: settings.name.clone(), instance, log, ..RecorderOptions::default() };
        // Events are written a moment later, outside of the reconcile that recorded them. With shards no single term allows that, and
        // none has to: an event tells what has happened, whoever holds the shard by then.
        let of_events = match &shards {
            Some(_) => {
                let manager = FieldManager::new(settings.field_manager());
                Writer::new(every_client.clone(), manager, WriterOptions::default())
            }
            None => writer.clone(),
        };
        let (recorder, recording) = Recorder::new(of_events, options);
        let recording = RecorderHandle(tokio::spawn(recording.run()));
        let caches = Caches::new(client.clone(), WatchSettings::default());
        let shown = caches.clone();
        metrics.caches_from(move |each| {
            for cache in shown.all() {
                let (api, figures) = (&cache.target().resource, cache.figures());
                let restarts = figures.restarts;
                each(&api.kind, &api.group, CacheMetrics { objects: figures.objects, bytes: figures.bytes, restarts });
            }
        });
        let watched = caches.clone();
        health.liveness_from("watches", move || watched.liveness());
        let recorded = recorder.clone();
        health.liveness_from("events", move || recorded.liveness());
        let counting = Mutex::default();
        let manager = Self {
            settings,
            client,
            every_client,
            leadership,
            shards,
            caches,
            writer,
            recorder,
            metrics,
            health,
            states,
            counting,
        };
        (manager, recording)
    }

    /// The writer of a controller that was added to the operator. It has a field manager of its own, so that what it applies
    /// to an object does not remove what another controller applied there. The first controller has the operator's.
    pub(crate) fn writer_of(&self, controller: &str) -> Writer {
        Writer::new(self.client.clone(), field_manager_of(self.settings, controller), WriterOptions::default())
    }

    /// Counts the objects of a cache by `count`, unless they are counted already.
    pub(crate) fn count_once(&self, cache: &Cache, count: impl FnMut(Change) + Send + 'static) {
        let mut counting = self.counting.lock();
        if counting.iter().all(|(target, _)| target != cache.target()) {
            counting.push((cache.target().clone(), cache.subscribe(count)));
        }
    }

    /// Ends the watches, then writes the events that are left.
    pub(crate) async fn stop(self, mut recording: RecorderHandle) {
        if tokio::time::timeout(WATCHES_END_WITHIN, self.caches.shutdown()).await.is_err() {
            tracing::warn!("a watch did not end in time; something blocks its thread");
        }
        self.recorder.close();
        // A task that ended by itself was joined already, and a second join would panic.
        let is_running = !recording.0.is_finished();
        if is_running && tokio::time::timeout(EVENTS_WRITTEN_WITHIN, &mut recording.0).await.is_err() {
            tracing::warn!("events that were left could not be written in time");
        }
    }
}

/// The field manager of a controller that was added to the operator.
pub(super) fn field_manager_of(settings: &Settings, controller: &str) -> FieldManager {
    FieldManager::new(&format!("{}-{controller}", settings.field_manager()))
}

/// The task that writes events. It is aborted when this is dropped: an operator that is dropped writes nothing more, as
/// after a crash.
pub(crate) struct RecorderHandle(JoinHandle<()>);

impl RecorderHandle {
    /// Resolves when the task ends, which it does by itself only if something is broken.
    pub(crate) async fn ended(&mut self) {
        // Why the task ended is in the log: the panic hook wrote it.
        let _ = (&mut self.0).await;
    }
}

impl Drop for RecorderHandle {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The host's name; in a cluster that is the name of the Pod.
pub(super) fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "unknown".to_owned() } else { name }
}
