//! The Leases of a group as one replica sees them. In: lists and changes of a watch, and the replica's own writes. Out: which replicas
//! live, and who holds which shard. Pure.
//!
//! A watch brings the changes of all these Leases in the order in which the server committed them, and a replica has its own Lease before
//! it takes a shard. So a holder that the view does not show as a replica *was* one, and is none any more. Answers to own writes are
//! ahead of the watch; they are taken only for what they say of this replica's own doing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::leases::{Group, Membership, Record};
use crate::lease::LeaseTiming;
use crate::lease::object::{Lease, duration, number, version};

/// What is known of the group.
#[derive(Debug)]
pub(super) struct View {
    group: Group,
    timing: LeaseTiming,
    seen: BTreeMap<String, Seen>,
    /// The names of the Leases of shards.
    names: Vec<String>,
    /// The replicas that have not stopped and were not found dead.
    alive: BTreeSet<Membership>,
    /// Replicas whose Lease was deleted although they had not stopped: somebody did that by hand. They may go on until then.
    deleted_replicas: Vec<DeletedReplica>,
    /// Shards whose Lease was deleted: the number of its term, and until when its holder may go on.
    deleted_shards: BTreeMap<usize, (u64, Instant)>,
}

/// One Lease.
#[derive(Debug)]
pub(super) struct Seen {
    pub lease: Lease,
    pub record: Record,
    /// Since when its content is the same: a replica that renews changes it.
    pub since: Instant,
    /// Since when it names the same run of the same replica.
    pub member_since: Instant,
    /// When this replica wrote it, if the watch has not brought that write.
    own_write: Option<Instant>,
}

#[derive(Debug)]
struct DeletedReplica {
    membership: Membership,
    count: usize,
    claims: bool,
    until: Instant,
}

/// Another replica.
#[derive(Clone, Debug)]
pub(super) struct Peer<'a> {
    pub membership: &'a Membership,
    pub seen: &'a Seen,
    pub count: usize,
    pub takes: bool,
    /// Its claim to work with its number of shards, if it has one.
    pub claim: Option<u64>,
}

