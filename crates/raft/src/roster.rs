//! Who belongs to the cluster, decided by the leader: one change at a time. In: the members, who asked to join, who is gone. Out: the
//! next change. `next_change` is pure; the task around it looks and acts.
//!
//! A new incarnation of an instance takes the place of the one before in one change, when it has the log. A member is removed only if
//! nothing names it any more, and only after it has been gone for long. The leader never removes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::Instant;

use crate::joining::look_around;
use crate::member::{Member, MemberId, ordinal_of};
use crate::node::Node;
use crate::peers::Peers;
use crate::wire::Call;

/// How long a change may take. One that takes longer is begun again; a second one is refused while it goes on.
const CHANGED_WITHIN: Duration = Duration::from_secs(5);

/// What the leader knows of its cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    pub leader: MemberId,
    /// The sets of voters: two while they change.
    pub configs: Vec<BTreeSet<MemberId>>,
    /// All members, learners too.
    pub members: BTreeMap<MemberId, Member>,
    /// Members that have nearly all of the log.
    pub current: BTreeSet<MemberId>,
    /// Who asked to join lately.
    pub joining: BTreeMap<MemberId, Member>,
    /// Who has been gone for so long that it is to be removed.
    pub gone: BTreeSet<MemberId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// These voters alone, at the end of a change that was cut off.
    Voters(BTreeSet<MemberId>),
    Learner(MemberId, Member),
    Moved(MemberId, Member),
    Forget(MemberId),
}

pub(crate) fn next_change(roster: &Roster) -> Option<Step> {
    let voters = roster.configs.last()?;
    if roster.configs.len() > 1 {
        return Some(Step::Voters(voters.clone()));
    }
    for (id, member) in &roster.joining {
        match roster.members.get(id) {
            None => return Some(Step::Learner(*id, member.clone())),
            Some(known) if known != member => return Some(Step::Moved(*id, member.clone())),
            // The leader lives, so whoever has its ordinal waits until another leads.
            Some(_) if ordinal_of(*id) == ordinal_of(roster.leader) => {}
            Some(_) if !voters.contains(id) && roster.current.contains(id) => {
                // One voter for each instance: the incarnation before this one is gone for good.
                let stays = |voter: &&MemberId| ordinal_of(**voter) != ordinal_of(*id);
                let mut next: BTreeSet<MemberId> = voters.iter().filter(stays).copied().collect();
                next.insert(*id);
                return Some(Step::Voters(next));
            }
            Some(_) => {}
        }
    }
    let removable = |id: &&MemberId| **id != roster.leader && !roster.joining.contains_key(*id);
    if let Some(gone) = voters.intersection(&roster.gone).find(removable) {
        let next: BTreeSet<MemberId> = voters.iter().filter(|voter| *voter != gone).copied().collect();
        return Some(Step::Voters(next));
    }
    // A learner that is gone, or an incarnation that another has taken the place of.
    let is_replaced = |id: &MemberId| {
        voters.iter().chain(roster.joining.keys()).any(|other| other != id && ordinal_of(*other) == ordinal_of(*id))
    };
    let learners = roster.members.keys().filter(|id| !voters.contains(id)).filter(removable);
    learners.copied().find(|id| roster.gone.contains(id) || is_replaced(id)).map(Step::Forget)
}

/// Changes the members while this member leads; never ends.
pub(crate) async fn keep(node: Arc<Node>, peers: Peers, removed_after: Duration) {
    // Since when each member has been gone.
    let mut absent: BTreeMap<MemberId, Instant> = BTreeMap::new();
    let mut looked = Instant::now();
    let look_every = (removed_after / 4).clamp(Duration::from_millis(200), Duration::from_secs(10));
    loop {
        tokio::select! {
            () = node.joined.notified() => {}
            () = tokio::time::sleep(node.timing.search) => {}
        }
        let Some(mut roster) = node.roster().await else {
            absent.clear();
            continue;
        };
        let now = Instant::now();
        if now - looked >= look_every {
            looked = now;
            missing(&node, &peers, &roster.members, &mut absent).await;
        }
        roster.gone = gone(&absent, removed_after, now);
        while let Some(step) = next_change(&roster) {
            let change = tokio::time::timeout(CHANGED_WITHIN, carry_out(&node, step.clone())).await;
            match change {
                Ok(Ok(())) => {
                    tracing::info!(cluster = node.cluster, change = %shown(&step, &roster), "raft: members have changed")
                }
                Ok(Err(error)) => {
                    tracing::debug!(cluster = node.cluster, ?step, error, "raft: members could not be changed");
                    break;
                }
                Err(_) => break,
            }
            match node.roster().await {
                Some(next) => roster = Roster { gone: std::mem::take(&mut roster.gone), ..next },
                None => break,
            }
        }
    }
}

