//! The members of a cluster, and the types that openraft is made for. Plain values.
//!
//! A member is one *incarnation* of an instance: whoever begins without storage gets an id that nobody had before. So an instance that
//! has forgotten its votes never votes again under the id that it voted with, and Raft sees a member that has failed for good beside
//! a new one. `docs/decisions/0037` has the argument.

use std::io::Cursor;
use std::net::Ipv6Addr;

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
    /// The host of its address; an IPv6 address without its brackets.
    pub(crate) fn host(&self) -> &str {
        split_address(&self.address).map_or(self.address.as_str(), |(host, _)| host)
    }
}

/// Host and port of an address: `web-0.web:8080`, `10.0.0.1:8080`, `[fd00::1]:8080`. The host of the last is without its brackets.
pub(crate) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match host.strip_prefix('[') {
        // Nothing else has brackets.
        Some(inner) => inner.strip_suffix(']').filter(|inner| inner.parse::<Ipv6Addr>().is_ok())?,
        None => host,
    };
    // Without brackets nobody knows where an IPv6 address ends and the port begins.
    let is_host = !host.is_empty() && (address.starts_with('[') || !host.contains([':', '[', ']', '/', '@', ' ', '%']));
    is_host.then_some((host, port))
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
    fn addresses_are_a_host_and_a_port() {
        for (address, expect) in [
            ("web-0.web:8080", Some(("web-0.web", 8080))),
            ("10.0.0.1:8080", Some(("10.0.0.1", 8080))),
            ("[::1]:7000", Some(("::1", 7000))),
            ("[fd00::1]:1", Some(("fd00::1", 1))),
            ("::1:7000", None),
            ("fd00::1", None),
            ("[::1]", None),
            ("[web]:1", None),
            ("[::1:7000", None),
            ("[fe80::1%eth0]:1", None),
            ("web-0.web", None),
            ("web:", None),
            (":8080", None),
            ("web:99999", None),
            ("http://web:1", None),
        ] {
            assert_eq!(split_address(address), expect, "{address}");
        }
        let member = Member { address: "[::1]:7000".into(), ..Member::default() };
        assert_eq!(member.host(), "::1");
    }

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
