//! When this member begins an election: if no leader was heard for so long that none can rely on this member, and if a majority says
//! that it would vote for it. Asking first (pre-vote) keeps a member that was cut off from deposing a leader that the others follow.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::ServerState;
use tokio::time::Instant;

use crate::member::MemberId;
use crate::node::Node;
use crate::wire::{Call, Reply};

/// Begins elections; never ends.
pub(crate) async fn watch(node: Arc<Node>) {
    loop {
        tokio::time::sleep_until(node.free_at() + node.jitter()).await;
        if Instant::now() <= node.free_at() {
            continue;
        }
        let state = node.raft.metrics().borrow().state;
        let may = matches!(state, ServerState::Follower | ServerState::Candidate);
        if may && would_win(&node).await && node.elect().await {
            tracing::debug!(cluster = node.cluster, member = node.me.name, "raft: an election begins");
        }
        // The others may have voted for one another.
        tokio::time::sleep(node.timing.election / 4 + node.jitter()).await;
    }
}

/// Whether a majority of every set of voters would vote for this member.
async fn would_win(node: &Arc<Node>) -> bool {
    let metrics = node.raft.metrics().borrow().clone();
    let last = node.raft.data_metrics().borrow().last_log;
    let membership = metrics.membership_config.membership();
    let voters: Vec<MemberId> = membership.voter_ids().collect();
    if !voters.contains(&node.id) {
        return false;
    }
    let mut granted = vec![node.id];
    let mut asked: FuturesUnordered<_> = voters
        .iter()
        .filter(|id| **id != node.id)
        .filter_map(|id| Some((*id, membership.get_node(id)?.address.clone())))
        .map(|(id, address)| async move {
            let limit = node.timing.election / 2;
            (id, node.ask_within(&address, Some(id), Call::PreVote(last), limit).await)
        })
        .collect();
    let is_enough = |granted: &[MemberId]| {
        let configs = membership.get_joint_config();
        configs.iter().all(|config| config.iter().filter(|id| granted.contains(id)).count() > config.len() / 2)
    };
    while !is_enough(&granted) {
        match asked.next().await {
            Some((id, Ok(Reply::PreVote(true)))) => granted.push(id),
            Some(_) => {}
            None => return false,
        }
    }
    true
}
