//! How a member is set up. In: what the program says, the environment, the name of the host. Out: where this member is and where the
//! others are, or what is missing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::grpc::{MemberCertificates, ServerNames};
use crate::member::{MAX_ORDINAL, Member, split_address};
use crate::peers::Peers;

/// The port of the crate that these names come from.
const PORT: u16 = 8080;

/// The largest value that can be allowed: a message has room for it.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// How often a volume has to have room for the state: two snapshots while one replaces the other, a log of as many bytes, and pages of
/// the database that are up to twice as large as what is in them; and as much again, because a full volume stops the member.
const VOLUME_FACTOR: u64 = 16;
const LEAST_VOLUME_BYTES: u64 = 1 << 30;

/// The variable with the list of members: `0=127.0.0.1:7000,1=127.0.0.1:7001`.
const PEERS_VARIABLE: &str = "KONVERGE_RAFT_PEERS";

/// A member of a cluster that elects its leader by Raft.
///
/// In a StatefulSet, the host name says which member this is, and a headless Service where the others are:
///
/// ```no_run
/// use konverge_raft::{RaftConfig, RaftNodeManager};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = RaftConfig::new("my-cluster")
///     .node_id(RaftNodeManager::node_id_from_hostname()?)
///     .service_name("my-operator-headless")
///     .namespace("default");
/// # Ok(())
/// # }
/// ```
///
/// Elsewhere, a list says it:
///
/// ```
/// use konverge_raft::RaftConfig;
/// let config = RaftConfig::new("my-cluster").node_id(0).peers([(0, "127.0.0.1:7000"), (1, "127.0.0.1:7001")]);
/// ```
///
/// The variable `KONVERGE_RAFT_PEERS`, `0=127.0.0.1:7000,1=127.0.0.1:7001`, is stronger than both, so that a program that is made for a
/// StatefulSet can be tried on a laptop.
#[derive(Clone, Debug)]
pub struct RaftConfig {
    pub(crate) cluster: String,
    node_id: Option<u64>,
    pod_name: Option<String>,
    service_name: Option<String>,
    namespace: Option<String>,
    port: u16,
    bind_address: Option<IpAddr>,
    peers: Option<Vec<(u64, String)>>,
    pub(crate) tls_dir: Option<PathBuf>,
    pub(crate) certificates: Option<MemberCertificates>,
    tls_name: Option<String>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) election_timeout: Duration,
    pub(crate) removed_after: Duration,
    pub(crate) replicas: usize,
    pub(crate) max_value_bytes: usize,
    pub(crate) max_total_bytes: u64,
    pub(crate) snapshot_after: u64,
}