/// Notes who is neither there nor expected, and since when. If that cannot be told, nobody is.
pub(crate) async fn missing(
    node: &Arc<Node>,
    peers: &Peers,
    members: &BTreeMap<MemberId, Member>,
    absent: &mut BTreeMap<MemberId, Instant>,
) {
    let Ok(seen) = look_around(node, peers).await else {
        absent.clear();
        return;
    };
    let now = Instant::now();
    let mut still = BTreeMap::new();
    for (id, member) in members {
        let is_seen = *id == node.id || seen.introductions.iter().any(|other| other.id == *id);
        // One that nothing names may still be where it was.
        if !is_seen
            && !peers.expects(member, seen.instances).await
            && node.ask(&member.address, Some(*id), Call::Hello).await.is_err()
        {
            still.insert(*id, absent.get(id).copied().unwrap_or(now));
        }
    }
    *absent = still;
}

/// Who has been absent for this long.
pub(crate) fn gone(absent: &BTreeMap<MemberId, Instant>, removed_after: Duration, now: Instant) -> BTreeSet<MemberId> {
    absent
        .iter()
        .filter(|(_, since)| now.saturating_duration_since(**since) >= removed_after)
        .map(|(id, _)| *id)
        .collect()
}

async fn carry_out(node: &Node, step: Step) -> Result<(), String> {
    let raft = &node.raft;
    let changed = match step {
        Step::Voters(voters) => raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), false).await,
        Step::Learner(id, member) => raft.add_learner(id, member, false).await,
        Step::Moved(id, member) => raft.change_membership(ChangeMembers::SetNodes([(id, member)].into()), true).await,
        Step::Forget(id) => raft.change_membership(ChangeMembers::RemoveNodes([id].into()), true).await,
    };
    changed.map(drop).map_err(|error| error.to_string())
}

/// A change in words.
fn shown(step: &Step, roster: &Roster) -> String {
    let name = |id: &MemberId| roster.members.get(id).map_or_else(|| id.to_string(), |member| member.name.clone());
    match step {
        Step::Voters(voters) => format!("voters are {}", voters.iter().map(name).collect::<Vec<_>>().join(", ")),
        Step::Learner(_, member) => format!("{} learns", member.name),
        Step::Moved(_, member) => format!("{} is at {}", member.name, member.address),
        Step::Forget(id) => format!("{} is forgotten", name(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::new_id;

    const A: MemberId = 1 << 16;
    const B: MemberId = 1 << 16 | 1;
    const C: MemberId = 1 << 16 | 2;

    fn member(id: MemberId) -> Member {
        Member { ordinal: ordinal_of(id), name: String::new(), address: ordinal_of(id).to_string() }
    }

    struct Given<'a> {
        configs: &'a [&'a [MemberId]],
        learners: &'a [MemberId],
        current: &'a [MemberId],
        joining: &'a [MemberId],
        gone: &'a [MemberId],
    }

    const NOBODY: Given<'static> =
        Given { configs: &[&[A, B, C]], learners: &[], current: &[], joining: &[], gone: &[] };

    fn check(given: Given<'_>, expect: Option<Step>) {
        let roster = Roster {
            leader: A,
            configs: given.configs.iter().map(|voters| voters.iter().copied().collect()).collect(),
            members: given.configs.concat().iter().chain(given.learners).map(|id| (*id, member(*id))).collect(),
            current: given.current.iter().copied().collect(),
            joining: given.joining.iter().map(|id| (*id, member(*id))).collect(),
            gone: given.gone.iter().copied().collect(),
        };
        assert_eq!(next_change(&roster), expect, "{roster:?}");
    }

    fn voters(ids: &[MemberId]) -> Option<Step> {
        Some(Step::Voters(ids.iter().copied().collect()))
    }

    #[test]
    fn who_asks_learns_and_then_votes() {
        check(NOBODY, None);
        check(Given { joining: &[B], ..NOBODY }, None);
        check(Given { configs: &[&[A]], joining: &[B], ..NOBODY }, Some(Step::Learner(B, member(B))));
        let learning = Given { configs: &[&[A]], learners: &[B], joining: &[B], ..NOBODY };
        check(Given { ..learning }, None);
        check(Given { current: &[B], ..learning }, voters(&[A, B]));
        // Who does not ask stays what it is.
        check(Given { configs: &[&[A]], learners: &[B], current: &[B], ..NOBODY }, None);
    }

    #[test]
    fn a_new_incarnation_takes_the_place_of_the_one_before() {
        let new = new_id(2, 9);
        check(Given { learners: &[new], joining: &[new], current: &[new], ..NOBODY }, voters(&[A, B, new]));
        check(Given { configs: &[&[A, B, new]], learners: &[C], ..NOBODY }, Some(Step::Forget(C)));
        // Never that of the leader.
        let other = new_id(0, 9);
        check(Given { learners: &[other], joining: &[other], current: &[other], ..NOBODY }, None);
    }

    #[test]
    fn one_change_is_finished_before_the_next() {
        check(Given { configs: &[&[A], &[A, B]], joining: &[C], ..NOBODY }, voters(&[A, B]));
    }

    #[test]
    fn who_is_gone_is_removed_but_never_the_leader() {
        check(Given { gone: &[C], ..NOBODY }, voters(&[A, B]));
        check(Given { gone: &[A], ..NOBODY }, None);
        check(Given { gone: &[C], joining: &[C], ..NOBODY }, None);
        check(Given { configs: &[&[A, B]], learners: &[C], gone: &[C], ..NOBODY }, Some(Step::Forget(C)));
    }
}
