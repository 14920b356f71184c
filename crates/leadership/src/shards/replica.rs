//! What one replica does about the shards of its group. In: what it saw of the group's Leases, how its requests ended, and the time by
//! its own clock. Out: the next request, and which shards it holds. Pure, and never compares its clock with another machine's.
//!
//! ```text
//! own Lease (renewed) → in the view → joined: the number of shards is agreed → claim confirmed → takes free shards, gives up too many
//! ```
//!
//! A shard is held by whoever its Lease names, for as long as that replica's own Lease is renewed. So only one Lease is renewed for each
//! replica, however many shards there are, and one write ends all terms of a replica: its own, when it stops; another's, when it was
//! silent for the duration of its Lease and still is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::balance::{Load, plan};
use super::claim::Claim;
use super::leases::{Group, Membership, Record, released};
use super::view::{Holder, Seen, View};
use crate::lease::LeaseTiming;
use crate::lease::candidate::{Candidate, Command as LeaseCommand, Failure, Standing};
use crate::lease::object::{Lease, next_number, number, version};

/// How many shards are taken at the same time. A replica that starts alone takes all of them, and must not flood the server.
const MOST_REQUESTS: usize = 16;

/// One replica.
#[derive(Debug)]
pub(super) struct Replica {
    group: Group,
    identity: Arc<str>,
    timing: LeaseTiming,
    /// The election of the own Lease, which others only end.
    own: Candidate,
    /// The term of the own Lease that everything below is about.
    membership: Option<Membership>,
    /// Whether this replica is counted among those with as many shards.
    is_joined: bool,
    claim: Claim,
    view: View,
    held: BTreeMap<usize, Held>,
    /// The Leases that a request is under way for, but for the own one.
    asked: BTreeSet<String>,
    /// The Leases that are not written before then, because a write failed.
    pauses: BTreeMap<String, Instant>,
    /// Whether changes come by themselves.
    is_watching: bool,
    /// Whether it stops soon, and takes no more shards.
    is_leaving: bool,
    /// Since when no watch brings anything; a new one is begun now and then, because the one before may hang.
    unwatched: Option<Instant>,
    /// A renewal that the watch has not brought, and since when.
    unseen_renewal: Option<(u64, Instant)>,
}

/// A shard that this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    number: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// It is being given up; what runs may finish.
    Draining,
    /// Nothing works on it; its Lease is to be released.
    Drained,
}

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    /// Read the own Lease.
    Read,
    Create(Lease),
    Replace(Lease),
    /// Delete it, if it is unchanged.
    Delete(Lease),
    /// Let the work on a shard finish, and say so.
    Drain(usize),
    /// Begin a new watch, because the one there is brings nothing.
    Watch,
}

impl Replica {
    pub(super) fn new(group: Group, identity: Arc<str>, timing: LeaseTiming) -> Self {
        Self {
            own: Candidate::new(identity.clone(), timing),
            view: View::new(group.clone(), timing),
            group,
            identity,
            timing,
            membership: None,
            is_joined: false,
            claim: Claim::default(),
            held: BTreeMap::new(),
            asked: BTreeSet::new(),
            pauses: BTreeMap::new(),
            is_watching: false,
            is_leaving: false,
            unwatched: None,
            unseen_renewal: None,
        }
    }

    /// What is due now. `wall` is written into Leases for people; nothing is decided by it.
    pub(super) fn step(&mut self, now: Instant, wall: Timestamp) -> Option<Command> {
        if self.is_watch_silent(now) {
            (self.is_watching, self.unwatched, self.unseen_renewal) = (false, Some(now), None);
            return Some(Command::Watch);
        }
        if self.membership.is_none() && !self.is_watching {
            // A replica that sees nothing is of no use to others.
            return None;
        }
        self.follow_membership(now);
        self.make_claim(now);
        if let Some(command) = self.own.step(now, wall) {
            let (takes, claim) = (self.is_watching && !self.is_leaving, self.claim.number());
            let write = |lease| self.group.replica(lease, &self.identity, takes, claim);
            return Some(match command {
                LeaseCommand::Read => Command::Read,
                LeaseCommand::Create(lease) => Command::Create(write(lease)),
                LeaseCommand::Replace(lease) => Command::Replace(write(lease)),
            });
        }
        let me = self.membership.clone()?;
        self.release_drained(now).or_else(|| {
            if !self.is_watching || !self.is_in_view(&me) {
                return None;
            }
            self.end_silent(&me, now)
                .or_else(|| self.join(now, wall))
                .or_else(|| self.balance(&me, now, wall))
                .or_else(|| self.clean(now))
        })
    }

