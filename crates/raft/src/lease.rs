//! How long this member leads: a lease that a quorum granted by acknowledging what the leader sent. In: acknowledgements with the time
//! when what they acknowledge was *sent*, votes that this member gave to others. Out: what a [`Seat`] is told.
//!
//! Followers grant nobody a vote for `election_timeout` after they received something from the leader, and no clock runs 1.5 times as
//! fast as another; so for two thirds of that time after it sent what a quorum acknowledged, no other member can be elected by that
//! quorum. The leader itself is part of quorums, too: before its own vote for another leaves this process, its term is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use konverge_leadership::{Leadership, Seat, Term};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::member::{MemberId, Vote};

/// The lease of this member. All clones of an `Arc` are the same.
pub(crate) struct QuorumLease {
    inner: Mutex<Inner>,
    /// Rings when an acknowledgement has come.
    pub acknowledged: Notify,
    leadership: Leadership,
}

struct Inner {
    /// None once this member has given up leading for good.
    seat: Option<Seat>,
    /// The vote under which acknowledgements are counted.
    vote: Option<Vote>,
    /// When what each member has acknowledged last was sent.
    acknowledged: BTreeMap<MemberId, Instant>,
    /// The greatest vote of another that this member has granted or heard of.
    other: Option<Vote>,
    /// The vote and the end of the lease that the seat was told.
    held: Option<(Vote, Instant)>,
}

impl QuorumLease {
    pub(crate) fn new() -> Arc<Self> {
        let (leadership, seat) = Leadership::vacant();
        let inner = Inner { seat: Some(seat), vote: None, acknowledged: BTreeMap::new(), other: None, held: None };
        Arc::new(Self { inner: Mutex::new(inner), acknowledged: Notify::new(), leadership })
    }

    pub(crate) fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// This member has accepted what was sent then, under this vote of this leader.
    pub(crate) fn acknowledge(&self, vote: Vote, member: MemberId, sent: Instant) {
        {
            let mut inner = self.inner.lock();
            if inner.vote.as_ref().is_none_or(|known| *known < vote) {
                inner.vote = Some(vote);
                inner.acknowledged.clear();
            }
            if inner.vote.as_ref() != Some(&vote) {
                return;
            }
            let newest = inner.acknowledged.entry(member).or_insert(sent);
            *newest = sent.max(*newest);
        }
        self.acknowledged.notify_one();
    }

    /// What has been acknowledged up to now.
    pub(crate) fn acknowledgements(&self, now: Instant) -> Acknowledgements {
        let inner = self.inner.lock();
        Acknowledgements { now, vote: inner.vote, times: inner.acknowledged.clone() }
    }

    /// Tells the seat that this member leads under this vote, unless it has granted a greater one or the lease is over by now. Says
    /// whether it did.
    pub(crate) fn hold(&self, vote: &Vote, term: Term, deadline: Instant, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        if deadline <= now || inner.other.as_ref().is_some_and(|other| other > vote) {
            return false;
        }
        let Some(seat) = &inner.seat else { return false };
        seat.lead(term, deadline);
        inner.held = Some((*vote, deadline));
        true
    }

    /// This member does not lead; perhaps another one does.
    pub(crate) fn follow(&self, leader: Option<Arc<str>>) {
        let mut inner = self.inner.lock();
        inner.held = None;
        if let Some(seat) = &inner.seat {
            seat.follow(leader);
        }
    }

    /// Another member asks for a vote or has one. If that ends the lease of this one, it is over when this returns.
    pub(crate) fn yield_to(&self, vote: &Vote) {
        let mut inner = self.inner.lock();
        if inner.other.as_ref().is_none_or(|known| known < vote) {
            inner.other = Some(*vote);
        }
        if inner.held.as_ref().is_some_and(|(held, _)| held < vote) {
            inner.held = None;
            if let Some(seat) = &inner.seat {
                seat.follow(None);
            }
        }
    }

    /// Whether this member leads at this time.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.inner.lock().held.as_ref().is_some_and(|(_, deadline)| now < *deadline)
    }

    /// Whether this member has given up leading, for good.
    pub(crate) fn is_given_up(&self) -> bool {
        self.inner.lock().seat.is_none()
    }

    /// Gives up leading, for good.
    pub(crate) fn give_up(&self) {
        let mut inner = self.inner.lock();
        inner.held = None;
        inner.seat = None;
    }
}

/// What had been acknowledged at one time.
pub(crate) struct Acknowledgements {
    now: Instant,
    vote: Option<Vote>,
    times: BTreeMap<MemberId, Instant>,
}

