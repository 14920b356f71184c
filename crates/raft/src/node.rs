//! One member: openraft with what surrounds it. In: questions of other members, and what the tasks of this member want. Out: answers.
//!
//! ```text
//! joining    founds or joins a cluster            roster    changes the members, while this one leads
//! election   begins an election when it is time   campaign  tells the seat who leads
//! network    what openraft sends                  replicated   reads and writes of the program
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use openraft::error::{InitializeError, RaftError};
use openraft::raft::{AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{LogIdOptionExt, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock};
use tokio::time::Instant;

use crate::lease::QuorumLease;
use crate::member::{Member, MemberId, Raft, Vote, ordinal_of};
use crate::network::Network;
use crate::random::Random;
use crate::roster::Roster;
use crate::storage::Machine;
use crate::timing::Timing;
use crate::transport::Transport;
use crate::wire::{Answer, Call, Envelope, Introduction, Refusal, Reply};

/// Entries that a learner may lack when it becomes a voter: what is written while the change is made.
const LAG: u64 = 64;

/// How long a request to join counts; whoever wants to join asks more often.
const JOINS_COUNT_FOR: Duration = Duration::from_secs(10);

/// Requests to join that are kept: one for each instance, and nobody has more.
const MAX_JOINS: usize = 64;

/// Bytes of a snapshot that are sent at once, and how long the answer may take: it is written to the disk first.
const SNAPSHOT_PIECE: u64 = 1 << 20;
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(10);

/// Entries that are kept although a snapshot has them, so that a member that was away for a moment needs no snapshot.
const KEPT_BEHIND_SNAPSHOT: u64 = 1000;

/// Bytes that a log may always have, however few the state may: a snapshot for every other entry would cost more than it saves.
const LEAST_LOG_BYTES: u64 = 1 << 20;

/// What a member is made of.
pub(crate) struct Parts {
    pub id: MemberId,
    pub me: Member,
    pub cluster: String,
    pub timing: Timing,
    pub snapshot_after: u64,
    pub limits: Limits,
    pub transport: Arc<dyn Transport>,
    pub random: Random,
}

/// The bounds of the replicated state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub value: usize,
    pub total: u64,
}

pub(crate) struct Node {
    pub id: MemberId,
    pub me: Member,
    pub cluster: String,
    pub timing: Timing,
    pub limits: Limits,
    pub raft: Raft,
    pub machine: Machine,
    pub lease: Arc<QuorumLease>,
    /// Whether votes and log are gone with the process.
    pub forgets: bool,
    /// Rings when somebody asks to join.
    pub joined: Notify,
    transport: Arc<dyn Transport>,
    random: Mutex<Random>,
    /// When a leader was heard last. An election waits for as long as others may rely on what this member acknowledged.
    heard: Mutex<Instant>,
    /// Held to read while something of a leader is accepted, and to write from the look at `heard` to the begin of an election, so that
    /// nothing is acknowledged between the two.
    elections: RwLock<()>,
    joins: Mutex<BTreeMap<u64, (MemberId, Member, Instant)>>,
    /// Tells the requests of this process from those of the ones before it, which had the same id if it has storage.
    pub session: u64,
    requests: AtomicU64,
    /// Set when the manager is dropped: openraft lives on for as long as somebody has a handle to the replicated state, and must not keep
    /// others from electing a leader.
    pub closed: Arc<AtomicBool>,
    /// Whether there was a log when it started. openraft's metrics are empty for a moment then.
    had_log: bool,
    /// The vote under which it led when it ended, and the index of the last entry of its log. openraft has it lead on under this vote, and
    /// then does not know at first what was committed: all of this may be.
    led: Option<(Vote, u64)>,
}