    /// When something is to be done next, unless something happens before.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let unwatched = self.unwatched.map(|since| since + self.timing.duration);
        if self.membership.is_none() && !self.is_watching {
            return unwatched.or(Some(now));
        }
        let settled = self.view.peers().map(|peer| peer.seen.member_since + self.settle_time());
        let silent = self.view.peers().map(|peer| peer.seen.since + self.view.patience(peer.seen));
        let unseen = self.unseen_renewal.map(|(_, since)| since + self.timing.renew_deadline / 2);
        let timers = self
            .view
            .timers()
            .chain(settled)
            .chain(silent)
            .chain(unseen)
            .chain(unwatched)
            .chain(self.pauses.values().copied());
        timers.filter(|at| *at > now).chain(self.own.next(now)).min()
    }

    /// Until when this replica holds its shards at least; none if it holds none.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self.own.standing(now) {
            Standing::Leading { number, deadline } if self.is_run(number) => Some(deadline),
            Standing::Leading { .. } | Standing::Following { .. } => None,
        }
    }

    /// The shards that this replica works on, with the numbers of their terms. They are held until the deadline.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, u64)> {
        let works = self.held.iter().filter(|(_, held)| held.phase != Phase::Drained);
        works.map(|(shard, held)| (*shard, held.number))
    }

    /// Who holds a shard, as far as it is known.
    pub(super) fn holder(&self, shard: usize, now: Instant) -> Option<&Arc<str>> {
        match self.view.holder(shard, now) {
            Holder::Replica(membership) => Some(&membership.identity),
            Holder::Nobody(..) | Holder::Unknown => None,
        }
    }

    /// How many replicas there are with as many shards.
    pub(super) fn replicas(&self) -> usize {
        self.view.peers().filter(|peer| peer.count == self.group.count).count()
    }

    /// How many shards the other replicas have, if that is why this one takes none.
    pub(super) fn other_count(&self) -> Option<usize> {
        self.view.count().map(|(count, _)| count).filter(|count| *count != self.group.count)
    }

    /// Whether this replica is one of the group.
    pub(super) fn is_member(&self) -> bool {
        self.membership.as_ref().is_some_and(|me| self.is_in_view(me))
    }

    /// The watch shows a Lease.
    pub(super) fn saw(&mut self, lease: Lease, now: Instant) {
        let shard = self.shard_of(&lease);
        if self.is_own(&lease) {
            self.unseen_renewal = self.unseen_renewal.filter(|(renewal, _)| *renewal > version(&lease));
            self.own.saw(Some(lease.clone()), now);
        }
        self.take_note(&lease);
        self.view.saw(lease, false, now);
        self.follow_count(now);
        shard.into_iter().for_each(|shard| self.follow_lease(shard));
    }

    /// The watch says that a Lease was deleted.
    pub(super) fn deleted(&mut self, lease: &Lease, now: Instant) {
        if self.is_own(lease) {
            self.own.deleted(lease, now);
        }
        let shard = self.shard_of(lease);
        self.view.deleted(lease, now);
        self.follow_count(now);
        shard.into_iter().for_each(|shard| self.follow_lease(shard));
    }

    /// A new watch shows all Leases.
    pub(super) fn listed(&mut self, leases: Vec<Lease>, now: Instant) {
        match leases.iter().find(|lease| self.is_own(lease)) {
            Some(own) => self.own.saw(Some(own.clone()), now),
            // The list may be older than a write of this replica, so the Lease is asked for by itself.
            None => self.own.refresh(),
        }
        self.view.listed(leases, now);
        self.is_watching = true;
        self.own.watching(true);
        (self.unwatched, self.unseen_renewal) = (None, None);
        self.follow_count(now);
        (0..self.group.count).for_each(|shard| self.follow_lease(shard));
    }

    /// The watch broke. It is tried again.
    pub(super) fn watch_broke(&mut self) {
        self.is_watching = false;
        self.own.watching(false);
        self.unseen_renewal = None;
    }

    /// A read of the own Lease has ended.
    pub(super) fn read(&mut self, answer: Result<Option<Lease>, Failure>, now: Instant) {
        self.own.read(answer, now);
    }

    /// A write that was sent at `sent` has ended.
    pub(super) fn wrote(&mut self, name: &str, sent: Instant, answer: Result<Lease, Failure>, now: Instant) {
        if name == self.own_name() {
            if let Ok(lease) = &answer
                && self.view.get(name).is_none_or(|seen| version(&seen.lease) < version(lease))
            {
                self.unseen_renewal.get_or_insert((version(lease), now));
            }
            return self.own.wrote(sent, answer, now);
        }
        self.asked.remove(name);
        match answer {
            Ok(lease) => {
                let shard = self.shard_of(&lease);
                self.take_note(&lease);
                self.view.saw(lease, true, now);
                shard.into_iter().for_each(|shard| self.follow_lease(shard));
            }
            Err(failure) => self.pause(name, failure, now),
        }
    }

    /// A Lease was deleted, or not.
    pub(super) fn removed(&mut self, lease: &Lease, answer: Result<(), Failure>, now: Instant) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        self.asked.remove(name);
        match answer {
            Ok(()) => self.view.deleted(lease, now),
            Err(failure) => self.pause(name, failure, now),
        }
    }

    /// Nothing works on a shard any more that was to be drained, and its term is over.
    pub(super) fn drained(&mut self, shard: usize) {
        if let Some(held) = self.held.get_mut(&shard).filter(|held| held.phase == Phase::Draining) {
            held.phase = Phase::Drained;
        }
    }

    /// This replica stops soon: it keeps what it has, and takes nothing more.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Ends all terms, and gives the own Lease as it is to be written, so that others take all shards at once; none if this replica is no
    /// member.
    pub(super) fn release(&mut self, wall: Timestamp) -> Option<Lease> {
        self.held.clear();
        self.membership = None;
        let lease = self.own.release(wall)?;
        Some(self.group.replica(lease, &self.identity, false, None))
    }

    /// Begins anew if the term of the own Lease is another one, or over.
    fn follow_membership(&mut self, now: Instant) {
        let number = match self.own.standing(now) {
            Standing::Leading { number, .. } => Some(number),
            Standing::Following { .. } => None,
        };
        if number == self.membership.as_ref().map(|me| me.number) {
            return;
        }
        self.membership = number.map(|number| Membership { identity: self.identity.clone(), number });
        self.is_joined = false;
        self.claim.end();
        self.held.clear();
    }

    /// Claims to work with this number of shards, if nobody is seen to work with another.
    fn make_claim(&mut self, now: Instant) {
        if self.is_joined && !self.view.is_divided_otherwise(now) && self.claim.make() {
            self.own.hasten();
        }
    }

    /// What the watch has brought tells whether the number of shards is still agreed, and whether a claim holds.
    fn follow_count(&mut self, now: Instant) {
        if self.view.count().is_none_or(|(count, _)| count != self.group.count) {
            self.is_joined = false;
        }
        let Some(me) = &self.membership else { return };
        let own = self.view.peers().find(|peer| peer.membership == me).and_then(|peer| peer.claim);
        self.claim.brought(own, self.view.is_divided_otherwise(now));
    }

    /// Whether the Lease of all shows that this replica has joined. One that was thought dead meanwhile has to join again.
    fn take_note(&mut self, lease: &Lease) {
        let is_count = self.group.read(lease) == Some(Record::Count(self.group.count));
        self.is_joined |= is_count && self.membership.as_ref().is_some_and(|me| joined_by(lease, me));
    }

    fn is_run(&self, number: u64) -> bool {
        self.membership.as_ref().is_some_and(|me| me.number == number)
    }

    /// Compares a shard that is held with its Lease. A Lease that names this replica although it knows nothing of that comes from a
    /// request whose answer was lost: nobody else can have the shard then.
    fn follow_lease(&mut self, shard: usize) {
        let Some(me) = &self.membership else { return };
        let seen = self.view.get(self.view.shard_name(shard));
        let named = seen.and_then(|seen| match &seen.record {
            Record::Shard { holder: Some(holder), .. } if holder == me => Some(number(&seen.lease)),
            _ => None,
        });
        let Some(named) = named else {
            self.held.remove(&shard);
            return;
        };
        match self.held.get(&shard) {
            Some(held) if held.number == named => {}
            _ => drop(self.held.insert(shard, Held { number: named, phase: Phase::Working })),
        }
    }

    /// Whether a watch should have brought something by now: a renewal that went through, or its list.
    fn is_watch_silent(&mut self, now: Instant) -> bool {
        if !self.is_watching {
            return now >= *self.unwatched.get_or_insert(now) + self.timing.duration;
        }
        let unseen = self.unseen_renewal.map(|(_, since)| since);
        unseen.is_some_and(|since| now >= since + self.timing.renew_deadline / 2)
    }

    /// Whether the view is newer than the own Lease in this term, so that whoever came before is in it.
    fn is_in_view(&self, me: &Membership) -> bool {
        self.view.peers().any(|peer| peer.membership == me)
    }

    fn settle_time(&self) -> Duration {
        self.timing.retry_period / 2
    }

    /// Ends the terms of a replica that has not renewed its Lease for as long as that is held.
    fn end_silent(&mut self, me: &Membership, now: Instant) -> Option<Command> {
        let is_silent = |seen: &&Seen| seen.since + self.view.patience(seen) <= now;
        let silent = self.view.peers().filter(|peer| peer.membership != me).map(|peer| peer.seen);
        let dead = silent.filter(is_silent).find(|seen| self.may_ask(name_of(&seen.lease), now))?;
        let lease = released(&dead.lease);
        Some(self.ask(Command::Replace(lease)))
    }

    /// Makes sure that all replicas have the same number of shards.
    fn join(&mut self, now: Instant, wall: Timestamp) -> Option<Command> {
        let name = self.group.count_name();
        let is_other = |count: usize| count != self.group.count && self.view.has_replica_of(count, now);
        // Whoever works with its number has the last word, also if somebody has deleted the Lease and others wrote it anew.
        let may_join = self.claim.is_confirmed()
            || !self.view.is_divided_otherwise(now) && !self.view.count().is_some_and(|(count, _)| is_other(count));
        if self.is_joined || !self.may_ask(&name, now) || !may_join {
            return None;
        }
        let me = self.membership.as_ref()?;
        let known = self.view.count().map(|(_, lease)| lease);
        let lease = self.group.counted(known, &me.joins_as(), wall);
        Some(self.ask(if known.is_some() { Command::Replace(lease) } else { Command::Create(lease) }))
    }

    /// Takes a free shard that is for this replica, or gives one up.
    fn balance(&mut self, me: &Membership, now: Instant, wall: Timestamp) -> Option<Command> {
        if !self.claim.is_confirmed() || self.is_leaving {
            return None;
        }
        let (loads, free) = (self.loads(me, now), self.free(now));
        let is_settled = loads.iter().any(|load| load.identity == &*me.identity && load.is_settled);
        let plan = plan(loads, &free);
        let is_mine = |(shard, identity): &(usize, &str)| {
            *identity == &*me.identity
                && !self.held.contains_key(shard)
                && self.may_ask(self.view.shard_name(*shard), now)
        };
        let may_take = is_settled && self.asked.len() < MOST_REQUESTS;
        let (take, gives) = (plan.takes.into_iter().find(is_mine), plan.gives.contains(&&*me.identity));
        match take {
            Some((shard, _)) if may_take => self.take(shard, me, now, wall),
            // One after the other, so that most of them go on, also if nobody takes what is given up.
            None if gives && free.is_empty() => self.give_up(),
            _ => None,
        }
    }

    fn take(&mut self, shard: usize, me: &Membership, now: Instant, wall: Timestamp) -> Option<Command> {
        let Holder::Nobody(known, deleted) = self.view.holder(shard, now) else { return None };
        let mut lease = self.group.acquired(known, shard, me, wall);
        if known.is_some() {
            return Some(self.ask(Command::Replace(lease)));
        }
        // The number goes on where it was, so that it only grows.
        let next = deleted.map(|number| next_number(number, None, wall));
        let spec = lease.spec.get_or_insert_default();
        spec.lease_transitions = next.or(spec.lease_transitions);
        Some(self.ask(Command::Create(lease)))
    }

    fn give_up(&mut self) -> Option<Command> {
        // The first shard stays, because what only one replica may do goes with it.
        let (shard, held) = self.held.iter_mut().next_back()?;
        held.phase = Phase::Draining;
        Some(Command::Drain(*shard))
    }

    fn release_drained(&mut self, now: Instant) -> Option<Command> {
        let drained = self.held.iter().filter(|(_, held)| held.phase == Phase::Drained);
        let mut names = drained.map(|(shard, _)| self.view.shard_name(*shard));
        let name = names.find(|name| self.may_ask(name, now))?;
        let lease = released(&self.view.get(name)?.lease);
        Some(self.ask(Command::Replace(lease)))
    }

    /// Deletes what nobody needs: Leases of replicas that are long gone, and of shards of another number.
    fn clean(&mut self, now: Instant) -> Option<Command> {
        if !self.claim.is_confirmed() {
            return None;
        }
        let is_old = |seen: &&Seen| match &seen.record {
            Record::Replica { membership: None, .. } => seen.since + self.timing.duration <= now,
            Record::OtherShard => true,
            Record::Replica { .. } | Record::Count(_) | Record::Shard { .. } => false,
        };
        let old = self.view.all().filter(is_old).find(|seen| self.may_ask(name_of(&seen.lease), now))?;
        let lease = old.lease.clone();
        Some(self.ask(Command::Delete(lease)))
    }

    /// How many shards each replica has that takes some. Those that are being given up are not counted.
    fn loads(&self, me: &Membership, now: Instant) -> Vec<Load<'_>> {
        let takes = self.view.peers().filter(|peer| peer.takes && peer.count == self.group.count);
        let mut loads: Vec<Load<'_>> = takes
            .map(|peer| Load {
                held: 0,
                identity: &peer.membership.identity,
                is_settled: self.is_settled(peer.seen, now),
            })
            .collect();
        for shard in 0..self.group.count {
            let holder = match self.view.holder(shard, now) {
                _ if self.is_given_up(shard) => continue,
                Holder::Replica(holder) => holder,
                Holder::Nobody(..) if self.asked.contains(self.view.shard_name(shard)) => me,
                Holder::Nobody(..) | Holder::Unknown => continue,
            };
            let load = loads.iter_mut().find(|load| *load.identity == *holder.identity);
            load.into_iter().for_each(|load| load.held += 1);
        }
        loads
    }

    /// The shards that can be taken, now or in a moment.
    fn free(&self, now: Instant) -> Vec<usize> {
        let is_free = |shard: &usize| match self.view.holder(*shard, now) {
            Holder::Nobody(..) => !self.asked.contains(self.view.shard_name(*shard)),
            Holder::Replica(_) => self.is_given_up(*shard),
            Holder::Unknown => false,
        };
        (0..self.group.count).filter(is_free).collect()
    }

    fn is_given_up(&self, shard: usize) -> bool {
        self.held.get(&shard).is_some_and(|held| held.phase != Phase::Working)
    }

    fn is_settled(&self, seen: &Seen, now: Instant) -> bool {
        seen.member_since + self.settle_time() <= now
    }

    fn may_ask(&self, name: &str, now: Instant) -> bool {
        !self.asked.contains(name) && self.pauses.get(name).is_none_or(|until| *until <= now)
    }

    fn ask(&mut self, command: Command) -> Command {
        if let Command::Create(lease) | Command::Replace(lease) | Command::Delete(lease) = &command {
            self.pauses.remove(name_of(lease));
            self.asked.insert(name_of(lease).to_owned());
        }
        command
    }

    /// A conflict is over when the watch brings what another replica wrote; anything else may take longer.
    fn pause(&mut self, name: &str, failure: Failure, now: Instant) {
        let pause = match failure {
            Failure::Conflict => self.timing.retry_period / 20,
            Failure::Other => self.timing.retry_period / 2,
        };
        self.pauses.insert(name.to_owned(), now + pause);
    }

    fn shard_of(&self, lease: &Lease) -> Option<usize> {
        match self.group.read(lease)? {
            Record::Shard { shard, .. } => Some(shard),
            Record::Replica { .. } | Record::Count(_) | Record::OtherShard => None,
        }
    }

    fn is_own(&self, lease: &Lease) -> bool {
        name_of(lease) == self.own_name()
    }

    fn own_name(&self) -> String {
        self.group.replica_name(&self.identity)
    }
}

impl Membership {
    /// How the Lease of all names who joined last.
    fn joins_as(&self) -> String {
        format!("{}/{}", self.identity, self.number)
    }
}

fn joined_by(lease: &Lease, me: &Membership) -> bool {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&me.joins_as())
}

fn name_of(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
