//! Where other members may be. In: a headless Service or a list. Out: addresses. A name that cannot be looked up is an error, never
//! "there is nobody": whoever believed that would found a second cluster.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::member::Member;

/// How long a name may take to be looked up.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// All Pods behind a headless Service.
    Service { domain: String, port: u16 },
    /// These, by ordinal.
    Listed(BTreeMap<u64, String>),
}

impl Peers {
    /// The addresses of all members that may be there, this one among them.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<String>> {
        match self {
            Peers::Listed(listed) => Ok(listed.values().cloned().collect()),
            Peers::Service { domain, port } => {
                let found = look_up(domain.clone(), *port).await?;
                Ok(found.into_iter().map(|address| address.to_string()).collect())
            }
        }
    }

    /// Whether this member is expected, given how many addresses there are: its place in the list, its own name, or an ordinal that
    /// the StatefulSet still has.
    pub(crate) async fn expects(&self, member: &Member, addresses: usize) -> bool {
        match self {
            Peers::Listed(listed) => listed.contains_key(&member.ordinal),
            Peers::Service { port, .. } => {
                member.ordinal < addresses as u64 || look_up(member.host().to_owned(), *port).await.is_ok()
            }
        }
    }

    /// How many members have to be there before a cluster is founded.
    pub(crate) fn at_least(&self, replicas: usize) -> usize {
        match self {
            Peers::Listed(listed) => listed.len().max(replicas),
            Peers::Service { .. } => replicas,
        }
    }
}

async fn look_up(host: String, port: u16) -> io::Result<Vec<std::net::SocketAddr>> {
    let found = tokio::time::timeout(LOOKED_UP_WITHIN, tokio::net::lookup_host((host.as_str(), port)));
    let found: Vec<_> = found.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.collect();
    match found.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_cannot_be_looked_up_is_an_error() {
        let service = |domain: &str| Peers::Service { domain: domain.into(), port: 8080 };
        assert!(service("nobody.invalid").addresses().await.is_err());
        assert!(service("127.0.0.1").addresses().await.is_ok_and(|found| found == ["127.0.0.1:8080"]));
    }

    #[tokio::test]
    async fn a_member_is_expected_while_something_names_it() {
        let service = Peers::Service { domain: "127.0.0.1".into(), port: 8080 };
        let member = |ordinal, address: &str| Member { ordinal, name: String::new(), address: address.into() };
        for (ordinal, address, expect) in
            [(0, "gone.invalid:8080", true), (3, "gone.invalid:8080", false), (3, "127.0.0.1:8080", true)]
        {
            assert_eq!(service.expects(&member(ordinal, address), 3).await, expect, "{ordinal} {address}");
        }
        let listed = Peers::Listed([(1, "h:1".to_owned())].into());
        assert!(listed.expects(&member(1, "h:1"), 1).await);
        assert!(!listed.expects(&member(2, "h:1"), 1).await);
    }
}
