//! The Leases of a sharded operator: how they are named, and what they say. In: Leases. Out: records, and back. Pure.
//!
//! ```text
//! web-replica-5f3a…   one for each replica, renewed by it: it lives, wants to divide into this many shards, and says whether it works
//! web-shards          how many shards there are
//! web-shard-3-of-8    who holds a shard, and in which term; written only when the shard moves
//! ```

use std::sync::Arc;

use jiff::Timestamp;

use super::fnv1a;
use crate::lease::object::{Lease, holder, next_number, number};

/// The label of all these Leases; its value is the group. They are watched by it.
const GROUP_LABEL: &str = "konverge.dev/shards-of";

/// Into how many shards a replica divides its objects, and on the Lease of all: how many there are.
const COUNT: &str = "konverge.dev/shards";

/// On the Lease of a replica: whether it takes shards.
const TAKES: &str = "konverge.dev/takes-shards";

/// On the Lease of a replica that works, or is about to: how many times it has claimed that nobody works with another number of shards.
const CLAIM: &str = "konverge.dev/claim";

/// On the Lease of a shard: the term of its holder's own Lease. A replica that was thought dead and comes back has another one.
const MEMBERSHIP: &str = "konverge.dev/replica-term";

/// A label has at most this many characters.
const LONGEST_LABEL: usize = 63;

/// The replicas that divide the same objects, and into how many shards this one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub name: String,
    pub count: usize,
}

/// One run of a replica, from when it is a replica of the group until it is thought dead or stops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Membership {
    pub identity: Arc<str>,
    pub number: u64,
}

/// What a Lease is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A replica; one without a membership has stopped, or was found dead.
    Replica { membership: Option<Membership>, count: usize, takes: bool, claim: Option<u64> },
    /// How many shards there are.
    Count(usize),
    /// A shard of as many as this replica wants; without a holder it is free.
    Shard { shard: usize, holder: Option<Membership> },
    /// A shard of another number of shards.
    OtherShard,
}

impl Group {
    /// The label by which all Leases of the group are found: its key and its value.
    pub(super) fn label(&self) -> (&'static str, String) {
        let is_short = self.name.len() <= LONGEST_LABEL;
        (GROUP_LABEL, if is_short { self.name.clone() } else { format!("{:016x}", fnv1a(&self.name)) })
    }

    /// The name of the Lease of a replica.
    pub(super) fn replica_name(&self, identity: &str) -> String {
        format!("{}-replica-{:016x}", self.name, fnv1a(identity))
    }

    /// The name of the Lease that says how many shards there are.
    pub(super) fn count_name(&self) -> String {
        format!("{}-shards", self.name)
    }

    /// The name of the Lease of a shard.
    pub(super) fn shard_name(&self, shard: usize) -> String {
        format!("{}-shard-{shard}-of-{}", self.name, self.count)
    }

    /// What a Lease says; nothing if it is none of this group.
    pub(super) fn read(&self, lease: &Lease) -> Option<Record> {
        let rest = lease.metadata.name.as_deref()?.strip_prefix(&self.name)?;
        let membership = |number| holder(lease).map(|identity| Membership { identity: identity.into(), number });
        let annotated = |key: &str| lease.metadata.annotations.as_ref()?.get(key)?.parse().ok();
        if rest == "-shards" {
            return Some(Record::Count(annotated(COUNT)?));
        }
        if rest.starts_with("-replica-") {
            let takes =
                lease.metadata.annotations.as_ref().is_some_and(|all| all.get(TAKES).is_some_and(|it| it == "true"));
            let count = annotated(COUNT).unwrap_or_default();
            let claim = annotated(CLAIM).and_then(|claim| u64::try_from(claim).ok());
            return Some(Record::Replica { membership: membership(number(lease)), count, takes, claim });
        }
        let (shard, count) = rest.strip_prefix("-shard-")?.split_once("-of-")?;
        let (shard, count): (usize, usize) = (shard.parse().ok()?, count.parse().ok()?);
        if count != self.count {
            return Some(Record::OtherShard);
        }
        let number = annotated(MEMBERSHIP).and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        (shard < count).then(|| Record::Shard { shard, holder: membership(number) })
    }

