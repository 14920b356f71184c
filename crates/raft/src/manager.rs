//! A member that runs: its listener, its storage, its tasks. In: a configuration. Out: who leads, the replicated state, and at the end
//! an orderly stop.

use std::fmt;
#[cfg(feature = "persist")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use konverge_leadership::Leadership;
use konverge_serve::Server;
use tokio::task::JoinSet;

use crate::config::{Place, RaftConfig, RaftDeployment, RaftStartError, parse_pod_name, pod_name};
use crate::grpc::{GrpcServer, GrpcTransport, follow};
use crate::member::{identity, new_id};
use crate::node::{Limits, Node, Parts};
use crate::peers::Peers;
use crate::random::Random;
use crate::replicated::Replicated;
use crate::status::RaftStatus;
use crate::storage::{Machine, MemoryLog};
use crate::timing::Timing;
use crate::wire::{self, Envelope, Refusal};
use crate::{campaign, election, joining, roster};

/// How long handing over the lead may take, and then openraft and the listener to end. A Pod has 30 s, and reconciles have taken their
/// part of it.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(2);
const ENDED_WITHIN: Duration = Duration::from_secs(1);

/// A member of a cluster that elects its leader by Raft. It listens, joins its cluster and takes part in elections from when it is made
/// until [`shutdown`](Self::shutdown); if it is dropped, it stops like after a crash.
///
/// An operator takes one: `Operator::with_leader_election`.
pub struct RaftNodeManager {
    node: Arc<Node>,
    tasks: JoinSet<String>,
    server: Option<Server>,
    deployment: RaftDeployment,
}

impl RaftNodeManager {
    /// The number at the end of the host name, `my-operator-0` → 0, as a StatefulSet gives it: from `POD_NAME`, `HOSTNAME` or the
    /// system.
    pub fn node_id_from_hostname() -> Result<u64, RaftStartError> {
        let name = pod_name(|name| std::env::var(name).ok(), &host_name());
        match parse_pod_name(&name) {
            Some((_, ordinal)) => Ok(ordinal),
            None => Err(RaftStartError::HostName { name }),
        }
    }

    /// A member whose log is in memory, or in the directory that the configuration names.
    ///
    /// In memory, a member that is started again is a new one: it takes the place of the one before when the leader has given it the
    /// log. A majority of the members must not stop at the same time; if it does, replicated state is lost, and the members that are
    /// left stop as well, so that a new cluster is founded.
    pub async fn new(config: RaftConfig) -> Result<Self, RaftStartError> {
        let place = config.place(|name| std::env::var(name).ok(), &host_name())?;
        Self::at(config, place).await
    }

    /// A member whose log, vote and state are in this directory, synced before anything is acknowledged. They survive `kill -9` of all
    /// members at once. It has to be on a volume of this instance.
    #[cfg(feature = "persist")]
    pub async fn new_persistent(config: RaftConfig, directory: impl Into<PathBuf>) -> Result<Self, RaftStartError> {
        Self::new(config.data_dir(directory)).await
    }

    /// The same as [`new_persistent`](Self::new_persistent). The name is kept for programs that were written for another crate; the
    /// file is one of redb, not of RocksDB, which needs clang and many minutes to build.
    #[cfg(feature = "persist")]
    pub async fn new_with_rocksdb(config: RaftConfig, directory: impl Into<PathBuf>) -> Result<Self, RaftStartError> {
        Self::new_persistent(config, directory).await
    }

    async fn at(config: RaftConfig, place: Place) -> Result<Self, RaftStartError> {
        let (tls, following) = match (&config.certificates, &config.tls_dir) {
            (Some(given), _) => (Some(given.clone()), None),
            (None, Some(directory)) => {
                let (certificates, following) = follow(directory)?;
                (Some(certificates), Some(following))
            }
            (None, None) => {
                tracing::warn!(
                    cluster = config.cluster,
                    "raft: members talk to each other without TLS, so whoever reaches their port can change what they have; \
                     .tls_dir(…) has them use certificates"
                );
                (None, None)
            }
        };
        let mut random = Random::of_this_process();
        let id = new_id(place.member.ordinal, random.next());
        let shown = tls.as_ref().map(|certificates| certificates.server(&place.believed)).transpose()?;
        let transport = Arc::new(GrpcTransport::new(tls, place.called));
        let parts = Parts {
            id,
            me: place.member,
            cluster: config.cluster.clone(),
            timing: Timing::of(config.election_timeout),
            snapshot_after: config.snapshot_after,
            limits: Limits { value: config.max_value_bytes, total: config.max_total_bytes },
            transport,
            random,
        };
        let node = start(&config, parts).await?;
        let server = GrpcServer::bind(&place.bind, shown)?;
        tracing::info!(
            cluster = config.cluster,
            member = identity(&node.me.name, node.id),
            address = %server.local_addr(),
            "raft: listening for other members"
        );
        let answering = node.clone();
        let answers = Arc::new(move |message| {
            let node = answering.clone();
            Box::pin(async move { answer(&node, message).await }) as BoxFuture<'static, Vec<u8>>
        });
        let (server, watching) = server.serve(&config.cluster, answers);
        let mut tasks = run(&node, place.peers, config.replicas, config.removed_after);
        tasks.spawn(async move {
            watching.await;
            "the log does not say any more who is refused".to_owned()
        });
        if let Some(following) = following {
            tasks.spawn(async move {
                following.await;
                "certificates are not looked at any more".to_owned()
            });
        }
        Ok(Self { node, tasks, server: Some(server), deployment: config.deployment() })
    }

    /// What a StatefulSet of such members has to have.
    pub fn deployment(&self) -> RaftDeployment {
        self.deployment.clone()
    }