impl Node {
    /// Starts openraft over this storage. The tasks that make a member of it are not begun.
    pub(crate) async fn start<L>(parts: Parts, mut log: L, machine: Machine, forgets: bool) -> Result<Arc<Self>, String>
    where
        L: openraft::storage::RaftLogStorage<crate::member::Types>,
    {
        let Parts { id, me, cluster, timing, snapshot_after, limits, transport, mut random } = parts;
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let config = openraft::Config {
            cluster_name: cluster.clone(),
            heartbeat_interval: milliseconds(timing.heartbeat),
            // How long a vote may take to be answered, and nothing else: elections are begun here.
            election_timeout_min: milliseconds(timing.election) - 1,
            // How long nobody is granted a vote after something of a leader was accepted.
            election_timeout_max: milliseconds(timing.election),
            enable_elect: false,
            install_snapshot_timeout: milliseconds(SNAPSHOT_WITHIN),
            snapshot_max_chunk_size: SNAPSHOT_PIECE,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_after),
            max_in_snapshot_log_to_keep: KEPT_BEHIND_SNAPSHOT.min(snapshot_after),
            replication_lag_threshold: snapshot_after.max(LAG),
            ..openraft::Config::default()
        };
        let config = Arc::new(config.validate().map_err(|error| error.to_string())?);
        let lease = QuorumLease::new();
        let closed: Arc<AtomicBool> = Arc::default();
        let network = Network::new(id, cluster.clone(), transport.clone(), lease.clone(), timing, closed.clone());
        let vote = log.read_vote().await.map_err(|error| error.to_string())?;
        let last = log.get_log_state().await.map_err(|error| error.to_string())?.last_log_id.index();
        let led = vote.filter(|vote| vote.is_committed() && vote.leader_id().voted_for() == Some(id));
        let raft = Raft::new(id, config, network, log, machine.clone()).await.map_err(|error| error.to_string())?;
        let had_log = raft.is_initialized().await.map_err(|error| error.to_string())?;
        Ok(Arc::new(Self {
            id,
            me,
            cluster,
            timing,
            limits,
            raft,
            machine,
            lease,
            forgets,
            joined: Notify::new(),
            transport,
            session: random.next(),
            closed,
            had_log,
            led: led.zip(last),
            random: Mutex::new(random),
            // Whoever starts may have acknowledged something just before.
            heard: Mutex::new(Instant::now()),
            elections: RwLock::new(()),
            joins: Mutex::default(),
            requests: AtomicU64::new(0),
        }))
    }

    /// Answers a member of the same cluster.
    pub(crate) async fn answer(&self, envelope: Envelope) -> Answer {
        if envelope.cluster != self.cluster {
            return Err(Refusal::OtherCluster(self.cluster.clone()));
        }
        if envelope.to.is_some_and(|to| to != self.id) {
            return Err(Refusal::OtherMember);
        }
        match envelope.call {
            Call::Hello => Ok(Reply::Hello(self.introduction())),
            Call::Join(member) => self.take_join(envelope.from, member),
            Call::PreVote(last) => {
                let mine = self.raft.data_metrics().borrow().last_log;
                Ok(Reply::PreVote(last >= mine && self.is_free(Instant::now())))
            }
            Call::Elect(vote) => self.take_over(vote).await,
            Call::Append(request) => {
                let vote = request.vote;
                let _guard = self.elections.read().await;
                let response = self.raft.append_entries(request).await.map_err(failed)?;
                if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                    self.hear(&vote);
                }
                Ok(Reply::Append(response))
            }
            Call::Snapshot(request) => {
                let vote = request.vote;
                let _guard = self.elections.read().await;
                let response = self.raft.install_snapshot(request).await;
                if response.is_ok() {
                    self.hear(&vote);
                }
                Ok(Reply::Snapshot(response))
            }
            Call::Vote(request) => self.vote(request).await.map(Reply::Vote),
            Call::Write(command) => self.write_here(command).await,
            Call::Get(key) => self.get_here(&key).await.map(Reply::Got),
            Call::ReadIndex => self.read_index_here().await.map(Reply::ReadIndex),
        }
    }

    /// Asks whoever listens at this address, and whoever has this id there.
    pub(crate) async fn ask(&self, address: &str, to: Option<MemberId>, call: Call) -> Result<Reply, Refusal> {
        self.ask_within(address, to, call, self.timing.election.max(Duration::from_millis(500))).await
    }

    pub(crate) async fn ask_within(
        &self,
        address: &str,
        to: Option<MemberId>,
        call: Call,
        limit: Duration,
    ) -> Result<Reply, Refusal> {
        let envelope = Envelope { cluster: self.cluster.clone(), from: self.id, to, call };
        let answer = self.transport.call(address, envelope, limit).await;
        answer.map_err(|error| Refusal::Failed(error.to_string()))?
    }

    fn introduction(&self) -> Introduction {
        let leader = self.leader_member(Instant::now());
        Introduction { id: self.id, member: self.me.clone(), has_cluster: self.voters().is_some(), leader }
    }

    /// The sets of voters of the cluster that this member belongs to, two while they change, if it has a log.
    pub(crate) fn voters(&self) -> Option<Vec<BTreeSet<MemberId>>> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let is_empty = metrics.last_log_index.is_none() && metrics.vote == Vote::default();
        (self.had_log || !is_empty).then(|| metrics.membership_config.membership().get_joint_config().clone())
    }

    /// All members that this one knows of.
    pub(crate) fn members(&self) -> BTreeMap<MemberId, Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        metrics.membership_config.membership().nodes().map(|(id, member)| (*id, member.clone())).collect()
    }

    fn hear(&self, vote: &Vote) {
        // Of another leader, so its own term is over.
        self.lease.yield_to(vote);
        *self.heard.lock() = Instant::now();
    }

    /// Whether this member leads, or has heard from a leader lately.
    pub(crate) fn has_leader(&self, now: Instant) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leads = metrics.current_leader == Some(self.id) && self.lease.is_held(konverge_leadership::now());
        let is_recent = now.saturating_duration_since(*self.heard.lock()) < self.timing.election * 3;
        let follows = metrics.current_leader.is_some_and(|leader| leader != self.id) && is_recent;
        // A learner goes on to ask until it has a vote.
        leads || follows && metrics.membership_config.voter_ids().any(|voter| voter == self.id)
    }

    /// The leader, if this member leads or has heard from it lately.
    fn leader_member(&self, now: Instant) -> Option<Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leader = metrics.current_leader?;
        if leader == self.id {
            return self.lease.is_held(konverge_leadership::now()).then(|| self.me.clone());
        }
        let is_recent = now.saturating_duration_since(*self.heard.lock()) < self.timing.election * 3;
        metrics.membership_config.membership().get_node(&leader).filter(|_| is_recent).cloned()
    }

    /// Whether this member may vote: it does not lead, and no leader relies on it.
    fn is_free(&self, now: Instant) -> bool {
        !self.lease.is_held(konverge_leadership::now()) && now > *self.heard.lock() + self.timing.election
    }

    /// When the leader that was heard last can no longer rely on this member.
    pub(crate) fn free_at(&self) -> Instant {
        *self.heard.lock() + self.timing.election
    }

    pub(crate) fn jitter(&self) -> Duration {
        self.random.lock().up_to(self.timing.jitter)
    }

    async fn vote(&self, request: VoteRequest<MemberId>) -> Result<VoteResponse<MemberId>, Refusal> {
        if self.lease.is_held(konverge_leadership::now()) {
            // As a follower that hears from its leader: neither the vote nor the term of the other is taken over.
            let metrics = self.raft.metrics();
            let vote = metrics.borrow().vote;
            let last = self.raft.data_metrics().borrow().last_log;
            return Ok(VoteResponse::new(vote, last, false));
        }
        let vote = request.vote;
        let response = self.raft.vote(request).await.map_err(failed)?;
        if response.vote_granted {
            // Before the other one hears of it.
            self.lease.yield_to(&vote);
        }
        Ok(response)
    }

    /// Begins an election if nobody relies on this member at this moment. Says whether it did.
    pub(crate) async fn elect(&self) -> bool {
        let _guard = self.elections.write().await;
        let is_free = self.is_free(Instant::now());
        is_free && self.raft.trigger().elect().await.is_ok()
    }

    /// The leader with this vote stops. A leader that came after it relies on this member, and then nothing happens.
    async fn take_over(&self, from: Vote) -> Answer {
        let _guard = self.elections.write().await;
        let id = self.id;
        let state = self.raft.with_raft_state(move |state| {
            let is_voter = state.membership_state.effective().voter_ids().any(|voter| voter == id);
            (*state.vote_ref(), is_voter)
        });
        let (vote, is_voter) = state.await.map_err(failed)?;
        if vote != from || !is_voter {
            return Err(Refusal::Failed("this member follows another leader, or is no voter".into()));
        }
        self.raft.trigger().elect().await.map_err(failed)?;
        Ok(Reply::Electing)
    }

    fn take_join(&self, id: MemberId, member: Member) -> Answer {
        let now = Instant::now();
        if self.raft.metrics().borrow().state != ServerState::Leader {
            return Err(Refusal::NotLeader(self.leader_member(now)));
        }
        let ordinal = ordinal_of(id);
        if member.ordinal != ordinal {
            return Err(Refusal::Malformed(format!("the ordinal of the member is {ordinal}, not {}", member.ordinal)));
        }
        let mut joins = self.joins.lock();
        joins.retain(|_, (_, _, asked)| now - *asked < JOINS_COUNT_FOR);
        if joins.len() >= MAX_JOINS && !joins.contains_key(&ordinal) {
            return Err(Refusal::Failed("too many members join at the same time".into()));
        }
        joins.insert(ordinal, (id, member, now));
        self.joined.notify_one();
        Ok(Reply::Joining)
    }

    /// Asks to join, at one address after the other.
    pub(crate) async fn join(&self, addresses: &[String]) -> String {
        let mut failure = String::new();
        for address in addresses {
            match self.ask(address, None, Call::Join(self.me.clone())).await {
                Ok(_) => return format!("joining the cluster of {address}"),
                Err(error) => failure = format!("cannot join the cluster of {address}: {error}"),
            }
        }
        failure
    }

    /// Founds a cluster of this member alone.
    pub(crate) async fn found(&self) -> String {
        let members: BTreeMap<MemberId, Member> = [(self.id, self.me.clone())].into();
        match self.raft.initialize(members).await {
            Ok(()) => "founded the cluster".to_owned(),
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => "the cluster was founded already".to_owned(),
            Err(error) => format!("cannot found the cluster: {error}"),
        }
    }

    /// What this member knows of its cluster, if it leads.
    pub(crate) async fn roster(&self) -> Option<Roster> {
        let now = Instant::now();
        let metrics = self.raft.metrics().borrow().clone();
        let replication = metrics.replication?;
        let is_current = |matched: Option<u64>| metrics.last_log_index.unwrap_or(0) <= matched.unwrap_or(0) + LAG;
        let current = replication.iter().filter(|(_, matched)| matched.is_some() && is_current(matched.index()));
        let membership = metrics.membership_config.membership();
        let joins = self.joins.lock();
        let joining = joins.values().filter(|(_, _, asked)| now - *asked < JOINS_COUNT_FOR);
        Some(Roster {
            leader: self.id,
            configs: membership.get_joint_config().clone(),
            members: membership.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            current: current.map(|(id, _)| *id).collect(),
            joining: joining.map(|(id, member, _)| (*id, member.clone())).collect(),
            gone: Default::default(),
        })
    }

    /// Has a snapshot take the place of the log whenever its entries have more bytes than the state may have; never ends. Entries are
    /// counted by openraft, but a few of them can be large.
    pub(crate) async fn bound_log(&self) {
        let bound = self.limits.total.max(LEAST_LOG_BYTES);
        let mut logged = self.machine.logged();
        // The sender is in the machine, which this node has.
        while logged.wait_for(|bytes| *bytes > bound).await.is_ok() {
            let applied = self.machine.applied();
            if self.raft.trigger().snapshot().await.is_err() {
                // openraft has ended, and the campaign says why.
                return std::future::pending().await;
            }
            let mut metrics = self.raft.metrics();
            let has_it = metrics.wait_for(|now| now.snapshot.index() >= Some(applied));
            // One that had begun before may come first, and then another one is asked for.
            if matches!(tokio::time::timeout(self.timing.search, has_it).await, Ok(Ok(_))) {
                let _ = self.raft.trigger().purge_log(applied).await;
            }
        }
    }

    /// Up to where the log may have been committed under the vote that this member led with before it was started again; 0 once there
    /// was another vote.
    pub(crate) fn committed_before(&self) -> u64 {
        let metrics = self.raft.metrics();
        let vote = metrics.borrow().vote;
        self.led.as_ref().filter(|(led, _)| *led >= vote).map_or(0, |(_, index)| *index)
    }

    /// The number of the next request of this member.
    pub(crate) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed)
    }

    /// Gives up leading, and has another member elected at once if there is one. Within this time, whatever happens.
    pub(crate) async fn hand_over(&self, within: Duration) {
        self.lease.give_up();
        let metrics = self.raft.metrics().borrow().clone();
        if metrics.state != ServerState::Leader {
            return;
        }
        let handed = tokio::time::timeout(within, async {
            // The one that has most of the log first.
            let mut voters: Vec<(u64, MemberId)> = metrics
                .replication
                .iter()
                .flatten()
                .filter(|(id, _)| **id != self.id && metrics.membership_config.voter_ids().any(|voter| voter == **id))
                .map(|(id, matched)| (matched.index().unwrap_or(0), *id))
                .collect();
            voters.sort_unstable_by(|a, b| b.cmp(a));
            for (_, id) in voters {
                let Some(member) = metrics.membership_config.membership().get_node(&id) else { continue };
                let asked = self.ask(&member.address, Some(id), Call::Elect(metrics.vote)).await;
                if asked.is_err() {
                    continue;
                }
                let mut changes = self.raft.metrics();
                let other = changes.wait_for(|now| now.current_leader.is_some_and(|leader| leader != self.id));
                let is_elected = tokio::time::timeout(self.timing.election, other).await.is_ok();
                if is_elected {
                    tracing::info!(cluster = self.cluster, to = member.name, "raft: another member leads");
                    return;
                }
            }
        });
        if handed.await.is_err() {
            tracing::warn!(
                cluster = self.cluster,
                "raft: the lead could not be handed over in time; others elect a leader soon"
            );
        }
    }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}