impl RaftConfig {
    /// A member of the cluster of this name. Members of clusters with other names are not heard.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            node_id: None,
            pod_name: None,
            service_name: None,
            namespace: None,
            port: PORT,
            bind_address: None,
            peers: None,
            tls_dir: None,
            certificates: None,
            tls_name: None,
            data_dir: None,
            election_timeout: Duration::from_millis(350),
            removed_after: Duration::from_secs(300),
            replicas: 1,
            max_value_bytes: 512 << 10,
            max_total_bytes: 64 << 20,
            snapshot_after: 5000,
        }
    }

    /// The ordinal of this instance; that of the host name if it is not given. See
    /// [`node_id_from_hostname`](crate::RaftNodeManager::node_id_from_hostname).
    pub fn node_id(mut self, ordinal: u64) -> Self {
        self.node_id = Some(ordinal);
        self
    }

    /// The name of this Pod, `my-operator-0`, if neither `POD_NAME` nor `HOSTNAME` says it.
    pub fn pod_name(mut self, name: impl Into<String>) -> Self {
        self.pod_name = Some(name.into());
        self
    }

    /// The headless Service of the StatefulSet. It has to publish addresses that are not ready: members find each other before they
    /// are.
    pub fn service_name(mut self, name: impl Into<String>) -> Self {
        self.service_name = Some(name.into());
        self
    }

    /// The namespace of the Service; `POD_NAMESPACE` if it is not given, otherwise `default`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = Some(name.into());
        self
    }

    /// The port of all members; 8080 unless told.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The address of the interface to listen on; all of them unless told, over IPv6 and IPv4. `::` is all of them, too, and `0.0.0.0` those
    /// of IPv4. A member of a list with an IP address listens on that.
    pub fn bind_address(mut self, address: IpAddr) -> Self {
        self.bind_address = Some(address);
        self
    }

    /// The members by their ordinals, with host and port (`web-0:7000`, `10.0.0.1:7000`, `[fd00::1]:7000`), instead of a Service. This
    /// instance is one of them.
    pub fn peers<A: Into<String>>(mut self, peers: impl IntoIterator<Item = (u64, A)>) -> Self {
        self.peers = Some(peers.into_iter().map(|(ordinal, address)| (ordinal, address.into())).collect());
        self
    }

    /// Members show each other certificates: `ca.crt`, `tls.crt` and `tls.key` in this directory, as in a mounted Secret of cert-manager.
    /// Without it, messages are neither secret nor authentic, and the log warns of that.
    ///
    /// The certificate has to be for servers and for clients, and for the names of *all* members, `*.SERVICE.NAMESPACE.svc`: members are
    /// found by addresses, so before they know who listens there, each expects a certificate that is also for its own name. With a list of
    /// [`peers`](Self::peers), each has one for its host in the list. A certificate of the same CA for other names is that of another
    /// workload, and is refused; [`tls_name`](Self::tls_name) sets another name.
    ///
    /// The files are looked at every two seconds, and new ones are used for new connections without a restart. To change the CA, let
    /// `ca.crt` have both the old and the new one until every member has a certificate of the new one.
    pub fn tls_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.tls_dir = Some(directory.into());
        self
    }

    /// The same with certificates that the program has, and may replace while the member runs.
    pub fn tls(mut self, certificates: MemberCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// The name that the certificates of all members are for, if it is not that of their hosts: whoever shows a certificate of the CA for
    /// another name is not heard.
    pub fn tls_name(mut self, name: impl Into<String>) -> Self {
        self.tls_name = Some(name.into());
        self
    }

    /// Whether certificates were given.
    pub fn has_certificates(&self) -> bool {
        self.tls_dir.is_some() || self.certificates.is_some()
    }

    /// The hosts that certificates of members are for: with a headless Service, all names below it.
    pub fn certificate_names(&self) -> Vec<String> {
        let environment = |name: &str| std::env::var(name).ok();
        if let Some(name) = &self.tls_name {
            return vec![name.clone()];
        }
        match (self.listed(environment), &self.service_name) {
            (Ok(Some(listed)), _) => hosts(&listed),
            (_, Some(service)) => vec![format!("*.{}", self.domain(service, environment))],
            _ => Vec::new(),
        }
    }

    /// Keeps log, vote and state in this directory, on a volume of this instance.
    #[cfg(feature = "persist")]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// How long members wait for their leader before they elect another; 350 ms unless told. A leader that hears from no majority stops
    /// after two thirds of that. Raise it where CPU or network stall for longer than a tenth of a second, or leaders change without
    /// need. A message to another member and its answer have to take less than a fifth of it, or nothing is replicated.
    pub fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// How long an instance that was scaled away has to be gone before it is no member any more; 5 minutes unless told.
    pub fn removed_after(mut self, time: Duration) -> Self {
        self.removed_after = time;
        self
    }

    /// How many instances have to be there before the first of them founds the cluster. 1 unless told: then those that DNS knows, or
    /// all in the list. A StatefulSet that starts its Pods in parallel should say its replicas.
    pub fn replicas(mut self, instances: usize) -> Self {
        self.replicas = instances;
        self
    }

    /// The largest value of the replicated state, at most 1 MiB; 512 KiB unless told.
    pub fn max_value_bytes(mut self, bytes: usize) -> Self {
        self.max_value_bytes = bytes;
        self
    }

    /// How many bytes all keys and values of the replicated state may have together; 64 MiB unless told. Every member has in its memory
    /// the state, its newest snapshot and another copy while one is made or sent, and without a directory a log of about as many bytes.
    /// A volume needs room for several times as much.
    pub fn max_total_bytes(mut self, bytes: u64) -> Self {
        self.max_total_bytes = bytes;
        self
    }

    /// After how many entries of the log a snapshot takes their place; 5000 unless told. It does so earlier if they have more bytes than
    /// the state may have.
    pub fn snapshot_after(mut self, entries: u64) -> Self {
        self.snapshot_after = entries;
        self
    }

    /// What a StatefulSet of such members has to have.
    pub fn deployment(&self) -> RaftDeployment {
        RaftDeployment {
            service_name: self.service_name.clone(),
            port: self.port,
            data_dir: self.data_dir.clone(),
            volume_bytes: self.max_total_bytes.saturating_mul(VOLUME_FACTOR).max(LEAST_VOLUME_BYTES),
            tls_dir: self.tls_dir.clone(),
        }
    }

    /// Where this member is. `environment` is asked for variables, `host` is the name of the machine.
    pub(crate) fn place(
        &self,
        environment: impl Fn(&str) -> Option<String>,
        host: &str,
    ) -> Result<Place, RaftStartError> {
        self.check()?;
        let listed = self.listed(&environment)?;
        let pod = self.pod_name.clone().unwrap_or_else(|| pod_name(&environment, host));
        let named = parse_pod_name(&pod);
        let ordinal = match (self.node_id, named) {
            (Some(ordinal), _) | (None, Some((_, ordinal))) => ordinal,
            (None, None) => return Err(RaftStartError::HostName { name: pod }),
        };
        if ordinal > MAX_ORDINAL {
            return Err(RaftStartError::Config(format!(
                "the node id is {ordinal}; it has to be at most {MAX_ORDINAL}"
            )));
        }
        if let Some(listed) = listed {
            let address = listed.get(&ordinal).cloned().ok_or_else(|| {
                RaftStartError::Config(format!("the list of peers has no member {ordinal}, which is this one"))
            })?;
            for address in listed.values() {
                check_address(address)?;
            }
            let (host, port) = check_address(&address)?;
            let bind = listeners(self.bind_address.or_else(|| host.parse().ok()), port);
            let name = match named {
                Some((_, of_pod)) if of_pod == ordinal => pod,
                _ => format!("{}-{ordinal}", self.cluster),
            };
            let member = Member { ordinal, name, address };
            let (believed, called) = match &self.tls_name {
                Some(name) => (vec![name.clone()], ServerNames::All(name.clone())),
                None => (hosts(&listed), ServerNames::Hosts),
            };
            return Ok(Place { member, bind, peers: Peers::Listed(listed), believed, called });
        }
        let Some(service) = &self.service_name else {
            return Err(RaftStartError::Config(
                "nothing says where the other members are; give the headless Service with .service_name(…), or a list with .peers(…)"
                    .into(),
            ));
        };
        let (base, of_pod) = named.ok_or(RaftStartError::HostName { name: pod.clone() })?;
        if of_pod != ordinal {
            return Err(RaftStartError::Config(format!(
                "the node id is {ordinal}, but this Pod is called {pod}; members find each other by the names of their Pods"
            )));
        }
        let domain = self.domain(service, &environment);
        let host = format!("{base}-{ordinal}.{domain}");
        let address = format!("{host}:{}", self.port);
        let bind = listeners(self.bind_address, self.port);
        let peers = Peers::behind(domain, self.port);
        let (believed, called) = match &self.tls_name {
            Some(name) => (vec![name.clone()], ServerNames::All(name.clone())),
            None => (vec![host.clone()], ServerNames::HostsAndForAddresses(host)),
        };
        Ok(Place { member: Member { ordinal, name: pod, address }, bind, peers, believed, called })
    }

    /// The list of members, if there is one.
    fn listed(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<BTreeMap<u64, String>>, RaftStartError> {
        let listed = environment(PEERS_VARIABLE).map(|text| parse_peers(&text)).transpose()?.or(self.peers.clone());
        listed.map(distinct).transpose()
    }

    /// The name of the Service in DNS.
    fn domain(&self, service: &str, environment: impl Fn(&str) -> Option<String>) -> String {
        let namespace = self.namespace.clone().or_else(|| environment("POD_NAMESPACE")).unwrap_or("default".into());
        format!("{service}.{namespace}.svc")
    }

    fn check(&self) -> Result<(), RaftStartError> {
        let wrong = |why: String| Err(RaftStartError::Config(why));
        if self.cluster.is_empty() {
            return wrong("the cluster has no name".into());
        }
        if self.election_timeout < Duration::from_millis(50) {
            return wrong(format!("the election timeout is {:?}; it has to be at least 50ms", self.election_timeout));
        }
        if self.max_value_bytes > MAX_VALUE_BYTES {
            let bytes = self.max_value_bytes;
            return wrong(format!("values may have {bytes} bytes; they can have at most {MAX_VALUE_BYTES}"));
        }
        if self.snapshot_after < 10 {
            return wrong(format!(
                "a snapshot is made after {} entries; it has to be at least 10",
                self.snapshot_after
            ));
        }
        Ok(())
    }
}

/// What a StatefulSet of members has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaftDeployment {
    /// The headless Service, if there is one.
    pub service_name: Option<String>,
    /// The port of all members.
    pub port: u16,
    /// Where a volume of each member is mounted, if they keep something.
    pub data_dir: Option<PathBuf>,
    /// How large that volume has to be.
    pub volume_bytes: u64,
    /// Where a Secret with certificates is mounted, if they use some.
    pub tls_dir: Option<PathBuf>,
}