/// Whether a shard can be taken.
#[derive(Debug)]
pub(super) enum Holder<'a> {
    /// Nobody has it. This is its Lease, if it has one, or the number of its last term, if that was deleted.
    Nobody(Option<&'a Lease>, Option<u64>),
    /// A replica that lives.
    Replica(&'a Membership),
    /// Somebody may still have it until then, although its Lease was deleted.
    Unknown,
}

impl View {
    pub(super) fn new(group: Group, timing: LeaseTiming) -> Self {
        Self {
            names: (0..group.count).map(|shard| group.shard_name(shard)).collect(),
            group,
            timing,
            seen: BTreeMap::new(),
            alive: BTreeSet::new(),
            deleted_replicas: Vec::new(),
            deleted_shards: BTreeMap::new(),
        }
    }

    /// The watch shows a Lease, or this replica has written it. What is older than what is known is ignored.
    pub(super) fn saw(&mut self, lease: Lease, is_own_write: bool, now: Instant) {
        let (Some(record), Some(name)) = (self.group.read(&lease), lease.metadata.name.clone()) else { return };
        let known = self.seen.get(&name);
        if known.is_some_and(|known| version(&known.lease) > version(&lease)) {
            return;
        }
        let is_same = |known: &&Seen| known.lease.spec == lease.spec && known.record == record;
        let since = known.filter(is_same).map_or(now, |known| known.since);
        let membership = |record: &Record| match record {
            Record::Replica { membership, .. } => membership.clone(),
            Record::Count(_) | Record::Shard { .. } | Record::OtherShard => None,
        };
        let same_run = |known: &&Seen| membership(&known.record) == membership(&record);
        let member_since = known.filter(same_run).map_or(now, |known| known.member_since);
        if let Record::Shard { shard, .. } = &record {
            self.deleted_shards.remove(shard);
        }
        let own_write = is_own_write.then_some(now);
        let is_replica = matches!(record, Record::Replica { .. });
        self.seen.insert(name, Seen { lease, record, since, member_since, own_write });
        if is_replica {
            self.alive = self.peers().map(|peer| peer.membership.clone()).collect();
        }
    }

    /// The watch says that a Lease is deleted, or this replica has deleted it.
    pub(super) fn deleted(&mut self, lease: &Lease, now: Instant) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        if self.seen.get(name).is_some_and(|known| version(&known.lease) <= version(lease)) {
            self.remove(name, now);
        }
    }

    /// A list of all Leases. What it does not show is gone, but for what this replica wrote a moment ago: the list may be older.
    pub(super) fn listed(&mut self, leases: Vec<Lease>, now: Instant) {
        let is_recent = |seen: &Seen| seen.own_write.is_some_and(|at| now < at + self.timing.renew_deadline);
        let is_listed = |name: &str| leases.iter().any(|lease| lease.metadata.name.as_deref() == Some(name));
        let gone = self.seen.iter().filter(|(name, seen)| !is_listed(name) && !is_recent(seen));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|name| self.remove(name, now));
        leases.into_iter().for_each(|lease| self.saw(lease, false, now));
    }

    fn remove(&mut self, name: &str, now: Instant) {
        let Some(Seen { lease, record, since, .. }) = self.seen.remove(name) else { return };
        match record {
            Record::Replica { membership: Some(membership), count, claim, .. } => {
                let (until, claims) = (since + duration(&lease, &self.timing), claim.is_some());
                self.alive.remove(&membership);
                self.deleted_replicas.retain(|deleted| now < deleted.until);
                self.deleted_replicas.push(DeletedReplica { membership, count, claims, until });
            }
            Record::Shard { shard, holder } => {
                // The holder sees the deletion, or is cut off and stops when its own Lease is over.
                let lives = holder.is_some_and(|holder| self.is_alive(&holder, now));
                let until = if lives { now + self.timing.duration } else { now };
                self.deleted_shards.insert(shard, (number(&lease), until));
            }
            Record::Replica { membership: None, .. } | Record::Count(_) | Record::OtherShard => {}
        }
    }

    /// The name of the Lease of a shard.
    pub(super) fn shard_name(&self, shard: usize) -> &str {
        &self.names[shard]
    }

    pub(super) fn get(&self, name: &str) -> Option<&Seen> {
        self.seen.get(name)
    }

    /// All Leases.
    pub(super) fn all(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }

    /// All replicas that have not stopped and were not found dead.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer<'_>> {
        self.seen.values().filter_map(|seen| match &seen.record {
            Record::Replica { membership: Some(membership), count, takes, claim } => {
                Some(Peer { membership, seen, count: *count, takes: *takes, claim: *claim })
            }
            Record::Replica { .. } | Record::Count(_) | Record::Shard { .. } | Record::OtherShard => None,
        })
    }

    /// Whether a replica may still work on this many shards.
    pub(super) fn has_replica_of(&self, count: usize, now: Instant) -> bool {
        let lives = |deleted: &DeletedReplica| deleted.count == count && now < deleted.until;
        self.peers().any(|peer| peer.count == count) || self.deleted_replicas.iter().any(lives)
    }

    /// Whether a replica may work with another number of shards than this one.
    pub(super) fn is_divided_otherwise(&self, now: Instant) -> bool {
        let lives =
            |deleted: &DeletedReplica| deleted.claims && deleted.count != self.group.count && now < deleted.until;
        self.peers().any(|peer| peer.claim.is_some() && peer.count != self.group.count)
            || self.deleted_replicas.iter().any(lives)
    }

    /// How many shards there are, as the Lease of all says, and that Lease.
    pub(super) fn count(&self) -> Option<(usize, &Lease)> {
        let seen = self.seen.get(&self.group.count_name())?;
        match seen.record {
            Record::Count(count) => Some((count, &seen.lease)),
            Record::Replica { .. } | Record::Shard { .. } | Record::OtherShard => None,
        }
    }

    /// Whether this run of a replica may go on.
    pub(super) fn is_alive(&self, membership: &Membership, now: Instant) -> bool {
        let is_deleted = |it: &DeletedReplica| it.membership == *membership && now < it.until;
        self.alive.contains(membership) || self.deleted_replicas.iter().any(is_deleted)
    }

    /// Who has a shard.
    pub(super) fn holder(&self, shard: usize, now: Instant) -> Holder<'_> {
        let Some(seen) = self.seen.get(&self.names[shard]) else {
            return match self.deleted_shards.get(&shard) {
                Some((_, until)) if now < *until => Holder::Unknown,
                deleted => Holder::Nobody(None, deleted.map(|(number, _)| *number)),
            };
        };
        match &seen.record {
            Record::Shard { holder: Some(holder), .. } if self.is_alive(holder, now) => Holder::Replica(holder),
            _ => Holder::Nobody(Some(&seen.lease), None),
        }
    }

    /// When something changes without a change of a Lease.
    pub(super) fn timers(&self) -> impl Iterator<Item = Instant> {
        let deleted = self.deleted_replicas.iter().map(|deleted| deleted.until);
        deleted.chain(self.deleted_shards.values().map(|(_, until)| *until))
    }

    /// For how long a replica is believed to live without a renewal.
    pub(super) fn patience(&self, seen: &Seen) -> Duration {
        duration(&seen.lease, &self.timing)
    }
}