impl Acknowledgements {
    /// When the lease under this vote ends, if a quorum of each of these sets of voters has granted one. The sets must be those that
    /// were effective *after* the acknowledgements were taken: a set that has been replaced twice since may share no quorum with the
    /// new one.
    pub(crate) fn deadline(
        &self,
        vote: &Vote,
        me: MemberId,
        configs: &[Vec<MemberId>],
        lease: Duration,
    ) -> Option<Instant> {
        let none = BTreeMap::new();
        let times = if self.vote.as_ref() == Some(vote) { &self.times } else { &none };
        quorum_time(configs, me, times, self.now).map(|sent| sent + lease)
    }
}

/// The latest time for which a quorum of every set has acknowledged something that was sent then or later. This member acknowledges
/// itself now: what it grants to others ends its lease first.
fn quorum_time(
    configs: &[Vec<MemberId>],
    me: MemberId,
    acknowledged: &BTreeMap<MemberId, Instant>,
    now: Instant,
) -> Option<Instant> {
    let of_config = |voters: &Vec<MemberId>| {
        let time = |id: &MemberId| if *id == me { Some(now) } else { acknowledged.get(id).copied() };
        let mut times: Vec<Option<Instant>> = voters.iter().map(time).collect();
        // None is before every time.
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(voters.len() / 2).copied().flatten()
    };
    configs.iter().map(of_config).min().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(term: u64, id: MemberId) -> Vote {
        Vote::new_committed(term, id)
    }

    fn term(number: u64) -> Term {
        Term { number, holder: "web-0".into(), fence: None }
    }

    #[test]
    fn a_lease_counts_from_what_a_quorum_of_every_set_acknowledged() {
        let start = Instant::now();
        let at = |milliseconds: u64| start + Duration::from_millis(milliseconds);
        let check = |configs: &[&[MemberId]], acknowledged: &[(MemberId, u64)], expect: Option<u64>| {
            let configs: Vec<Vec<MemberId>> = configs.iter().map(|voters| voters.to_vec()).collect();
            let times = acknowledged.iter().map(|(id, sent)| (*id, at(*sent))).collect();
            assert_eq!(quorum_time(&configs, 1, &times, at(100)), expect.map(at), "{configs:?} {acknowledged:?}");
        };
        check(&[&[1]], &[], Some(100));
        check(&[&[1, 2]], &[], None);
        check(&[&[1, 2]], &[(2, 7)], Some(7));
        check(&[&[1, 2, 3]], &[(2, 7)], Some(7));
        check(&[&[1, 2, 3]], &[(2, 7), (3, 9)], Some(9));
        check(&[&[1, 2, 3, 4, 5]], &[(2, 7), (3, 9)], Some(7));
        check(&[&[1, 2, 3, 4]], &[(2, 7)], None);
        check(&[&[1, 2, 3, 4]], &[(2, 7), (3, 9)], Some(7));
        // While members change, both sets have to agree.
        check(&[&[1, 2, 3], &[1, 4, 5]], &[(2, 9), (3, 9)], None);
        check(&[&[1, 2, 3], &[1, 4, 5]], &[(2, 9), (4, 3)], Some(3));
        // A member that is no voter counts for nothing.
        check(&[&[2, 3]], &[(2, 9)], None);
        check(&[], &[], None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_vote_for_another_ends_the_lease_and_a_late_extension_does_not_bring_it_back() {
        let lease = QuorumLease::new();
        let leadership = lease.leadership();
        let (mine, now) = (vote(5, 1), Instant::now());
        let end = now + Duration::from_millis(200);
        assert!(lease.hold(&mine, term(1), end, now));
        assert_eq!(leadership.term().map(|term| term.number), Some(1));
        lease.yield_to(&Vote::new(5, 0));
        assert!(lease.is_held(now), "a smaller vote ends nothing");
        lease.yield_to(&Vote::new(6, 2));
        assert_eq!(leadership.term(), None);
        assert!(!lease.hold(&mine, term(2), end, now), "it has voted for another");
        assert!(lease.hold(&vote(7, 1), term(3), end, now));
        assert!(!lease.hold(&vote(7, 1), term(3), end, end), "an answer that comes after the deadline");
        lease.give_up();
        assert_eq!(leadership.term(), None);
        assert!(!lease.hold(&vote(8, 1), term(4), end, now));
    }

    #[tokio::test(start_paused = true)]
    async fn acknowledgements_of_another_vote_count_for_nothing() {
        let lease = QuorumLease::new();
        let (now, long) = (Instant::now(), Duration::from_secs(1));
        let configs = [vec![1, 2, 3]];
        let deadline = |vote: &Vote| lease.acknowledgements(now).deadline(vote, 1, &configs, long);
        lease.acknowledge(vote(5, 1), 2, now);
        assert_eq!(deadline(&vote(5, 1)), Some(now + long));
        assert_eq!(deadline(&vote(6, 1)), None);
        lease.acknowledge(vote(6, 1), 3, now);
        lease.acknowledge(vote(5, 1), 2, now + long);
        assert_eq!(deadline(&vote(5, 1)), None);
        assert_eq!(deadline(&vote(6, 1)), Some(now + long));
    }
}
