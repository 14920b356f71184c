//! Who holds which shard, by Leases. In: a client, and when to stop. Out: terms of shards, told to [`ShardSeats`]. The decisions are in
//! `replica`; here requests are sent, a watch is kept, and work on a shard is waited for before the shard is given up.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::Instant;

use super::leases::Group;
use super::replica::{Command, Replica};
use super::{ShardSeats, ShardsStatus};
use crate::clock;
use crate::lease::LeaseTiming;
use crate::lease::candidate::Failure;
use crate::lease::object::Lease;
use crate::term::Term;

/// How long a replica waits for its caches before it takes shards. A kind that is not installed must not keep the others waiting for ever.
const FILLED_WITHIN: Duration = Duration::from_secs(30);

/// How long the work on a shard may take to finish before the shard is given up. Its other objects wait meanwhile; what runs longer is
/// cut off.
const DRAINED_WITHIN: Duration = Duration::from_secs(5);

/// How long the own Lease may take to be released at the end, and before that the writes that are under way to be answered.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

type Watched = Pin<Box<dyn Stream<Item = Result<Event<Lease>, watcher::Error>> + Send>>;

/// The replicas of an operator divide its objects among themselves, by Leases.
#[derive(Clone, Debug)]
pub struct ShardElection {
    /// How the names of the Leases begin. All replicas need the same.
    pub group: String,
    /// Their namespace.
    pub namespace: String,
    /// How long a replica is believed to live after its last renewal, and how often it renews.
    pub timing: LeaseTiming,
}

/// What has ended.
enum Ended {
    Read(Result<Option<Lease>, Failure>),
    Wrote(String, Instant, Result<Lease, Failure>),
    Removed(Lease, Result<(), Failure>),
    Drained(usize),
}

impl ShardElection {
    /// Takes part until `stop` resolves, and tells the seats which shards this replica holds. Then it releases all of them, so that
    /// others take them at once. Work has to have ended by then: when `stop` resolves, all terms are over.
    ///
    /// The client must not be one whose writes wait for a term that is won here.
    pub async fn campaign(self, client: Client, seats: ShardSeats, stop: impl Future<Output = ()> + Send) {
        let mut stop = pin!(stop);
        let filled = async {
            if tokio::time::timeout(FILLED_WITHIN, seats.shards.filled()).await.is_err() {
                tracing::warn!("some caches are not filled; this replica takes shards all the same");
            }
        };
        tokio::select! {
            () = filled => {}
            () = &mut stop => return,
        }
        let group = Group { name: self.group.clone(), count: seats.shards.count() };
        let mut campaign = Campaign {
            api: Api::namespaced(client, &self.namespace),
            replica: Replica::new(group.clone(), seats.shards.identity().clone(), self.timing),
            listing: Vec::new(),
            told: vec![None; group.count],
            logged: BTreeSet::new(),
            election: &self,
            group,
            seats,
        };
        let mut watched = campaign.watch();
        let mut running = FuturesUnordered::new();
        loop {
            let now = clock::now();
            if campaign.seats.shards.0.is_leaving.load(Ordering::Relaxed) {
                campaign.replica.leave();
            }
            while let Some(command) = campaign.replica.step(now, Timestamp::now()) {
                match campaign.begin(command, now) {
                    Some(begun) => running.push(begun),
                    None => watched = campaign.watch(),
                }
            }
            campaign.report(now);
            let next = campaign.replica.next(now);
            tokio::select! {
                Some(ended) = running.next() => campaign.ended(ended),
                event = watched.next() => campaign.observe(event),
                () = sleep_until(next) => {}
                () = &mut stop => break,
            }
        }
        let Campaign { api, mut replica, seats, .. } = campaign;
        // The seats are vacated first: nothing is written for a term whose Lease is free.
        drop(seats);
        // A renewal that is under way decides which version of the own Lease is released.
        let answered = async {
            while let Some(ended) = running.next().await {
                if let Ended::Wrote(name, sent, answer) = ended {
                    replica.wrote(&name, sent, answer, clock::now());
                }
            }
        };
        let _ = tokio::time::timeout(RELEASED_WITHIN, answered).await;
        if let Some(lease) = replica.release(Timestamp::now()) {
            self.release(&api, &lease).await;
        }
    }