    /// Whether this member leads, and who does.
    pub fn leadership(&self) -> Leadership {
        self.node.lease.leadership()
    }

    /// The state that all members share.
    pub fn replicated(&self) -> Replicated {
        Replicated::new(self.node.clone())
    }

    /// How the member and its cluster are.
    pub fn status(&self) -> RaftStatus {
        self.node.status()
    }

    /// A function that tells how the member and its cluster are, for pages that outlive this value.
    pub fn status_source(&self) -> impl Fn() -> RaftStatus + Send + Sync + 'static {
        let node = self.node.clone();
        move || node.status()
    }

    /// Resolves with the reason if the member ends by itself: its disk failed, or its cluster is lost.
    pub async fn failed(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Ok(why)) => why,
            Some(Err(error)) => format!("a task of the member has ended: {error}"),
            None => std::future::pending().await,
        }
    }

    /// Stops. A leader hands over to another member first, so that it leads at once. It returns within some seconds, whatever happens.
    pub async fn shutdown(mut self) {
        self.node.hand_over(HANDED_OVER_WITHIN).await;
        self.tasks.abort_all();
        if tokio::time::timeout(ENDED_WITHIN, self.node.raft.shutdown()).await.is_err() {
            tracing::warn!(cluster = self.node.cluster, "raft: the member did not end in time");
        }
        if let Some(server) = self.server.take() {
            server.stop(crate::grpc::ENDS_WITHIN).await;
        }
    }
}

impl Drop for RaftNodeManager {
    fn drop(&mut self) {
        // The tasks of openraft end when the last handle is gone; until then nobody is told that this member leads, here or elsewhere.
        self.node.lease.give_up();
        self.node.closed.store(true, Relaxed);
    }
}

impl fmt::Debug for RaftNodeManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftNodeManager").field("member", &self.node.me).finish_non_exhaustive()
    }
}

/// Starts openraft over the storage that the configuration names. In memory, each process has a new id: nothing is remembered of what was
/// voted for under another one.
async fn start(config: &RaftConfig, parts: Parts) -> Result<Arc<Node>, RaftStartError> {
    let failed = |error: String| RaftStartError::Storage(error.into());
    #[cfg(feature = "persist")]
    if let Some(directory) = config.data_dir.clone() {
        let (cluster, new_id) = (config.cluster.clone(), parts.id);
        let opened = tokio::task::spawn_blocking(move || {
            let disk = crate::storage::Disk::open(&directory, &cluster, new_id)
                .map_err(|error| RaftStartError::Storage(error.into()))?;
            let machine = Machine::restored(disk.clone()).map_err(|error| failed(error.to_string()))?;
            Ok::<_, RaftStartError>((disk, machine))
        });
        let (disk, machine) = opened.await.map_err(|error| RaftStartError::Storage(error.into()))??;
        let parts = Parts { id: disk.id(), ..parts };
        return Node::start(parts, crate::storage::DiskLog(disk), machine, false).await.map_err(failed);
    }
    debug_assert!(config.data_dir.is_none(), "only the feature can set it");
    Node::start(parts, MemoryLog::default(), Machine::in_memory(), true).await.map_err(failed)
}

/// The tasks that make a member of a node. Those that end say why.
pub(crate) fn run(node: &Arc<Node>, peers: Peers, replicas: usize, removed_after: Duration) -> JoinSet<String> {
    let mut tasks = JoinSet::new();
    tasks.spawn(campaign::campaign(node.clone()));
    tasks.spawn(joining::join(node.clone(), peers.clone(), replicas, removed_after));
    let watching = election::watch(node.clone());
    tasks.spawn(async move {
        watching.await;
        "elections are not begun any more".to_owned()
    });
    let bounding = node.clone();
    tasks.spawn(async move {
        bounding.bound_log().await;
        "the log is not bounded any more".to_owned()
    });
    let keeping = roster::keep(node.clone(), peers, removed_after);
    tasks.spawn(async move {
        keeping.await;
        "members are not changed any more".to_owned()
    });
    tasks
}

/// Answers a message; both are bytes.
pub(crate) async fn answer(node: &Arc<Node>, message: Bytes) -> Vec<u8> {
    let answer = match wire::decode::<Envelope>(&message) {
        Ok(envelope) => node.answer(envelope).await,
        Err(why) => Err(Refusal::Malformed(why)),
    };
    // What is left out says nothing, and the other side reads it as no answer.
    wire::encode(&answer).unwrap_or_default()
}

/// The host's name; in a cluster that is the name of the Pod.
fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    name
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;
    use crate::grpc::ServerNames;
    use crate::member::Member;

    /// A headless Service names addresses, and certificates are for names below it.
    #[tokio::test]
    async fn members_behind_a_service_found_a_cluster_with_certificates_for_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(vec!["*.web.shop.svc".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        for (name, pem) in [("ca.crt", ca.pem()), ("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())] {
            std::fs::write(directory.path().join(name), pem).unwrap();
        }
        let bind = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = format!("web-0.web.shop.svc:{}", bind.port());
        let member = Member { ordinal: 0, name: "web-0".into(), address };
        // What the name of the Service resolves to.
        let peers = Peers::behind("127.0.0.1".into(), bind.port());
        let (believed, host) = (vec![member.host().to_owned()], member.host().to_owned());
        let called = ServerNames::HostsAndForAddresses(host);
        let config = RaftConfig::new("test").tls_dir(directory.path());
        let place = Place { member, bind: vec![bind], peers, believed, called };
        let manager = RaftNodeManager::at(config, place).await.unwrap();
        let founded = async {
            while manager.leadership().term().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), founded).await.expect("it founds a cluster");
        manager.shutdown().await;
    }
}