    /// The Lease of this replica, as its election wants it, with what others read there.
    pub(super) fn replica(&self, mut lease: Lease, identity: &str, takes: bool, claim: Option<u64>) -> Lease {
        lease.metadata.name = Some(self.replica_name(identity));
        self.annotate(&mut lease, COUNT, self.count.to_string());
        self.annotate(&mut lease, TAKES, takes.to_string());
        match claim {
            Some(claim) => self.annotate(&mut lease, CLAIM, claim.to_string()),
            None => drop(lease.metadata.annotations.as_mut().and_then(|all| all.remove(CLAIM))),
        }
        lease
    }

    /// The Lease of all replicas, with as many shards as this group has. It changes with each replica that comes, so that whoever wants
    /// another number notices.
    pub(super) fn counted(&self, known: Option<&Lease>, identity: &str, wall: Timestamp) -> Lease {
        let mut lease = self.next_of(known, self.count_name(), wall);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(wall.into());
        self.annotate(&mut lease, COUNT, self.count.to_string());
        lease
    }

    /// The Lease of a shard in its next term, which is this replica's.
    pub(super) fn acquired(
        &self,
        known: Option<&Lease>,
        shard: usize,
        membership: &Membership,
        wall: Timestamp,
    ) -> Lease {
        let mut lease = self.next_of(known, self.shard_name(shard), wall);
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(membership.identity.to_string());
        spec.acquire_time = Some(wall.into());
        self.annotate(&mut lease, MEMBERSHIP, membership.number.to_string());
        lease
    }

    /// A Lease with the number after the known one.
    fn next_of(&self, known: Option<&Lease>, name: String, wall: Timestamp) -> Lease {
        let mut lease = known.cloned().unwrap_or_default();
        let next = known.map_or(0, |known| next_number(number(known), None, wall));
        lease.metadata.name = Some(name);
        lease.spec.get_or_insert_default().lease_transitions = Some(next);
        lease
    }

    fn annotate(&self, lease: &mut Lease, key: &str, value: String) {
        let (label, group) = self.label();
        lease.metadata.labels.get_or_insert_default().insert(label.to_owned(), group);
        lease.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value);
    }
}

/// A Lease that nobody holds any more.
pub(super) fn released(known: &Lease) -> Lease {
    let mut lease = known.clone();
    lease.spec.get_or_insert_default().holder_identity = Some(String::new());
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group { name: "web".into(), count: 8 }
    }

    fn me() -> Membership {
        Membership { identity: "web-0_5f".into(), number: 2 }
    }

    fn named(name: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = Some(name.to_owned());
        lease
    }

    #[test]
    fn what_is_written_is_read() {
        let (group, wall) = (group(), Timestamp::UNIX_EPOCH);
        let shard = group.acquired(None, 3, &me(), wall);
        assert_eq!(shard.metadata.name.as_deref(), Some("web-shard-3-of-8"));
        assert_eq!(group.read(&shard), Some(Record::Shard { shard: 3, holder: Some(me()) }));
        assert_eq!(number(&group.acquired(Some(&shard), 3, &me(), wall)), 1, "each holder has a term of its own");
        assert_eq!(group.read(&released(&shard)), Some(Record::Shard { shard: 3, holder: None }));
        assert_eq!(group.read(&group.counted(None, "web-0_5f", wall)), Some(Record::Count(8)));
        let replica = group.replica(Lease::default(), "web-0_5f", true, Some(2));
        let record = |claim| Some(Record::Replica { membership: None, count: 8, takes: true, claim });
        assert_eq!(group.read(&replica), record(Some(2)));
        assert_eq!(group.read(&group.replica(replica, "web-0_5f", true, None)), record(None));
    }

    #[test]
    fn leases_of_others_are_not_read() {
        for (given, expect) in [
            ("web-lock", None),
            ("webber-shard-3-of-8", None),
            ("web-shard-8-of-8", None),
            ("web-shard-3-of-12", Some(Record::OtherShard)),
            ("web-shards", None),
        ] {
            assert_eq!(group().read(&named(given)), expect, "{given}");
        }
    }

    #[test]
    fn a_long_name_has_a_short_label() {
        let long = Group { name: "n".repeat(100), count: 1 };
        assert!(long.label().1.len() <= LONGEST_LABEL);
        assert_eq!(group().label().1, "web");
    }
}
