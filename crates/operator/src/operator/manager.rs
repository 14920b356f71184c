//! What all controllers of a process share: client, caches, writer, recorder, metrics, health. The word is
//! controller-runtime's.

use std::sync::Arc;
use std::time::Duration;

use konverge_runtime::{
    Cache, Caches, Change, EventLog, FieldManager, Leadership, Recorder, RecorderOptions, Shards, Subscription, Target,
    WatchSettings, Writer, WriterOptions,
};
use kube::Client;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::election_group::ElectionGroup;
use super::leader::{Clients, GroupClient};
use crate::controller::AnyController;
use crate::metrics::{CacheMetrics, Metrics};
use crate::probes::Health;
use crate::settings::{Settings, ShardCache};
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
    /// What controllers have that are elected apart from the others.
    groups: Vec<(Arc<str>, Elected)>,
    pub metrics: &'a Metrics,
    pub health: Health,
    /// The state of the operator, which all its controllers see.
    pub states: States,
    /// What counts the objects of reconciled kinds for the metrics: once for each watch, which several controllers may share.
    counting: Mutex<Vec<(Target, Subscription)>>,
}

/// What the leader of an election works with: its client writes only while this instance leads there, and so does its recorder.
#[derive(Clone)]
pub(crate) struct Elected {
    pub client: Client,
    pub leadership: Leadership,
    pub recorder: Recorder,
}

impl<'a> Manager<'a> {
    /// The manager, and the tasks that write events.
    pub(crate) fn start(
        settings: &'a Settings,
        clients: Clients,
        log: EventLog,
        metrics: &'a Metrics,
        health: Health,
        states: States,
    ) -> (Self, RecorderHandle) {
        let Clients { leader: client, every: every_client, leadership, shards, groups } = clients;
        let writer_over =
            |client| Writer::new(client, FieldManager::new(settings.field_manager()), WriterOptions::default());
        let writer = writer_over(client.clone());
        let instance = format!("{}-{}", settings.name, host_name());
        let options =
            RecorderOptions { controller: settings.name.clone(), instance, log, ..RecorderOptions::default() };
        let mut recording = RecorderHandle(JoinSet::new());
        let mut record = |writer: Writer| {
            let (recorder, task) = Recorder::new(writer, options.clone());
            recording.0.spawn(task.run());
            recorder
        };
        // Events are written a moment later, outside of the reconcile that recorded them. With shards no single term allows that, and
        // none has to: an event tells what has happened, whoever holds the shard by then.
        let recorder = record(match &shards {
            Some(_) => writer_over(every_client.clone()),
            None => writer.clone(),
        });
        // Each group writes its own events, in its own term.
        let elected = |GroupClient { name, client, leadership }| {
            let recorder = record(writer_over(client.clone()));
            (name, Elected { client, leadership, recorder })
        };
        let groups: Vec<(Arc<str>, Elected)> = groups.into_iter().map(elected).collect();
        let caches = match &shards {
            Some(shards) if settings.shard_cache == ShardCache::Own => {
                Caches::divided(client.clone(), WatchSettings::default(), shards.clone())
            }
            _ => Caches::new(client.clone(), WatchSettings::default()),
        };
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
        let recorders: Vec<Recorder> =
            std::iter::once(&recorder).chain(groups.iter().map(|(_, elected)| &elected.recorder)).cloned().collect();
        health.liveness_from("events", move || recorders.iter().try_for_each(Recorder::liveness));
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
            groups,
            metrics,
            health,
            states,
            counting,
        };
        (manager, recording)
    }

    /// What a controller of this election group works with. A group that takes no part in an election of its own, because there is none
    /// or in a test of single reconciles, has what all others have.
    pub(crate) fn elected(&self, group: Option<&str>) -> Elected {
        let found = group.and_then(|group| self.groups.iter().find(|(name, _)| **name == *group));
        match found {
            Some((_, elected)) => elected.clone(),
            None => Elected {
                client: self.client.clone(),
                leadership: self.leadership.clone(),
                recorder: self.recorder.clone(),
            },
        }
    }

    /// The writer of a controller. One that was added to the operator has a field manager of its own, so that what it applies to an
    /// object does not remove what another controller applied there. The first one has the operator's.
    pub(crate) fn writer_of(&self, controller: &dyn AnyController, is_first: bool) -> Writer {
        let group = controller.election_group().map(ElectionGroup::name);
        let manager = match is_first {
            true if group.is_none() => return self.writer.clone(),
            true => FieldManager::new(self.settings.field_manager()),
            false => field_manager_of(self.settings, &controller.name()),
        };
        Writer::new(self.elected(group).client, manager, WriterOptions::default())
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
        self.groups.iter().for_each(|(_, elected)| elected.recorder.close());
        let written = async { while recording.0.join_next().await.is_some() {} };
        if tokio::time::timeout(EVENTS_WRITTEN_WITHIN, written).await.is_err() {
            tracing::warn!("events that were left could not be written in time");
        }
    }
}

/// The field manager of a controller that was added to the operator.
pub(super) fn field_manager_of(settings: &Settings, controller: &str) -> FieldManager {
    FieldManager::new(&format!("{}-{controller}", settings.field_manager()))
}

/// The tasks that write events. They are aborted when this is dropped: an operator that is dropped writes nothing more, as
/// after a crash.
pub(crate) struct RecorderHandle(JoinSet<()>);

impl RecorderHandle {
    /// Resolves when a task ends, which it does by itself only if something is broken.
    pub(crate) async fn ended(&mut self) {
        // Why the task ended is in the log: the panic hook wrote it.
        let _ = self.0.join_next().await;
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
