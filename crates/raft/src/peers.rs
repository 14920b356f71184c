//! Where other members may be. In: a headless Service or a list. Out: addresses, and whether a member is still expected. A name that
//! cannot be looked up is an error, never "there is nobody": whoever believed that would found a second cluster, or remove members that
//! are there.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::member::Member;

/// How long a name may take to be looked up.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) enum Peers {
    /// All Pods behind a headless Service.
    Service { domain: String, port: u16, resolver: Arc<dyn Resolver> },
    /// These, by ordinal.
    Listed(BTreeMap<u64, String>),
}

/// Looks up names.
pub(crate) trait Resolver: fmt::Debug + Send + Sync {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, LookupError>>;
}

/// Why a name has no addresses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// DNS has answered that there is no such name.
    #[error("there is no such name")]
    NoSuchName,
    /// It is not known whether there is one.
    #[error("{0}")]
    Failed(String),
}

/// Where members may be, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// This member's own among them.
    pub addresses: Vec<String>,
    /// How many instances these are: one may have two addresses.
    pub instances: usize,
}

impl Peers {
    /// All Pods behind the headless Service of this name.
    pub(crate) fn behind(domain: String, port: u16) -> Self {
        Self::Service { domain, port, resolver: Arc::new(SystemResolver) }
    }

    pub(crate) async fn places(&self) -> Result<Places, LookupError> {
        match self {
            Peers::Listed(listed) => {
                Ok(Places { addresses: listed.values().cloned().collect(), instances: listed.len() })
            }
            Peers::Service { domain, port, resolver } => {
                let found = resolver.look_up(domain.clone(), *port).await?;
                if found.is_empty() {
                    return Err(LookupError::Failed("the name has no addresses".to_owned()));
                }
                Ok(Places {
                    addresses: found.iter().map(SocketAddr::to_string).collect(),
                    instances: instances(&found),
                })
            }
        }
    }

