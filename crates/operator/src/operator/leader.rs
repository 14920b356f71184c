//! Leader election of an operator: which instance works. In: settings, and functions that want to know. Out: the leadership that
//! controllers and writes ask, and the task that campaigns for it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE, ObjectKey};
use konverge_runtime::{
    ClientLayers, Error, Event, HeldShard, Leadership, LeaseElection, Recorder, Seat, Shards, Standing, Subject, Term,
    TermGate,
};
use kube::Client;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::EVENT_VERBS;
use super::manager::host_name;
use super::sharding::Sharding;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::rules::Rules;
use crate::settings::Settings;

/// The name of the check in readiness and liveness.
const CHECK: &str = "leader-election";

/// The name of the check whether this instance is a full member. A rollout goes on to the next instance when this one is ready, and must not
/// while those that vote would become too few.
const MEMBER_CHECK: &str = "raft-member";

/// How long functions that are told of the last change may take when the process ends.
const CALLBACKS_END_WITHIN: Duration = Duration::from_secs(1);

/// Functions of the program that are told who leads.
#[derive(Clone, Default)]
pub(super) struct LeaderCallbacks {
    pub started: Vec<Callback<Term>>,
    pub stopped: Vec<Callback<Term>>,
    pub new_leader: Vec<Callback<str>>,
    pub shards: Vec<Callback<[HeldShard]>>,
}

type Callback<T> = Arc<dyn Fn(&T) + Send + Sync>;

impl LeaderCallbacks {
    fn tell(&self, change: &Change) {
        match change {
            Change::Leader(leader) => self.new_leader.iter().for_each(|told| told(leader)),
            Change::Started(term) => self.started.iter().for_each(|told| told(term)),
            Change::Stopped(term) => self.stopped.iter().for_each(|told| told(term)),
        }
    }
}

/// Which instance works: this one for as long as it runs, or the one that wins an election.
pub(super) struct Leader {
    pub leadership: Leadership,
    pub callbacks: LeaderCallbacks,
    campaign: Option<Election>,
    /// The shards, if the objects are divided among the instances.
    sharding: Option<Sharding>,
}

/// How the leader is elected.
enum Election {
    Lease(LeaseElection, Seat),
    Other(Box<dyn OtherElection>),
}