/// Where this member is, and the others.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub member: Member,
    /// Where to listen: the first of these that the machine has.
    pub bind: Vec<SocketAddr>,
    pub peers: Peers,
    /// Whoever asks this member something has a certificate for one of these names.
    pub believed: Vec<String>,
    /// The names that certificates of those that this member asks are for.
    pub called: ServerNames,
}

/// Why a member cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaftStartError {
    /// The host name does not say which member this is.
    #[error(
        "the host name {name:?} does not end in a number as those of a StatefulSet do; set POD_NAME, or give the number with .node_id(…)"
    )]
    HostName {
        /// What was found.
        name: String,
    },
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// The certificates cannot be used.
    #[error("the certificates of the members cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The address cannot be had.
    #[error("cannot listen for other members")]
    Bind(#[from] konverge_serve::BindError),
    /// The directory cannot be used.
    #[error("cannot use the directory for the log of the member")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The name of this Pod, from where Kubernetes puts it.
pub(crate) fn pod_name(environment: impl Fn(&str) -> Option<String>, host: &str) -> String {
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    set("POD_NAME").or_else(|| set("HOSTNAME")).unwrap_or_else(|| host.to_owned())
}

/// `my-operator-0` → `my-operator`, 0. A name with a domain behind it is cut.
pub(crate) fn parse_pod_name(name: &str) -> Option<(&str, u64)> {
    let (base, ordinal) = name.split('.').next()?.rsplit_once('-')?;
    let is_number = !base.is_empty() && !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    Some((base, ordinal.parse().ok().filter(|_| is_number)?))
}

/// `0=127.0.0.1:7000,1=127.0.0.1:7001`
fn parse_peers(text: &str) -> Result<Vec<(u64, String)>, RaftStartError> {
    let parse = |item: &str| {
        let (ordinal, address) = item.split_once('=')?;
        Some((ordinal.trim().parse().ok()?, address.trim().to_owned()))
    };
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            parse(item).ok_or_else(|| {
                RaftStartError::Config(format!(
                    "{PEERS_VARIABLE} has {item:?} in it; it has to be like 0=127.0.0.1:7000,1=127.0.0.1:7001"
                ))
            })
        })
        .collect()
}