    /// Whether this member is expected, given how many instances were found: its place in the list, an ordinal that the StatefulSet
    /// still has, or its own name. If nobody knows whether its name is still there, it is expected.
    pub(crate) async fn expects(&self, member: &Member, instances: usize) -> bool {
        match self {
            Peers::Listed(listed) => listed.contains_key(&member.ordinal),
            Peers::Service { port, resolver, .. } => {
                member.ordinal < instances as u64
                    || !matches!(resolver.look_up(member.host().to_owned(), *port).await, Err(LookupError::NoSuchName))
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

/// How many Pods have these addresses. With both families of IP, each Pod has one of each.
fn instances(addresses: &[SocketAddr]) -> usize {
    let of_v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    of_v4.max(addresses.len() - of_v4)
}

/// Asks as every other program of the machine does.
#[derive(Debug)]
struct SystemResolver;

impl Resolver for SystemResolver {
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, LookupError>> {
        async move {
            let found = tokio::time::timeout(LOOKED_UP_WITHIN, tokio::net::lookup_host((host.as_str(), port))).await;
            match found {
                Ok(Ok(found)) => Ok(found.collect()),
                Ok(Err(error)) => Err(judge(&error)),
                Err(_) => Err(LookupError::Failed(format!("no answer about {host} within {LOOKED_UP_WITHIN:?}"))),
            }
        }
        .boxed()
    }
}

/// How systems say that there is no such name (`EAI_NONAME`): glibc, musl, Apple. The standard library hands on the words alone.
const NO_SUCH_NAME: [&str; 3] =
    ["Name or service not known", "Name does not resolve", "nodename nor servname provided, or not known"];

/// The same on Windows, which has a number for it.
const WSA_HOST_NOT_FOUND: i32 = 11_001;

/// Whether an error says that there is no such name. Every other one, also one that is not known here, says nothing of the name.
fn judge(error: &io::Error) -> LookupError {
    let text = error.to_string();
    let is_answer = NO_SUCH_NAME.iter().any(|answer| text.ends_with(answer));
    match is_answer || cfg!(windows) && error.raw_os_error() == Some(WSA_HOST_NOT_FOUND) {
        true => LookupError::NoSuchName,
        false => LookupError::Failed(text),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A DNS of this process: what each name has; none is a failure, and names that it lacks do not exist.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Names(Arc<Mutex<BTreeMap<String, Option<Vec<SocketAddr>>>>>);

    impl Names {
        /// From now on, looking up this name fails, or has these addresses.
        pub(crate) fn set(&self, host: &str, addresses: Option<&[&str]>) {
            let addresses = addresses.map(|found| found.iter().map(|address| address.parse().unwrap()).collect());
            self.0.lock().insert(host.to_owned(), addresses);
        }

        /// From now on, there is no such name.
        pub(crate) fn remove(&self, host: &str) {
            self.0.lock().remove(host);
        }

        pub(crate) fn peers(&self, domain: &str) -> Peers {
            Peers::Service { domain: domain.into(), port: 1, resolver: Arc::new(self.clone()) }
        }
    }

    impl Resolver for Names {
        fn look_up(&self, host: String, _: u16) -> BoxFuture<'static, Result<Vec<SocketAddr>, LookupError>> {
            let found = self.0.lock().get(&host).cloned();
            std::future::ready(match found {
                Some(Some(addresses)) => Ok(addresses),
                Some(None) => Err(LookupError::Failed("no name server answers".into())),
                None => Err(LookupError::NoSuchName),
            })
            .boxed()
        }
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_looked_up_is_an_error() {
        let names = Names::default();
        names.set("fails", None);
        names.set("empty", Some(&[]));
        names.set("web", Some(&["10.0.0.1:1", "[fd00::1]:1"]));
        for domain in ["fails", "empty", "absent"] {
            assert!(names.peers(domain).places().await.is_err(), "{domain}");
        }
        let places = names.peers("web").places().await.unwrap();
        assert_eq!(places, Places { addresses: vec!["10.0.0.1:1".into(), "[fd00::1]:1".into()], instances: 1 });
        let local = Peers::behind("127.0.0.1".into(), 8080).places().await.unwrap();
        assert_eq!(local.addresses, ["127.0.0.1:8080"]);
    }

    #[test]
    fn only_an_answer_says_that_there_is_no_such_name() {
        for (text, expect) in [
            ("failed to lookup address information: Name or service not known", true),
            ("failed to lookup address information: Name does not resolve", true),
            ("failed to lookup address information: nodename nor servname provided, or not known", true),
            ("failed to lookup address information: Temporary failure in name resolution", false),
            ("failed to lookup address information: Try again", false),
            ("failed to lookup address information: Non-recoverable failure in name resolution", false),
            ("failed to lookup address information: No address associated with hostname", false),
            ("Too many open files", false),
        ] {
            assert_eq!(matches!(judge(&io::Error::other(text)), LookupError::NoSuchName), expect, "{text}");
        }
    }

    #[tokio::test]
    async fn a_member_is_expected_while_something_names_it_or_nobody_knows() {
        let names = Names::default();
        names.set("here", Some(&["10.0.0.1:1"]));
        names.set("fails", None);
        let service = names.peers("web");
        let member = |ordinal, address: &str| Member { ordinal, name: String::new(), address: address.into() };
        for (ordinal, address, expect) in
            [(0, "gone:1", true), (2, "gone:1", true), (3, "gone:1", false), (3, "here:1", true), (3, "fails:1", true)]
        {
            assert_eq!(service.expects(&member(ordinal, address), 3).await, expect, "{ordinal} {address}");
        }
        let listed = Peers::Listed([(1, "h:1".to_owned())].into());
        assert!(listed.expects(&member(1, "h:1"), 1).await);
        assert!(!listed.expects(&member(2, "h:1"), 1).await);
    }

    #[test]
    fn pods_are_counted_once() {
        let check = |addresses: &[&str], expect: usize| {
            let addresses: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(instances(&addresses), expect, "{addresses:?}");
        };
        check(&[], 0);
        check(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"], 3);
        check(&["[fd00::1]:1", "[fd00::2]:1"], 2);
        check(&["10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1", "[fd00::2]:1"], 2);
        check(&["10.0.0.1:1", "[fd00::1]:1", "10.0.0.2:1"], 2);
    }
}