/// An election by something else than a Lease, which runs already: `raft` is one.
pub(super) trait OtherElection: Send + Sync {
    /// Its name in metrics.
    fn name(&self) -> String;
    fn leadership(&self) -> Leadership;
    /// Whether this instance could lead, and if not, why. Asked for each probe of readiness.
    fn readiness(&self) -> Box<dyn Fn() -> Result<(), String> + Send + Sync>;
    /// Resolves with the reason if it ends by itself.
    fn failed(&mut self) -> BoxFuture<'_, String>;
    /// Ends it within some seconds, and lets another instance lead.
    fn stop(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// The clients of an operator: one for what only the leader may write, one for what every instance writes.
#[derive(Clone)]
pub(crate) struct Clients {
    pub leader: Client,
    pub every: Client,
    /// When the first one may write.
    pub leadership: Leadership,
    /// The shards, if the objects are divided among the instances. Then a reconcile writes with the first client in the term of its shard.
    pub shards: Option<Shards>,
}

impl Clients {
    /// Those of the only instance.
    pub(crate) fn of_only(client: Client) -> Self {
        Self { leader: client.clone(), every: client, leadership: Leadership::always(""), shards: None }
    }
}

impl Leader {
    /// The only instance.
    #[cfg(test)]
    pub(super) fn always() -> Self {
        let leadership = Leadership::always("test");
        Self { leadership, callbacks: LeaderCallbacks::default(), campaign: None, sharding: None }
    }

    /// As settings say. `namespace` is where the Lease is if they do not say it, `controllers` how many controllers there are.
    pub(super) fn new(settings: &Settings, namespace: &str, callbacks: LeaderCallbacks, controllers: usize) -> Self {
        let identity: Arc<str> = identity().into();
        let election = &settings.leader_election;
        if settings.shards > 0 {
            let sharding = Sharding::new(settings, namespace, &identity, controllers);
            let leadership = sharding.leadership();
            return Self { leadership, callbacks, campaign: None, sharding: Some(sharding) };
        }
        if !election.enabled {
            return Self { leadership: Leadership::always(&identity), callbacks, campaign: None, sharding: None };
        }
        let lease = LeaseElection {
            name: settings.lease_name(),
            namespace: election.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            identity,
            timing: election.timing(),
        };
        let (leadership, seat) = Leadership::vacant();
        Self { leadership, callbacks, campaign: Some(Election::Lease(lease, seat)), sharding: None }
    }

    /// By this election, whatever settings say of a Lease.
    pub(super) fn elected_by(other: Box<dyn OtherElection>, callbacks: LeaderCallbacks) -> Self {
        Self { leadership: other.leadership(), callbacks, campaign: Some(Election::Other(other)), sharding: None }
    }

    /// Whether there is an election.
    pub(super) fn is_elected(&self) -> bool {
        self.campaign.is_some()
    }

    /// The shards, if the objects are divided among the instances.
    pub(super) fn shards(&self) -> Option<&Shards> {
        self.sharding.as_ref().map(|sharding| &sharding.shards)
    }

    /// The clients over this connection.
    pub(super) fn clients(&self, client: Client, layers: ClientLayers) -> Clients {
        let every = layers.clone().around(client.clone());
        let leader = match self.campaign.is_some() || self.sharding.is_some() {
            true => layers.gate(Arc::new(TermGate::new(self.leadership.clone()))).around(client),
            false => every.clone(),
        };
        Clients { leader, every, leadership: self.leadership.clone(), shards: self.shards().cloned() }
    }

    /// Begins to campaign, and to tell whoever wants to know. The client must be one that works without a term.
    pub(super) fn start(self, client: Client, recorder: &Recorder, metrics: &Metrics, health: &Health) -> Campaign {
        let Self { leadership, callbacks, campaign, sharding } = self;
        if let Some(sharding) = sharding {
            let tasks = Some(start_sharding(sharding, client, callbacks, metrics, health));
            return Campaign { tasks, leadership };
        }
        let Some(election) = campaign else { return Campaign { tasks: None, leadership } };
        // Events are about the Lease; without one the log has to do.
        let (name, subject) = match &election {
            Election::Lease(lease, _) => (lease.name.clone(), Some(subject_of(lease))),
            Election::Other(other) => (other.name(), None),
        };
        if let Election::Other(other) = &election {
            health.readiness_from(MEMBER_CHECK, other.readiness());
        }
        metrics.leader_election(&name, leadership.clone());
        let known = health.readiness(CHECK);
        let (changes, recorder) = (leadership.changes(), recorder.clone());
        let (end, ended) = oneshot::channel::<()>();
        let tell = async move {
            follow(changes, async { drop(ended.await) }, |change| {
                if let (Change::Started(term), Some(subject)) = (&change, &subject) {
                    let message = format!("{} became leader", term.holder);
                    let reason = "LeaderElection".into();
                    recorder.record(subject, Event { reason, message, ..Event::default() });
                }
                callbacks.tell(&change);
                known.pass();
            })
            .await;
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let campaign = match election {
            Election::Lease(lease, seat) => tokio::spawn(lease.campaign(client, seat, stopped)),
            Election::Other(other) => tokio::spawn(until_stopped(other, stopped)),
        };
        let tasks = Some(Tasks { campaign, tell: tokio::spawn(tell), stop, end });
        Campaign { tasks, leadership }
    }
}

/// What Events about the election are about.
fn subject_of(lease: &LeaseElection) -> Arc<Subject> {
    Arc::new(Subject {
        api_version: "coordination.k8s.io/v1".into(),
        kind: "Lease".into(),
        key: ObjectKey::new(Some(&lease.namespace), &lease.name),
        uid: String::new(),
    })
}

/// Lets an election go on until it fails or is to stop.
async fn until_stopped(mut election: Box<dyn OtherElection>, stopped: impl Future<Output = ()> + Send) {
    let failed = tokio::select! {
        why = election.failed() => Some(why),
        () = stopped => None,
    };
    if let Some(why) = failed {
        tracing::error!(why, "the leader election has failed");
    }
    election.stop().await;
}

/// Begins to take part in the division of the objects, and to tell whoever wants to know.
fn start_sharding(
    sharding: Sharding,
    client: Client,
    callbacks: LeaderCallbacks,
    metrics: &Metrics,
    health: &Health,
) -> Tasks {
    let (changes, shards) = (sharding.leadership().changes(), sharding.shards.clone());
    let (end, ended) = oneshot::channel::<()>();
    let tell = async move {
        let of_shards = callbacks.shards.clone();
        tokio::select! {
            () = super::sharding::follow(&shards, |held| of_shards.iter().for_each(|told| told(held))) => {}
            () = follow(changes, async { drop(ended.await) }, |change| callbacks.tell(&change)) => {}
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let campaign = sharding.start(client, metrics, health, async { drop(stopped.await) });
    Tasks { campaign: tokio::spawn(campaign), tell: tokio::spawn(tell), stop, end }
}

/// A campaign that goes on. It is aborted when this is dropped, like a crash: the Lease is not released.
pub(super) struct Campaign {
    tasks: Option<Tasks>,
    leadership: Leadership,
}

struct Tasks {
    campaign: JoinHandle<()>,
    tell: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    /// Dropped when the campaign is over, so that `tell` ends after the last change.
    end: oneshot::Sender<()>,
}

impl Campaign {
    /// Resolves with an error if the campaign ends by itself, which it does only if something is broken.
    pub(super) async fn broken(&mut self) -> Error {
        let Some(tasks) = &mut self.tasks else { return std::future::pending().await };
        // Why a task ended is in the log: the panic hook wrote it.
        tokio::select! {
            _ = &mut tasks.campaign => Error::new("the leader election ended by itself"),
            _ = &mut tasks.tell => Error::new("a function that is told about leader election panicked"),
        }
    }

    /// Resolves when a term of this instance is over.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let leadership = self.leadership.clone();
        async move {
            let term = leadership.begun().await;
            leadership.ended(&term).await;
        }
    }

    /// Releases the Lease, so that another instance takes over at once.
    pub(super) async fn stop(mut self) {
        let Some(tasks) = self.tasks.take() else { return };
        let Tasks { campaign, mut tell, stop, end } = tasks;
        drop(stop);
        // A task that ended by itself was joined already, and a second join would panic.
        if !campaign.is_finished() {
            // It ends within the time that the release of a Lease may take.
            let _ = campaign.await;
        }
        drop(end);
        if !tell.is_finished() && tokio::time::timeout(CALLBACKS_END_WITHIN, &mut tell).await.is_err() {
            tracing::warn!("a function that is told about leader election does not return");
            tell.abort();
        }
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if let Some(tasks) = &self.tasks {
            tasks.campaign.abort();
            tasks.tell.abort();
        }
    }
}

/// A change of who leads, as the callbacks of client-go tell it.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Leader(Arc<str>),
    Started(Arc<Term>),
    Stopped(Arc<Term>),
}

/// Calls `tell` for each change until `ended` resolves, and then for what changed last: a term that began is also told to be over.
async fn follow(mut changes: watch::Receiver<Standing>, ended: impl Future<Output = ()>, tell: impl Fn(Change)) {
    let (mut known, mut ended) = (Standing::default(), pin!(ended));
    loop {
        let is_over = tokio::select! {
            biased;
            changed = changes.changed() => changed.is_err(),
            () = &mut ended => true,
        };
        let mut now = changes.borrow_and_update().clone();
        if is_over {
            now.term = None;
        }
        differences(&known, &now).into_iter().for_each(&tell);
        if is_over {
            return;
        }
        known = now;
    }
}

fn differences(before: &Standing, after: &Standing) -> Vec<Change> {
    let mut changes = Vec::new();
    let number = |standing: &Standing| standing.term.as_ref().map(|term| term.number);
    let has_changed = number(before) != number(after);
    if let Some(term) = before.term.as_ref().filter(|_| has_changed) {
        changes.push(Change::Stopped(term.clone()));
    }
    if let Some(leader) = after.leader.as_ref().filter(|leader| before.leader.as_ref() != Some(leader)) {
        changes.push(Change::Leader(leader.clone()));
    }
    if let Some(term) = after.term.as_ref().filter(|_| has_changed) {
        changes.push(Change::Started(term.clone()));
    }
    changes
}

/// What an election needs, in the namespace of its Lease.
pub(super) fn rules() -> Rules {
    Rules::new()
        .allow_resource("coordination.k8s.io", "leases", ["get", "list", "watch", "create", "update"])
        .allow_resource("events.k8s.io", "events", EVENT_VERBS)
}

/// These rules as a Role in the namespace of the Lease, as kubebuilder has it. It is marked, because an instance that never had to take over
/// has not used all of them.
pub(super) fn manifests(settings: &Settings) -> Vec<Value> {
    let home = settings.home();
    let namespace = settings.leader_election.namespace.as_deref().unwrap_or(home);
    let name = format!("{}-leader-election", settings.name);
    let mut manifests = rules().role(&name, namespace, (&settings.name, home));
    for role in manifests.iter_mut().filter(|manifest| manifest["kind"] == "Role") {
        role["metadata"]["annotations"][KEEP_RIGHTS] = KEEP_RIGHTS_VALUE.into();
    }
    manifests
}

/// Unique for this process: the host's name, which people recognise, and random numbers, because a container that is started again
/// has the same name.
fn identity() -> String {
    let mut random = [0; 8];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random);
    let number = u64::from_be_bytes(random);
    match filled {
        Ok(()) => format!("{}_{number:016x}", host_name()),
        Err(_) => format!("{}_{}", host_name(), std::process::id()),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;

    /// Whoever was told that a term began is told that it is over, also if the process ends at that moment.
    #[tokio::test]
    async fn a_term_that_began_is_told_to_be_over() {
        for (release, expect) in [(false, "leader a, started 1, stopped 1"), (true, "leader a, started 1, stopped 1")] {
            let (leadership, seat) = Leadership::vacant();
            let (told, (end, ended)) = (Mutex::new(Vec::new()), oneshot::channel::<()>());
            let following = follow(leadership.changes(), async { drop(ended.await) }, |change| {
                told.lock().push(match change {
                    Change::Leader(leader) => format!("leader {leader}"),
                    Change::Started(term) => format!("started {}", term.number),
                    Change::Stopped(term) => format!("stopped {}", term.number),
                });
            });
            let mut following = pin!(following);
            seat.lead(Term { number: 1, holder: "a".into(), fence: None }, Instant::now() + Duration::from_secs(60));
            assert!(futures_util::poll!(following.as_mut()).is_pending());
            // Nobody is polled between the last change and the end.
            if release {
                seat.follow(None);
            }
            drop(end);
            following.await;
            assert_eq!(told.lock().join(", "), expect);
        }
    }
}
