//! How a member comes to a cluster. In: who answers at the addresses of the others. Out: whether to found a cluster, to join one, or
//! to wait. `decide` is pure; the task around it asks and acts.
//!
//! A cluster is founded once, by the member with the ordinal 0, if it has no log and *everybody* who may be there has answered that he
//! has none either. Somebody who does not answer may be a member of a cluster that goes on without us.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::member::{MemberId, ordinal_of};
use crate::node::Node;
use crate::peers::{LookupError, Peers, Places};
use crate::roster::{gone, missing};
use crate::wire::{Call, Introduction, Reply};

/// How often a member looks for a leader before it believes that its cluster is lost. Another member may know of newer voters, and is
/// elected by them between two looks.
const LOOKS_BEFORE_LOST: u32 = 4;

/// Who answered, each once, and the addresses where nobody did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub introductions: Vec<Introduction>,
    pub silent: Vec<String>,
    /// How many instances there are by DNS or the list.
    pub instances: usize,
}

/// What a member knows of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Myself<'a> {
    pub id: MemberId,
    /// The sets of voters of the cluster that it belongs to, two while they change; none if it has no log.
    pub voters: Option<&'a [BTreeSet<MemberId>]>,
    /// Whether it has heard from a leader lately, or leads.
    pub has_leader: bool,
    /// Whether votes and log are gone with the process.
    pub forgets: bool,
    /// Members that nothing names, and that have not been there for long.
    pub gone: &'a BTreeSet<MemberId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// For this reason.
    Wait(String),
    Found,
    /// Ask whoever listens there.
    Join(Vec<String>),
    /// A majority of the voters came back without what they knew: nobody can be elected any more.
    Lost,
}

pub(crate) fn decide(me: Myself<'_>, seen: &Seen, at_least: usize) -> Move {
    let wait = |why: &str| Move::Wait(why.to_owned());
    if me.has_leader {
        return wait("it follows a leader");
    }
    let others = || seen.introductions.iter().filter(|other| other.id != me.id);
    // The leader first, if somebody knows one: others only point to it.
    let leaders = others().filter_map(|other| Some(other.leader.as_ref()?.address.clone()));
    let mut addresses: Vec<String> = leaders.collect();
    addresses.extend(others().filter(|other| other.has_cluster).map(|other| other.member.address.clone()));
    let mut known = BTreeSet::new();
    addresses.retain(|address| known.insert(address.clone()));
    if let Some(sets) = me.voters {
        let is_there = |voter: &MemberId| *voter == me.id || others().any(|other| other.id == *voter);
        let came_back = |voter: &MemberId| others().any(|other| ordinal_of(other.id) == ordinal_of(*voter));
        let is_lost = |voter: &MemberId| !is_there(voter) && (came_back(voter) || me.gone.contains(voter));
        // A leader needs a majority of each set.
        let has_no_majority = |voters: &BTreeSet<MemberId>| {
            let left = voters.iter().filter(|voter| !is_lost(voter)).count();
            left < voters.len() && left <= voters.len() / 2
        };
        // Somebody may know a leader that was elected by members we have not heard of.
        let is_led = others().any(|other| other.leader.is_some());
        if me.forgets && !is_led && sets.iter().any(has_no_majority) {
            return Move::Lost;
        }
    }
    if !addresses.is_empty() {
        return Move::Join(addresses);
    }
    if me.voters.is_some() {
        return wait("nobody else has a cluster");
    }
    if ordinal_of(me.id) != 0 {
        return wait("nobody has a cluster yet; the member with the ordinal 0 founds it");
    }
    if others().any(|other| ordinal_of(other.id) == 0) {
        return wait("another process has the ordinal 0, too");
    }
    if !seen.silent.is_empty() {
        return Move::Wait(format!("a member does not answer at {}; it may have a cluster", seen.silent.join(", ")));
    }
    if others().count() + 1 < at_least {
        return wait("not all members are there yet");
    }
    Move::Found
}

