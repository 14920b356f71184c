//! Tells the seat who leads. In: openraft's state, and the lease that a quorum grants. Out: terms.
//!
//! A term begins with an entry in the log, whose place decides its number: so numbers grow from leader to leader, and a leader that has
//! begun one has carried out everything that was acknowledged before. A term that is over, because the lease was, is followed by one
//! with another number, also if no other member was elected between.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use konverge_leadership::Term;
use tokio::time::Instant;

use crate::member::{MemberId, Vote, identity};
use crate::node::Node;
use crate::state::{Command, Outcome};

/// How long the entry that begins a term may take. Without it nothing is lost: another one is written.
const BEGUN_WITHIN: Duration = Duration::from_secs(2);

/// Campaigns until openraft stops, and returns why.
pub(crate) async fn campaign(node: Arc<Node>) -> String {
    // Those that change when the state does. The others are sent for every question that openraft is asked, and one is asked here.
    let mut changes = node.raft.server_metrics();
    let me: Arc<str> = identity(&node.me.name, node.id).into();
    // The term of this member, the vote that it was begun under, and its deadline.
    let mut begun: Option<(Vote, u64, Instant)> = None;
    let mut beginning: Option<Beginning> = None;
    // A number that the seat has not been told.
    let mut ready: Option<(Vote, u64)> = None;
    let mut said = String::new();
    loop {
        let now = konverge_leadership::now();
        // In this order: the voters are those after the acknowledgements.
        let acknowledgements = node.lease.acknowledgements(now);
        let state = node.raft.with_raft_state(|state| {
            let configs = state.membership_state.effective().get_joint_config().clone();
            (*state.vote_ref(), configs)
        });
        let (vote, configs) = match state.await {
            Ok(state) => state,
            Err(error) => return format!("raft has stopped: {error}"),
        };
        // One that has given up begins no term: the entry would keep a member that lacks it from taking over.
        let leads = vote.is_committed() && vote.leader_id().voted_for() == Some(node.id) && !node.lease.is_given_up();
        let now = konverge_leadership::now();
        if begun.is_some_and(|(under, _, deadline)| !leads || under != vote || deadline <= now) {
            begun = None;
        }
        if !leads {
            (beginning, ready) = (None, None);
            node.lease.follow(leader(&node));
        } else {
            let deadline = acknowledgements.deadline(&vote, node.id, &configs, node.timing.lease);
            let deadline = deadline.filter(|deadline| *deadline > now);
            match (&mut begun, deadline) {
                (Some((_, number, until)), Some(deadline)) => {
                    let deadline = deadline.max(*until);
                    let term = Term { number: *number, holder: me.clone(), fence: None };
                    if node.lease.hold(&vote, term, deadline, now) {
                        *until = deadline;
                    } else {
                        begun = None;
                    }
                }
                (Some(_), None) => {}
                (None, Some(deadline)) => match ready.take().filter(|(under, _)| *under == vote) {
                    Some((_, number)) => {
                        let term = Term { number, holder: me.clone(), fence: None };
                        begun = node.lease.hold(&vote, term, deadline, now).then_some((vote, number, deadline));
                    }
                    None => {
                        node.lease.follow(None);
                        if beginning.as_ref().is_none_or(|beginning| beginning.under != vote) {
                            beginning = Some(Beginning::new(&node, vote, me.to_string()));
                        }
                    }
                },
                (None, None) => node.lease.follow(None),
            }
        }
        report(&node, begun.map(|(_, number, _)| number), &mut said);

        let over = begun.map(|(_, _, deadline)| deadline);
        tokio::select! {
            () = node.lease.acknowledged.notified() => {}
            changed = changes.changed() => {
                if changed.is_err() {
                    return "raft has stopped".to_owned();
                }
            }
            () = until(over) => {}
            // A lease of one voter is not acknowledged by anybody.
            () = tokio::time::sleep(node.timing.heartbeat) => {}
            number = Beginning::ended(&mut beginning) => {
                let under = beginning.take().map(|beginning| beginning.under);
                ready = under.zip(number);
            }
        }
    }
}

/// A term that is about to begin.
struct Beginning {
    under: Vote,
    number: BoxFuture<'static, Option<u64>>,
}

impl Beginning {
    fn new(node: &Arc<Node>, under: Vote, holder: String) -> Self {
        let raft = node.raft.clone();
        let written = async move { raft.client_write(Command::BeginTerm { holder }).await };
        let number = async move {
            let response = tokio::time::timeout(BEGUN_WITHIN, written).await.ok()?.ok()?;
            // An entry of an earlier reign of this member has a number that others may have overtaken.
            let is_of_this_vote = response.log_id.leader_id == *under.leader_id();
            match response.data {
                Outcome::Begun { number } if is_of_this_vote => Some(number),
                _ => None,
            }
        };
        Self { under, number: number.boxed() }
    }

    /// The number of the term; none if it did not begin. Never, if none is about to.
    async fn ended(beginning: &mut Option<Self>) -> Option<u64> {
        match beginning {
            Some(beginning) => Pin::new(&mut beginning.number).await,
            None => std::future::pending().await,
        }
    }
}

/// The identity of the leader that this member follows.
fn leader(node: &Node) -> Option<Arc<str>> {
    let metrics = node.raft.metrics();
    let metrics = metrics.borrow();
    let leader: MemberId = metrics.current_leader.filter(|leader| *leader != node.id)?;
    let member = metrics.membership_config.membership().get_node(&leader)?;
    Some(identity(&member.name, leader).into())
}

fn report(node: &Node, number: Option<u64>, said: &mut String) {
    let sentence = match (number, node.lease.leadership().leader()) {
        (Some(number), _) => format!("leading in term {number}"),
        (None, Some(leader)) => format!("following {leader}"),
        (None, None) => "nobody leads".to_owned(),
    };
    if *said != sentence {
        let (cluster, member) = (&node.cluster, &node.me.name);
        match said.starts_with("leading") {
            true => tracing::warn!(%cluster, %member, was = said.as_str(), "raft: the term is over; {sentence}"),
            false => tracing::info!(%cluster, %member, "raft: {sentence}"),
        }
        *said = sentence;
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.saturating_duration_since(konverge_leadership::now())).await,
        None => std::future::pending().await,
    }
}
