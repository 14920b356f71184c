//! Leader election of an operator: which instance works. In: settings, and functions that want to know. Out: the leadership that
//! controllers and writes ask, and the task that campaigns for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE, ObjectKey};
use konverge_runtime::{
    ClientLayers, Event, Leadership, LeaseElection, LeaseSpread, Recorder, Seat, Shards, Subject, TermGate,
};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc;

use super::EVENT_VERBS;
use super::campaign::{Campaign, Campaigns, Change, LeaderCallbacks, follow};
use super::election_group::PlannedGroup;
use super::manager::{Manager, host_name};
use super::sharding::Sharding;
use crate::probes::{GroupPage, LeaderPage};
use crate::rules::Rules;
use crate::settings::Settings;

/// The name of the check in readiness; for an election group, with a hyphen and the name of the group.
const CHECK: &str = "leader-election";

/// The name of the check whether this instance is a full member. A rollout goes on to the next instance when this one is ready, and must not
/// while those that vote would become too few.
const MEMBER_CHECK: &str = "raft-member";

/// How many wins may wait to be announced: one is read in milliseconds, and nobody wins twice in that time. What does not fit is left out.
const WINS: usize = 4;

/// How long reading the Lease may take before an Event is recorded without its uid.
const LEASE_READ_WITHIN: Duration = Duration::from_secs(5);

/// Which instance works: this one for as long as it runs, or the one that wins an election.
pub(super) struct Leader {
    pub leadership: Leadership,
    pub callbacks: LeaderCallbacks,
    campaign: Option<Election>,
    /// The shards, if the objects are divided among the instances.
    sharding: Option<Sharding>,
    /// Controllers that are elected apart from the others.
    groups: Vec<ElectedGroup>,
}

/// An election group, and how this instance takes part in its election.
struct ElectedGroup {
    name: Arc<str>,
    leadership: Leadership,
    callbacks: LeaderCallbacks,
    lease: LeaseElection,
    seat: Seat,
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
    /// Those of controllers that are elected apart from the others.
    pub groups: Vec<GroupClient>,
}

/// The client of an election group: what only the leader of the group may write.
#[derive(Clone)]
pub(crate) struct GroupClient {
    pub name: Arc<str>,
    pub client: Client,
    pub leadership: Leadership,
}

impl Clients {
    /// Those of the only instance.
    pub(crate) fn of_only(client: Client) -> Self {
        let leadership = Leadership::always("");
        Self { leader: client.clone(), every: client, leadership, shards: None, groups: Vec::new() }
    }
}

impl Leader {
    /// The only instance.
    #[cfg(test)]
    pub(super) fn always() -> Self {
        Self::without_groups(Leadership::always("test"), LeaderCallbacks::default())
    }

    fn without_groups(leadership: Leadership, callbacks: LeaderCallbacks) -> Self {
        Self { leadership, callbacks, campaign: None, sharding: None, groups: Vec::new() }
    }

    /// As settings say. `namespace` is where the Lease is if they do not say it, `controllers` how many controllers there are, and
    /// `groups` which of them are elected apart.
    pub(super) fn new(
        settings: &Settings,
        namespace: &str,
        callbacks: LeaderCallbacks,
        controllers: usize,
        groups: Vec<PlannedGroup>,
    ) -> Self {
        let identity: Arc<str> = identity().into();
        let election = &settings.leader_election;
        if settings.shards > 0 {
            let sharding = Sharding::new(settings, namespace, &identity, controllers);
            let leadership = sharding.leadership();
            return Self { sharding: Some(sharding), ..Self::without_groups(leadership, callbacks) };
        }
        if !election.enabled {
            return Self::without_groups(Leadership::always(&identity), callbacks);
        }
        let spread = LeaseSpread::default();
        let lease = |name: String| LeaseElection {
            name,
            namespace: election.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            identity: identity.clone(),
            timing: election.timing(),
            spread: spread.clone(),
        };
        let elected = |PlannedGroup { name, lease: of, callbacks }| {
            let (leadership, seat) = Leadership::vacant();
            ElectedGroup { name, leadership, callbacks, lease: lease(of), seat }
        };
        let (leadership, seat) = Leadership::vacant();
        let campaign = Some(Election::Lease(lease(settings.lease_name()), seat));
        let groups = groups.into_iter().map(elected).collect();
        Self { campaign, groups, ..Self::without_groups(leadership, callbacks) }
    }

    /// By this election, whatever settings say of a Lease.
    pub(super) fn elected_by(other: Box<dyn OtherElection>, callbacks: LeaderCallbacks) -> Self {
        let leadership = other.leadership();
        Self { campaign: Some(Election::Other(other)), ..Self::without_groups(leadership, callbacks) }
    }

    /// Whether there is an election.
    pub(super) fn is_elected(&self) -> bool {
        self.campaign.is_some()
    }

    /// What people see of it.
    pub(super) fn shown(&self) -> LeaderPage {
        let group = |group: &ElectedGroup| GroupPage {
            name: group.name.clone(),
            lease: group.lease.name.clone(),
            leadership: group.leadership.clone(),
        };
        LeaderPage {
            leadership: self.leadership.clone(),
            groups: self.groups.iter().map(group).collect(),
            shards: self.sharding.as_ref().map(|sharding| sharding.shards.clone()),
        }
    }