    async fn release(&self, api: &Api<Lease>, lease: &Lease) {
        let (post, name) = (PostParams::default(), name_of(lease));
        match tokio::time::timeout(RELEASED_WITHIN, api.replace(name, &post, lease)).await {
            Ok(Ok(_)) => tracing::info!(lease = name, "shards: all are released"),
            Ok(Err(error)) => {
                tracing::warn!(lease = name, %error, "shards could not be released; others wait until the Lease expires")
            }
            Err(_) => {
                tracing::warn!(
                    lease = name,
                    "shards could not be released in time; others wait until the Lease expires"
                )
            }
        }
    }
}

/// One replica at work.
struct Campaign<'a> {
    election: &'a ShardElection,
    group: Group,
    api: Api<Lease>,
    replica: Replica,
    seats: ShardSeats,
    /// The list that a new watch begins with, as far as it has come.
    listing: Vec<Lease>,
    /// What the seats were told: the number and the deadline of each shard's term.
    told: Vec<Option<(u64, Instant)>>,
    /// The shards that the log says are held.
    logged: BTreeSet<usize>,
}

impl Campaign<'_> {
    fn watch(&mut self) -> Watched {
        self.listing.clear();
        let (key, value) = self.group.label();
        let only = watcher::Config::default().labels(&format!("{key}={value}"));
        Box::pin(watcher(self.api.clone(), only).default_backoff())
    }

    /// What the watch says.
    fn observe(&mut self, event: Option<Result<Event<Lease>, watcher::Error>>) {
        let now = clock::now();
        match event {
            Some(Ok(Event::Apply(lease))) => self.replica.saw(lease, now),
            Some(Ok(Event::Delete(lease))) => self.replica.deleted(&lease, now),
            Some(Ok(Event::Init)) => self.listing.clear(),
            Some(Ok(Event::InitApply(lease))) => self.listing.push(lease),
            Some(Ok(Event::InitDone)) => self.replica.listed(std::mem::take(&mut self.listing), now),
            // The watch tries again by itself. A watch never ends otherwise.
            Some(Err(error)) => {
                tracing::debug!(%error, "the watch of the Leases of shards broke");
                self.replica.watch_broke();
            }
            None => self.replica.watch_broke(),
        }
    }

    /// A request, or the end of work on a shard; nothing for a new watch. It borrows nothing, so that all else goes on meanwhile.
    fn begin(&self, command: Command, sent: Instant) -> Option<Pin<Box<dyn Future<Output = Ended> + Send>>> {
        let (api, post, limit) = (self.api.clone(), PostParams::default(), self.election.timing.renew_deadline);
        Some(match command {
            Command::Read => {
                let name = self.group.replica_name(self.seats.shards.identity());
                Box::pin(async move { Ended::Read(within(limit / 2, "read", &name, api.get_opt(&name)).await) })
            }
            Command::Create(lease) => Box::pin(async move {
                let name = name_of(&lease);
                let answer = within(limit, "create", name, api.create(&post, &lease)).await;
                Ended::Wrote(name.to_owned(), sent, answer)
            }),
            Command::Replace(lease) => Box::pin(async move {
                let name = name_of(&lease);
                let answer = within(limit, "update", name, api.replace(name, &post, &lease)).await;
                Ended::Wrote(name.to_owned(), sent, answer)
            }),
            Command::Delete(lease) => Box::pin(async move {
                let name = name_of(&lease);
                let (resource_version, uid) = (lease.metadata.resource_version.clone(), lease.metadata.uid.clone());
                let unchanged = DeleteParams::default().preconditions(Preconditions { resource_version, uid });
                let answer = within(limit, "delete", name, api.delete(name, &unchanged)).await.map(drop);
                Ended::Removed(lease, answer)
            }),
            Command::Drain(shard) => {
                let drained = self.seats.drain(shard);
                Box::pin(async move {
                    if tokio::time::timeout(DRAINED_WITHIN, drained).await.is_err() {
                        tracing::warn!(shard, "cutting off reconciles of a shard that is given up");
                    }
                    Ended::Drained(shard)
                })
            }
            Command::Watch => return None,
        })
    }

    fn ended(&mut self, ended: Ended) {
        let now = clock::now();
        match ended {
            Ended::Read(answer) => self.replica.read(answer, now),
            Ended::Wrote(name, sent, answer) => self.replica.wrote(&name, sent, answer, now),
            Ended::Removed(lease, answer) => self.replica.removed(&lease, answer, now),
            Ended::Drained(shard) => {
                // What still runs is cut off, and cannot write any more.
                self.seats.follow(shard, None);
                self.told[shard] = None;
                self.replica.drained(shard);
            }
        }
    }

    /// Tells the seats, and the log if something has changed.
    fn report(&mut self, now: Instant) {
        let deadline = self.replica.deadline(now);
        let mut held = vec![None; self.group.count];
        if let Some(deadline) = deadline {
            self.replica.held().for_each(|(shard, number)| held[shard] = Some((number, deadline)));
        }
        let identity = self.seats.shards.identity().clone();
        for (shard, held) in held.iter().enumerate() {
            match held {
                Some((number, deadline)) if self.told[shard] != *held => {
                    let name = self.group.shard_name(shard);
                    let term = Term::of_lease(&self.election.namespace, &name, *number, &identity);
                    self.seats.lead(shard, term, *deadline);
                }
                Some(_) => {}
                None => {
                    let holder = self.replica.holder(shard, now).filter(|holder| **holder != identity);
                    self.seats.follow(shard, holder.cloned());
                }
            }
        }
        self.told = held;
        self.report_status();
        self.log(&identity);
    }

    fn report_status(&self) {
        let replicas = if self.replica.is_member() { self.replica.replicas() } else { 0 };
        let waiting = match (self.replica.is_member(), self.replica.other_count()) {
            (false, _) => Some("this replica is not one of the group yet".to_owned()),
            (true, Some(count)) => Some(format!(
                "other replicas divide the objects into {count} shards; this one waits until they have stopped"
            )),
            (true, None) => None,
        };
        let status = ShardsStatus { replicas, waiting };
        if let (Some(waiting), true) = (&status.waiting, self.seats.shards.status() != status) {
            tracing::info!(shards = self.group.count, "shards: {waiting}");
        }
        self.seats.status(status);
    }

    fn log(&mut self, identity: &Arc<str>) {
        let shards = self.told.iter().enumerate();
        let held: BTreeSet<usize> = shards.filter_map(|(shard, held)| held.map(|_| shard)).collect();
        if held == self.logged {
            return;
        }
        let names: Vec<String> = held.iter().map(ToString::to_string).collect();
        let (holds, of) = (names.join(","), self.group.count);
        tracing::info!(%identity, holds, of, replicas = self.replica.replicas(), "shards: what this replica holds has changed");
        self.logged = held;
    }
}

/// A request with a time limit. What went wrong is logged here; what comes of it is the replica's to decide.
async fn within<T>(
    limit: Duration,
    verb: &str,
    name: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(answer)) => Ok(answer),
        // Another replica was faster, or the Lease is gone: either is everyday life. What is not found when a Lease is created is its
        // namespace, and that has to be told.
        Ok(Err(kube::Error::Api(status))) if status.code == 409 || (status.code == 404 && verb != "create") => {
            Err(Failure::Conflict)
        }
        Ok(Err(error)) => {
            tracing::warn!(lease = name, %error, "cannot {verb} a Lease of the shards");
            Err(Failure::Other)
        }
        Err(_) => {
            tracing::warn!(lease = name, ?limit, "no answer in time: cannot {verb} a Lease of the shards");
            Err(Failure::Other)
        }
    }
}

fn name_of(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep(next.saturating_duration_since(clock::now())).await,
        None => std::future::pending().await,
    }
}
