//! The members of a cluster, and the types that openraft is made for. Plain values.
//!
//! A member is one *incarnation* of an instance: whoever begins without storage gets an id that nobody had before. So an instance that
//! has forgotten its votes never votes again under the id that it voted with, and Raft sees a member that has failed for good beside
//! a new one. `docs/decisions/0037` has the argument.

use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::state::{Command, Outcome};

/// The id of a member: its ordinal in the lowest 16 bits, and above them what tells its incarnations apart.
pub(crate) type MemberId = u64;

/// Bits of a [`MemberId`] that are the ordinal.
const ORDINAL_BITS: u32 = 16;

/// The largest ordinal.
pub(crate) const MAX_ORDINAL: u64 = (1 << ORDINAL_BITS) - 1;

/// Where a member is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The number of the instance in its StatefulSet.
    pub ordinal: u64,
    /// The name of its Pod.
    pub name: String,
    /// Where it listens: host and port.
    pub address: String,
}

impl Member {
    /// The host of its address.
    pub(crate) fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host)
    }
}

openraft::declare_raft_types!(
    /// What openraft replicates here.
    pub(crate) Types:
        D = Command,
        R = Outcome,
        NodeId = MemberId,
        Node = Member,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type Vote = openraft::Vote<MemberId>;
pub(crate) type LogId = openraft::LogId<MemberId>;

/// The id of an incarnation of the instance with this ordinal. `random` is different for each incarnation.
pub(crate) fn new_id(ordinal: u64, random: u64) -> MemberId {
    // An incarnation of 0 would be the id that tests of storage use.
    (random << ORDINAL_BITS | 1 << ORDINAL_BITS) | ordinal
}

/// The ordinal in an id.
pub(crate) fn ordinal_of(id: MemberId) -> u64 {
    id & MAX_ORDINAL
}

/// Who holds a term: the name of the Pod, which people recognise, and the incarnation.
pub(crate) fn identity(name: &str, id: MemberId) -> String {
    format!("{name}_{:x}", id >> ORDINAL_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_differ_and_keep_their_ordinal() {
        for (ordinal, random) in [(0, 0), (2, u64::MAX), (MAX_ORDINAL, 7)] {
            assert_eq!(ordinal_of(new_id(ordinal, random)), ordinal);
            assert_ne!(new_id(ordinal, random), ordinal);
        }
        assert_ne!(new_id(1, 4), new_id(1, 8));
        assert_eq!(identity("web-1", new_id(1, 0xab)), "web-1_ab");
    }
}