    /// The clients over this connection.
    pub(super) fn clients(&self, client: Client, layers: ClientLayers) -> Clients {
        let every = layers.clone().around(client.clone());
        let gated = |leadership: &Leadership| {
            layers.clone().gate(Arc::new(TermGate::new(leadership.clone()))).around(client.clone())
        };
        let leader = match self.campaign.is_some() || self.sharding.is_some() {
            true => gated(&self.leadership),
            false => every.clone(),
        };
        let group = |group: &ElectedGroup| GroupClient {
            name: group.name.clone(),
            client: gated(&group.leadership),
            leadership: group.leadership.clone(),
        };
        let groups = self.groups.iter().map(group).collect();
        let shards = self.sharding.as_ref().map(|sharding| sharding.shards.clone());
        Clients { leader, every, leadership: self.leadership.clone(), shards, groups }
    }

    /// Begins to campaign, and to tell whoever wants to know. The client must be one that works without a term.
    pub(super) fn start(self, client: Client, manager: &Manager<'_>) -> Campaigns {
        let Self { leadership, callbacks, campaign, sharding, groups } = self;
        let mut campaigns = Campaigns::default();
        if let Some(sharding) = sharding {
            campaigns.push(start_sharding(sharding, leadership, client.clone(), callbacks, manager));
        } else if let Some(election) = campaign {
            campaigns.push(match election {
                Election::Lease(lease, seat) => {
                    let elected = Elected { leadership, callbacks, check: CHECK.to_owned() };
                    start_lease(elected, lease, seat, client.clone(), manager, &manager.recorder)
                }
                Election::Other(other) => start_other(other, leadership, callbacks, manager),
            });
        }
        for ElectedGroup { name, leadership, callbacks, lease, seat } in groups {
            let elected = Elected { leadership, callbacks, check: format!("{CHECK}-{name}") };
            let recorder = manager.elected(Some(&name)).recorder;
            campaigns.push(start_lease(elected, lease, seat, client.clone(), manager, &recorder));
        }
        campaigns
    }
}

/// Who is told of an election, and the check in readiness that passes when it is known who leads.
struct Elected {
    leadership: Leadership,
    callbacks: LeaderCallbacks,
    check: String,
}

/// Begins to campaign for a Lease.
fn start_lease(
    elected: Elected,
    lease: LeaseElection,
    seat: Seat,
    client: Client,
    manager: &Manager<'_>,
    recorder: &Recorder,
) -> Campaign {
    let Elected { leadership, callbacks, check } = elected;
    manager.metrics.leader_election(&lease.name, leadership.clone());
    let (known, changes) = (manager.health.readiness(&check), leadership.changes());
    let (won, wins) = mpsc::channel(WINS);
    let announce = announce(wins, client.clone(), lease.clone(), recorder.clone());
    let tell = |ended| async move {
        let follow = follow(changes, ended, |change| {
            if let Change::Started(term) = &change {
                // A leader that changes faster than its Lease can be read is announced less often.
                let _ = won.try_send(term.holder.clone());
            }
            callbacks.tell(&change);
            known.pass();
        });
        tokio::select! {
            () = follow => {}
            () = announce => {}
        }
    };
    Campaign::start(leadership, |stopped| lease.campaign(client, seat, stopped), tell)
}

/// Begins an election that needs no Lease. Nothing tells about it in an Event: there is no object that it could be about.
fn start_other(
    other: Box<dyn OtherElection>,
    leadership: Leadership,
    callbacks: LeaderCallbacks,
    manager: &Manager<'_>,
) -> Campaign {
    manager.health.readiness_from(MEMBER_CHECK, other.readiness());
    manager.metrics.leader_election(&other.name(), leadership.clone());
    let (known, changes) = (manager.health.readiness(CHECK), leadership.changes());
    let tell = |ended| async move {
        follow(changes, ended, |change| {
            callbacks.tell(&change);
            known.pass();
        })
        .await;
    };
    Campaign::start(leadership, |stopped| until_stopped(other, stopped), tell)
}

/// Records an Event about the Lease for each win, and ends when there can be no more. `kubectl describe lease` finds Events by the uid of the Lease, which is
/// read for that; without it the Event is recorded all the same.
async fn announce(mut wins: mpsc::Receiver<Arc<str>>, client: Client, lease: LeaseElection, recorder: Recorder) {
    let api: Api<Lease> = Api::namespaced(client, &lease.namespace);
    while let Some(holder) = wins.recv().await {
        let found = tokio::time::timeout(LEASE_READ_WITHIN, api.get_metadata_opt(&lease.name)).await;
        let found = found.ok().and_then(Result::ok).flatten();
        let subject = Subject {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            key: ObjectKey::new(Some(&lease.namespace), &lease.name),
            uid: found.and_then(|found| found.metadata.uid).unwrap_or_default(),
        };
        let message = format!("{holder} became leader");
        let event = Event { reason: "LeaderElection".into(), message, ..Event::default() };
        recorder.record(&Arc::new(subject), event);
    }
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
    leadership: Leadership,
    client: Client,
    callbacks: LeaderCallbacks,
    manager: &Manager<'_>,
) -> Campaign {
    let (changes, shards) = (leadership.changes(), sharding.shards.clone());
    let tell = |ended| async move {
        let of_shards = callbacks.shards.clone();
        tokio::select! {
            () = super::sharding::follow(&shards, |held| of_shards.iter().for_each(|told| told(held))) => {}
            () = follow(changes, ended, |change| callbacks.tell(&change)) => {}
        }
    };
    let campaign = |stopped| sharding.start(client, manager.metrics, &manager.health, stopped);
    Campaign::start(leadership, campaign, tell)
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