/// Asks at all addresses who is there. An error if they cannot be looked up.
pub(crate) async fn look_around(node: &Arc<Node>, peers: &Peers) -> Result<Seen, LookupError> {
    let Places { addresses, instances } = peers.places().await?;
    let ask = |address: String| async move { (node.ask(&address, None, Call::Hello).await, address) };
    let mut asked: FuturesUnordered<_> = addresses.into_iter().map(ask).collect();
    let mut seen = Seen { instances, ..Seen::default() };
    while let Some((answer, address)) = asked.next().await {
        match answer {
            // An instance with an address of each family of IP answers at both.
            Ok(Reply::Hello(one)) if seen.introductions.iter().any(|known| known.id == one.id) => {}
            Ok(Reply::Hello(one)) => seen.introductions.push(one),
            _ => seen.silent.push(address),
        }
    }
    seen.silent.sort_unstable();
    Ok(seen)
}

/// Founds or joins a cluster, and joins again when the member is forgotten. Ends only when the cluster is lost.
pub(crate) async fn join(node: Arc<Node>, peers: Peers, replicas: usize, removed_after: Duration) -> String {
    let mut said = String::new();
    // Since when each voter has been gone, while there is no leader to remove it.
    let mut absent: BTreeMap<MemberId, Instant> = BTreeMap::new();
    // Since when the cluster has seemed lost.
    let mut lost: Option<Instant> = None;
    loop {
        let pause = node.timing.search + node.jitter();
        let found = look_around(&node, &peers).await;
        let now = Instant::now();
        let sentence = match found {
            Err(error) => format!("the addresses of the members cannot be looked up: {error}"),
            Ok(seen) => {
                let voters = node.voters();
                let has_leader = node.has_leader(now);
                match has_leader {
                    true => absent.clear(),
                    false => missing(&node, &peers, &node.members(), &mut absent).await,
                }
                let gone = gone(&absent, removed_after, now);
                let me =
                    Myself { id: node.id, voters: voters.as_deref(), has_leader, forgets: node.forgets, gone: &gone };
                let step = decide(me, &seen, peers.at_least(replicas));
                lost = lost.or(Some(now)).filter(|_| step == Move::Lost);
                match step {
                    Move::Wait(why) => why,
                    Move::Found => node.found().await,
                    Move::Join(addresses) => node.join(&addresses).await,
                    Move::Lost if lost.is_none_or(|since| now - since < node.timing.search * LOOKS_BEFORE_LOST) => {
                        "a majority of the members was started again without what they knew; waiting whether another one is elected"
                            .to_owned()
                    }
                    Move::Lost => {
                        return "a majority of the members was started again without what they knew, so no leader can be elected; \
                                this one stops, too, so that a new cluster is founded"
                            .to_owned();
                    }
                }
            }
        };
        if sentence != said {
            tracing::info!(cluster = node.cluster, member = node.me.name, "raft: {sentence}");
            said = sentence;
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Member, new_id};

    fn member(id: MemberId) -> Member {
        let ordinal = ordinal_of(id);
        Member { ordinal, name: format!("web-{ordinal}"), address: format!("web-{ordinal}:1") }
    }

    /// Somebody who answered: with a cluster or without, and the leader that he follows.
    fn other(id: MemberId, has_cluster: bool, leader: Option<MemberId>) -> Introduction {
        Introduction { id, member: member(id), has_cluster, leader: leader.map(member) }
    }

    const ZERO: MemberId = 1 << 16;
    const ONE: MemberId = 1 << 16 | 1;
    const TWO: MemberId = 1 << 16 | 2;

    #[test]
    fn a_cluster_is_founded_only_if_everybody_answered_that_there_is_none() {
        let check = |id, others: &[Introduction], silent: usize, expect: &str| {
            let me = Myself { id, voters: None, has_leader: false, forgets: true, gone: &BTreeSet::new() };
            let mut introductions = vec![other(id, false, None)];
            introductions.extend_from_slice(others);
            let silent = vec!["web-9:1".to_owned(); silent];
            let got = match decide(me, &Seen { introductions, silent, instances: 3 }, 3) {
                Move::Wait(why) => why,
                found => format!("{found:?}"),
            };
            assert!(got.contains(expect), "{got} instead of {expect}");
        };
        let empty = |id| other(id, false, None);
        check(ZERO, &[empty(ONE), empty(TWO)], 0, "Found");
        check(ZERO, &[empty(ONE), empty(TWO)], 1, "a member does not answer at web-9:1");
        check(ZERO, &[empty(ONE)], 1, "a member does not answer at web-9:1");
        check(ZERO, &[empty(ONE)], 0, "not all members are there");
        check(ONE, &[empty(ZERO), empty(TWO)], 0, "ordinal 0 founds it");
        check(ZERO, &[empty(new_id(0, 9)), empty(ONE), empty(TWO)], 0, "another process has the ordinal 0");
        check(ZERO, &[other(ONE, true, None)], 1, "Join([\"web-1:1\"])");
        check(ZERO, &[other(ONE, true, Some(TWO)), empty(TWO)], 0, "Join([\"web-2:1\", \"web-1:1\"])");
        check(TWO, &[other(ZERO, true, Some(ZERO)), empty(ONE)], 0, "Join([\"web-0:1\"])");
    }

    #[test]
    fn a_member_that_is_forgotten_joins_again_and_one_that_follows_does_not() {
        let check = |has_leader, others: &[Introduction], expect: Move| {
            let gone = BTreeSet::new();
            let voters = [[ZERO, ONE, TWO].into()];
            let me = Myself { id: ONE, voters: Some(&voters), has_leader, forgets: false, gone: &gone };
            let seen = Seen { introductions: others.to_vec(), silent: vec!["web-9:1".into()], instances: 3 };
            assert_eq!(decide(me, &seen, 1), expect, "{others:?}");
        };
        let follower = other(ZERO, true, Some(TWO));
        check(true, std::slice::from_ref(&follower), Move::Wait("it follows a leader".into()));
        check(false, &[follower], Move::Join(vec!["web-2:1".into(), "web-0:1".into()]));
        check(false, &[], Move::Wait("nobody else has a cluster".into()));
    }

    #[test]
    fn a_cluster_is_lost_when_a_majority_came_back_as_others() {
        let sets_of = |sets: &[&[MemberId]]| -> Vec<BTreeSet<MemberId>> {
            sets.iter().map(|voters| voters.iter().copied().collect()).collect()
        };
        let check_of = |voters: &[&[MemberId]], forgets, others: &[Introduction], gone: &[MemberId], expect: bool| {
            let (voters, gone) = (sets_of(voters), gone.iter().copied().collect());
            let me = Myself { id: ONE, voters: Some(&voters), has_leader: false, forgets, gone: &gone };
            let seen = Seen { introductions: others.to_vec(), ..Seen::default() };
            assert_eq!(decide(me, &seen, 1) == Move::Lost, expect, "{voters:?} {others:?}");
        };
        let check = |forgets, others: &[Introduction], gone: &[MemberId], expect| {
            check_of(&[&[ZERO, ONE, TWO]], forgets, others, gone, expect);
        };
        let (new_zero, new_two) = (other(new_id(0, 9), false, None), other(new_id(2, 9), false, None));
        check(true, &[new_zero.clone(), new_two.clone()], &[], true);
        check(true, std::slice::from_ref(&new_zero), &[], false);
        check(true, &[new_zero.clone(), other(TWO, true, None)], &[], false);
        // One was scaled away before the others could agree on it.
        check(true, std::slice::from_ref(&new_zero), &[TWO], true);
        check(true, &[], &[TWO], false);
        // On disk, the others may come back with what they know.
        check(false, &[new_zero.clone(), new_two.clone()], &[], false);
        // The third one was about to vote: without the first one, the two voters before it have no majority.
        let two = other(TWO, true, None);
        check_of(&[&[ZERO, ONE], &[ZERO, ONE, TWO]], true, &[new_zero.clone(), two.clone()], &[], true);
        check_of(&[&[ZERO, ONE], &[ZERO, ONE, TWO]], true, std::slice::from_ref(&two), &[], false);
        check_of(&[&[ZERO, ONE, TWO], &[ONE, TWO]], true, &[new_zero.clone(), two], &[], false);
        // Somebody leads: the new ones are members already.
        check(true, &[new_zero.clone(), other(new_id(2, 9), true, Some(new_zero.id))], &[], false);
    }
}