/// A list in which every member and every address is once. Of two members with one ordinal, only one could ever be found.
fn distinct(peers: Vec<(u64, String)>) -> Result<BTreeMap<u64, String>, RaftStartError> {
    let wrong =
        |why: String| Err(RaftStartError::Config(format!("the list of peers has {why}; name each member once")));
    let mut listed: BTreeMap<u64, String> = BTreeMap::new();
    for (ordinal, address) in peers {
        if let Some(known) = listed.get(&ordinal) {
            return wrong(format!("the member {ordinal} twice, at {known} and at {address}"));
        }
        if let Some((known, _)) = listed.iter().find(|(_, known)| **known == address) {
            return wrong(format!("{address} twice, for the members {known} and {ordinal}"));
        }
        listed.insert(ordinal, address);
    }
    Ok(listed)
}

fn check_address(address: &str) -> Result<(&str, u16), RaftStartError> {
    split_address(address).ok_or_else(|| {
        RaftStartError::Config(format!(
            "the address {address:?} of a member has to be a host and a port: web-0.web:8080, 10.0.0.1:8080 or [fd00::1]:8080"
        ))
    })
}

/// The hosts of a list, each once.
fn hosts(listed: &BTreeMap<u64, String>) -> Vec<String> {
    let mut hosts: Vec<String> =
        listed.values().filter_map(|address| Some(split_address(address)?.0.to_owned())).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The addresses to try, in this order. `::` accepts IPv4 as well; a machine without IPv6 has `0.0.0.0`.
fn listeners(address: Option<IpAddr>, port: u16) -> Vec<SocketAddr> {
    match address {
        Some(address) => vec![SocketAddr::new(address, port)],
        None => vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinal_is_the_number_at_the_end() {
        for (name, expect) in [
            ("my-operator-0", Some(("my-operator", 0))),
            ("web-12", Some(("web", 12))),
            ("web-2.web.shop.svc", Some(("web", 2))),
            ("laptop", None),
            ("web-", None),
            ("-1", None),
            ("web-+1", None),
            ("web-99999999999999999999", None),
        ] {
            assert_eq!(parse_pod_name(name), expect, "{name}");
        }
    }

    fn check(config: RaftConfig, variables: &[(&str, &str)], expect: Result<(&str, &str, &str), &str>) {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        let got = config.place(variable, "laptop");
        match (got, expect) {
            (Ok(place), Ok((name, address, bind))) => {
                let Place { member, bind: bound, .. } = place;
                assert_eq!(
                    (member.name.as_str(), member.address.as_str(), bound[0].to_string().as_str()),
                    (name, address, bind)
                );
            }
            (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn a_member_of_a_stateful_set_is_found_by_the_name_of_its_pod() {
        let config = || RaftConfig::new("c").service_name("web-headless").namespace("shop");
        let pod = [("POD_NAME", "web-1"), ("HOSTNAME", "other-7")];
        check(config(), &pod, Ok(("web-1", "web-1.web-headless.shop.svc:8080", "[::]:8080")));
        check(config().node_id(1).port(9000), &pod, Ok(("web-1", "web-1.web-headless.shop.svc:9000", "[::]:9000")));
        let local = "127.0.0.1".parse().unwrap();
        check(
            config().bind_address(local),
            &[("HOSTNAME", "web-3")],
            Ok(("web-3", "web-3.web-headless.shop.svc:8080", "127.0.0.1:8080")),
        );
        check(config().node_id(2), &pod, Err("the node id is 2, but this Pod is called web-1"));
        check(config(), &[], Err("the host name \"laptop\" does not end in a number"));
        check(config().pod_name("web-0"), &[], Ok(("web-0", "web-0.web-headless.shop.svc:8080", "[::]:8080")));
        let elsewhere = RaftConfig::new("c").service_name("web").pod_name("web-0");
        check(elsewhere, &[("POD_NAMESPACE", "yard")], Ok(("web-0", "web-0.web.yard.svc:8080", "[::]:8080")));
    }

    #[test]
    fn a_list_says_where_members_are() {
        let config = || RaftConfig::new("c").peers([(0, "127.0.0.1:7000"), (1, "node-b:7001")]);
        check(config().node_id(0), &[], Ok(("c-0", "127.0.0.1:7000", "127.0.0.1:7000")));
        check(config(), &[("POD_NAME", "web-1")], Ok(("web-1", "node-b:7001", "[::]:7001")));
        check(config().node_id(4), &[], Err("the list of peers has no member 4"));
        check(config(), &[], Err("does not end in a number"));
        let given = [("KONVERGE_RAFT_PEERS", "0=127.0.0.1:9000, 1=[::1]:9001")];
        check(config().node_id(0), &given, Ok(("c-0", "127.0.0.1:9000", "127.0.0.1:9000")));
        check(config().node_id(1), &given, Ok(("c-1", "[::1]:9001", "[::1]:9001")));
        let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        check(config().node_id(1).bind_address(all), &given, Ok(("c-1", "[::1]:9001", "[::]:9001")));
        let bare = [("KONVERGE_RAFT_PEERS", "0=127.0.0.1:9000,1=::1:9001")];
        check(config().node_id(0), &bare, Err("the address \"::1:9001\" of a member has to be a host and a port"));
        check(config().node_id(0), &[("KONVERGE_RAFT_PEERS", "127.0.0.1:9000")], Err("it has to be like 0="));
        check(RaftConfig::new("c").node_id(0).peers([(0, "7000")]), &[], Err("has to be a host and a port"));
        let twice = [("KONVERGE_RAFT_PEERS", "0=127.0.0.1:9000,1=node-b:9001,0=node-c:9000")];
        check(config().node_id(0), &twice, Err("has the member 0 twice, at 127.0.0.1:9000 and at node-c:9000"));
        let same = [("KONVERGE_RAFT_PEERS", "0=127.0.0.1:9000,1=127.0.0.1:9000")];
        check(config().node_id(0), &same, Err("has 127.0.0.1:9000 twice, for the members 0 and 1"));
        let listed = RaftConfig::new("c").node_id(0).peers([(0, "a:1"), (1, "b:1"), (1, "c:1")]);
        check(listed, &[], Err("has the member 1 twice"));
    }

    #[test]
    fn certificates_are_for_names_of_the_cluster() {
        let check = |config: RaftConfig, believed: &[&str], called: ServerNames| {
            let place = config.place(|_| None, "web-1").unwrap();
            assert_eq!(
                (place.believed, place.called),
                (believed.iter().map(|name| name.to_string()).collect(), called)
            );
        };
        let service = || RaftConfig::new("c").service_name("web").namespace("shop");
        let host = "web-1.web.shop.svc";
        check(service(), &[host], ServerNames::HostsAndForAddresses(host.into()));
        check(service().tls_name("raft.shop"), &["raft.shop"], ServerNames::All("raft.shop".into()));
        let listed = || RaftConfig::new("c").peers([(0, "[::1]:7000"), (1, "b:7000"), (2, "b:7001")]);
        check(listed(), &["::1", "b"], ServerNames::Hosts);
        check(listed().tls_name("raft.shop"), &["raft.shop"], ServerNames::All("raft.shop".into()));
        assert_eq!(service().certificate_names(), ["*.web.shop.svc"]);
        assert_eq!(listed().certificate_names(), ["::1", "b"]);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let config = || RaftConfig::new("c").node_id(0).peers([(0, "127.0.0.1:7000")]);
        check(RaftConfig::new("c").node_id(0), &[], Err("nothing says where the other members are"));
        check(RaftConfig::new("").node_id(0), &[], Err("the cluster has no name"));
        check(config().election_timeout(Duration::from_millis(9)), &[], Err("at least 50ms"));
        check(config().max_value_bytes(2 << 20), &[], Err("at most 1048576"));
        check(config().snapshot_after(0), &[], Err("at least 10"));
        check(config().node_id(70_000), &[], Err("at most 65535"));
    }
}
