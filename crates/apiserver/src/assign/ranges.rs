//! Where the addresses and ports of services come from. In: the values of `--service-cluster-ip-range` and
//! `--service-node-port-range`. Out: ranges, of which the lower part is kept for services that ask for an address or a port.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The ranges that services get their addresses and ports from.
///
/// ```
/// use konverge_apiserver::ServiceRanges;
/// let ranges = ServiceRanges { cluster_ips: "10.0.0.0/24".parse().unwrap(), ..ServiceRanges::default() };
/// assert_eq!(ranges.cluster_ips.own_address().to_string(), "10.0.0.1");
/// assert_eq!(ranges.node_ports.to_string(), "30000-32767");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceRanges {
    /// Of cluster IPs.
    pub cluster_ips: ClusterIpRange,
    /// Of node ports.
    pub node_ports: NodePortRange,
}

/// A network of IPv4 addresses: `10.96.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterIpRange {
    network: u32,
    bits: u8,
}

/// Ports: `30000-32767`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePortRange {
    first: u16,
    last: u16,
}

/// The text is no range for services.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {why}")]
pub struct RangeError {
    text: String,
    why: &'static str,
}

impl ClusterIpRange {
    /// The address of the service `kubernetes`, which no other service gets.
    pub fn own_address(self) -> Ipv4Addr {
        (self.network + 1).into()
    }

    /// Whether a service can have this address: neither the first nor the last of the network.
    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        let host = address.to_bits().wrapping_sub(self.network);
        (1..self.size() - 1).contains(&host)
    }

    /// The addresses that services get which ask for none, from a random one on. The lower part comes last.
    pub(super) fn candidates(self, random: u128) -> impl Iterator<Item = Ipv4Addr> {
        let kept = kept(self.size(), 16, 256, 16).max(1);
        // The first host is that of the service `kubernetes`.
        let order = rotated(kept.max(2), self.size() - 1, random).chain(2..kept);
        order.map(move |host| (self.network + host).into())
    }

    fn size(self) -> u32 {
        1 << (32 - u32::from(self.bits))
    }
}

impl NodePortRange {
    pub(super) fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// As for addresses.
    pub(super) fn candidates(self, random: u128) -> impl Iterator<Item = u16> {
        let size = u32::from(self.last - self.first) + 1;
        let kept = kept(size, 16, 128, 32);
        let order = rotated(kept, size, random).chain(0..kept);
        order.map(move |at| self.first + u16::try_from(at).unwrap_or_default())
    }
}

/// How many of the first ones are for those that ask: a part of all, within bounds.
fn kept(size: u32, least: u32, most: u32, part: u32) -> u32 {
    if size <= least { 0 } else { (size / part).clamp(least, most) }
}

/// Every number from `first` to before `end`, from a random one on.
fn rotated(first: u32, end: u32, random: u128) -> impl Iterator<Item = u32> {
    let count = end.saturating_sub(first);
    let start = u32::try_from(random % u128::from(count.max(1))).unwrap_or_default();
    (0..count).map(move |at| first + (start + at) % count)
}

impl Default for ClusterIpRange {
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 96, 0, 0).to_bits(), bits: 16 }
    }
}

impl Default for NodePortRange {
    fn default() -> Self {
        Self { first: 30000, last: 32767 }
    }
}

impl FromStr for ClusterIpRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let refused = |why| RangeError { text: text.to_owned(), why };
        if text.contains([',', ':']) {
            return Err(refused(
                "is not one range of IPv4 addresses: services have one family here; leave the other out",
            ));
        }
        let (address, bits) =
            text.split_once('/').ok_or_else(|| refused("is no range of addresses: write 10.96.0.0/16"))?;
        let (Ok(address), Ok(bits)) = (address.parse::<Ipv4Addr>(), bits.parse::<u8>()) else {
            return Err(refused("is no range of addresses: write 10.96.0.0/16"));
        };
        // kube-apiserver takes no more than 20 bits of hosts, and eight addresses are the least that make sense.
        if !(12..=29).contains(&bits) {
            return Err(refused("must have a prefix of 12 to 29 bits"));
        }
        let network = address.to_bits() & (u32::MAX << (32 - u32::from(bits)));
        Ok(Self { network, bits })
    }
}

impl FromStr for NodePortRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let refused = |why| RangeError { text: text.to_owned(), why };
        let number = |text: &str| text.trim().parse::<u16>().ok();
        let range = match (text.split_once('-'), text.split_once('+')) {
            (Some((first, last)), _) => number(first).zip(number(last)),
            (_, Some((first, count))) => {
                number(first).and_then(|first| Some((first, first.checked_add(number(count)?)?)))
            }
            _ => number(text).map(|port| (port, port)),
        };
        let (first, last) = range.ok_or_else(|| refused("is no range of ports: write 30000-32767"))?;
        if first == 0 || first > last {
            return Err(refused("must be a range of ports from a smaller to a larger one, without 0"));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for ClusterIpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.bits)
    }
}

impl fmt::Display for NodePortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, own, first, count) in [
            ("10.96.0.0/16", "10.96.0.1", "10.96.1.0", 65533),
            ("10.0.0.0/24", "10.0.0.1", "10.0.0.16", 253),
            ("10.0.0.77/24", "10.0.0.1", "10.0.0.16", 253),
            ("10.0.0.0/29", "10.0.0.1", "10.0.0.2", 5),
        ] {
            let range: ClusterIpRange = text.parse().unwrap();
            let all: Vec<Ipv4Addr> = range.candidates(0).collect();
            assert_eq!((range.own_address().to_string().as_str(), all[0].to_string().as_str()), (own, first), "{text}");
            assert_eq!(all.len(), count, "{text}");
            assert!(all.iter().all(|address| range.contains(*address) && *address != range.own_address()), "{text}");
            assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), count, "{text}");
        }
        for text in ["", "10.0.0.0", "10.0.0.0/8", "10.0.0.0/30", "ten/24", "fd00::/108", "10.0.0.0/24,fd00::/108"] {
            assert!(text.parse::<ClusterIpRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn ports() {
        for (text, shown, first, count) in [
            ("30000-32767", "30000-32767", 30086, 2768),
            ("30000+99", "30000-30099", 30016, 100),
            ("31000", "31000-31000", 31000, 1),
        ] {
            let range: NodePortRange = text.parse().unwrap();
            let all: Vec<u16> = range.candidates(0).collect();
            assert_eq!((range.to_string().as_str(), all[0], all.len()), (shown, first, count), "{text}");
            assert!(all.iter().all(|port| range.contains(*port)), "{text}");
        }
        for text in ["", "0-10", "10-5", "a-b", "65000+1000", "70000"] {
            assert!(text.parse::<NodePortRange>().is_err(), "{text}");
        }
    }
}
