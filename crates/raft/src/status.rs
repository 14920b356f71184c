//! What a member says of itself, for pages and metrics. Plain values.

use openraft::{LogIdOptionExt, ServerState};

use crate::member::identity;
use crate::node::Node;

/// How a member and its cluster are, as this member knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaftStatus {
    /// The name of the cluster.
    pub cluster: String,
    /// The identity of this member.
    pub member: String,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub role: &'static str,
    /// Raft's own term: it grows with every election, also with those that nobody wins.
    pub raft_term: u64,
    /// The identity of the leader, if one is known.
    pub leader: Option<String>,
    /// The identities of the voters.
    pub voters: Vec<String>,
    /// The identities of members that have no vote yet.
    pub learners: Vec<String>,
    /// Whether the last change of members that this member knows of is complete: until then it may have been for nothing.
    pub is_settled: bool,
    /// The index of the last entry of the log; 0 if it is empty.
    pub last_log_index: u64,
    /// The index of the last entry that was carried out.
    pub last_applied_index: u64,
    /// The index of the last entry that the newest snapshot has.
    pub snapshot_index: u64,
    /// The index of the last entry that was removed from the log, because a snapshot has it.
    pub purged_index: u64,
    /// Bytes of the keys and values of the replicated state.
    pub state_bytes: u64,
}

impl Node {
    pub(crate) fn status(&self) -> RaftStatus {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let named = |id: &u64| {
            let name = membership.get_node(id).map_or("unknown", |member| member.name.as_str());
            identity(name, *id)
        };
        let (mut voters, mut learners): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (id, _) in membership.nodes() {
            match membership.voter_ids().any(|voter| voter == *id) {
                true => voters.push(named(id)),
                false => learners.push(named(id)),
            }
        }
        RaftStatus {
            cluster: self.cluster.clone(),
            member: identity(&self.me.name, self.id),
            role: match metrics.state {
                ServerState::Leader => "leader",
                ServerState::Follower => "follower",
                ServerState::Candidate => "candidate",
                ServerState::Learner => "learner",
                ServerState::Shutdown => "stopped",
            },
            raft_term: metrics.current_term,
            leader: metrics.current_leader.as_ref().map(named),
            voters,
            learners,
            is_settled: membership.get_joint_config().len() < 2
                && metrics.last_applied >= *metrics.membership_config.log_id(),
            last_log_index: metrics.last_log_index.unwrap_or(0),
            last_applied_index: metrics.last_applied.index().unwrap_or(0),
            snapshot_index: metrics.snapshot.index().unwrap_or(0),
            purged_index: metrics.purged.index().unwrap_or(0),
            state_bytes: self.machine.read(crate::state::State::bytes),
        }
    }
}
