//! Leader election by Raft: how an operator gets it, and what its reconciles have of it. In: the configuration of a member, or one that
//! runs. Out: an election for `leader`, the replicated state for contexts, manifests.

mod certificates;
mod manifests;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use konverge_raft::{RaftConfig, RaftNodeManager, RaftStatus, Replicated};
use konverge_runtime::{Error, Leadership, Result};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::certificates::Following;
use super::leader::OtherElection;
use super::{BackgroundTask, Operator, PlannedElection};
use crate::context::Context;
use crate::metrics::{ConsensusMetrics, Metrics};
use crate::settings::{BindAddress, MetricsSettings, Settings};
use crate::state::States;
use crate::webhook::shared_trust;

/// A member of a Raft cluster: its configuration, or one that runs already.
pub struct RaftElection {
    member: Member,
    /// Whether members show each other the certificate of the webhooks.
    shares_certificate: bool,
}

enum Member {
    Planned(Box<RaftConfig>),
    Running(Box<RaftNodeManager>),
}

impl From<RaftConfig> for RaftElection {
    fn from(config: RaftConfig) -> Self {
        Self { member: Member::Planned(Box::new(config)), shares_certificate: false }
    }
}

impl From<RaftNodeManager> for RaftElection {
    fn from(manager: RaftNodeManager) -> Self {
        Self { member: Member::Running(Box::new(manager)), shares_certificate: false }
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static> Operator<R> {
    /// Elects the leader by Raft among the instances themselves, and gives them a replicated state ([`Context::replicated`]). For
    /// instances in a StatefulSet; `--print-statefulset` prints one.
    ///
    /// The instance that leads works, the others are ready to take over. Against election by a Lease
    /// ([`LeaderElectionSettings`](crate::LeaderElectionSettings)), another instance leads within half a second of a crash instead of
    /// fifteen, and without the API server; in return the instances have a port, a Service, and with `ha-persist` a volume. The guide
    /// says what each promises.
    ///
    /// ```no_run
    /// # use konverge::prelude::*;
    /// use konverge::{RaftConfig, RaftNodeManager};
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// # async fn reconcile(_: Context<Shop>) -> Result<Action> { Ok(Action::await_change()) }
    /// # #[tokio::main]
    /// # async fn main() -> Result<()> {
    /// let node_id = RaftNodeManager::node_id_from_hostname()?;
    /// Operator::<Shop>::new()
    ///     .reconcile(reconcile)
    ///     .with_leader_election(
    ///         RaftConfig::new("my-cluster").node_id(node_id).service_name("my-operator-headless").namespace("default"),
    ///     )
    ///     .run()
    ///     .await
    /// # }
    /// ```
    ///
    /// The port of Raft is 8080 unless told, which is that of the metrics, too. An operator that says nothing of either serves its
    /// metrics beside its probes.
    pub fn with_leader_election(mut self, raft: impl Into<RaftElection>) -> Self {
        self.process.elected_by = Some(Box::new(raft.into()));
        self
    }

    /// What runs the operator in a cluster under these settings: what `--print-statefulset` prints. Empty if its leader is not elected
    /// by Raft.
    pub fn stateful_set(&self, settings: &Settings) -> Vec<Value> {
        self.process.elected_by.as_ref().map(|election| election.manifests(settings)).unwrap_or_default()
    }
}

impl<R> Context<R> {
    /// The state that all instances of the operator share, if its leader is elected by Raft ([`Operator::with_leader_election`]);
    /// otherwise an error.
    pub fn replicated(&self) -> Result<&Replicated> {
        of(self.state())
    }
}

impl BackgroundTask {
    /// The state that all instances of the operator share, if its leader is elected by Raft ([`Operator::with_leader_election`]);
    /// otherwise an error.
    pub fn replicated(&self) -> Result<&Replicated> {
        of(self.state())
    }
}

fn of(state: Result<&Replicated>) -> Result<&Replicated> {
    state.map_err(|_| {
        let why = "this operator has no replicated state; elect its leader by Raft with .with_leader_election(…)";
        Error::permanent(why).reason("NotReplicated")
    })
}

impl PlannedElection for RaftElection {
    fn adjust(&mut self, settings: &mut Settings, has_webhooks: bool) {
        if let Member::Planned(config) = &self.member
            && has_webhooks
            && !config.has_certificates()
        {
            self.shares_certificate = true;
            settings.webhook.certificate_names.extend(config.certificate_names());
        }
        let port = match &self.member {
            Member::Planned(config) => config.deployment().port,
            Member::Running(manager) => manager.deployment().port,
        };
        let usual = MetricsSettings::default().address;
        let is_taken = usual == BindAddress::All(port);
        if settings.metrics.enabled && settings.metrics.address == usual && is_taken {
            tracing::info!(port, "Raft has the usual port of metrics; they are served beside the probes");
            settings.metrics.address = settings.health.address;
        }
    }

    fn start<'a>(
        self: Box<Self>,
        settings: &'a Settings,
        client: &'a Client,
        metrics: &'a Metrics,
        states: &'a mut States,
    ) -> BoxFuture<'a, Result<Box<dyn OtherElection>>> {
        async move {
            let trust = shared_trust(settings, client).filter(|_| self.shares_certificate);
            let (manager, following) = match (self.member, trust) {
                (Member::Planned(config), Some(trust)) => {
                    let (certificates, following) = certificates::shared(trust).await?;
                    let manager = RaftNodeManager::new((*config).tls(certificates)).await.map_err(Error::permanent)?;
                    (manager, Some(following))
                }
                (Member::Planned(config), None) => {
                    (RaftNodeManager::new(*config).await.map_err(Error::permanent)?, None)
                }
                (Member::Running(manager), _) => (*manager, None),
            };
            states.insert(manager.replicated());
            let status = manager.status_source();
            metrics.consensus_from(move || figures(status()));
            Ok(Box::new(Elected { manager, _following: following }) as Box<dyn OtherElection>)
        }
        .boxed()
    }

    fn manifests(&self, settings: &Settings) -> Vec<Value> {
        let deployment = match &self.member {
            Member::Planned(config) => config.deployment(),
            Member::Running(manager) => manager.deployment(),
        };
        manifests::manifests(settings, &deployment)
    }
}

fn figures(status: RaftStatus) -> ConsensusMetrics {
    ConsensusMetrics {
        cluster: status.cluster,
        term: status.raft_term,
        voters: status.voters.len(),
        learners: status.learners.len(),
        indices: [status.last_log_index, status.last_applied_index, status.snapshot_index, status.purged_index],
        bytes: status.state_bytes,
    }
}

/// A member that runs, as an election.
struct Elected {
    manager: RaftNodeManager,
    /// Looks for new certificates until this is dropped.
    _following: Option<Following>,
}

impl OtherElection for Elected {
    fn name(&self) -> String {
        self.manager.status().cluster
    }

    fn leadership(&self) -> Leadership {
        self.manager.leadership()
    }

    fn readiness(&self) -> Box<dyn Fn() -> std::result::Result<(), String> + Send + Sync> {
        let status = self.manager.status_source();
        Box::new(move || {
            let status = status();
            let votes = status.is_settled && status.voters.contains(&status.member);
            votes.then_some(()).ok_or_else(|| format!("{} has no vote in {} yet", status.member, status.cluster))
        })
    }

    fn failed(&mut self) -> BoxFuture<'_, String> {
        self.manager.failed().boxed()
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.manager.shutdown().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::ConfigMap;
    use konverge_runtime::Action;

    /// One leader for everything, and another one for a part of it.
    #[tokio::test]
    async fn groups_are_refused_beside_raft() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let operator = Operator::<ConfigMap>::new()
            .reconcile(|_: Context<ConfigMap>| async { Ok(Action::await_change()) })
            .election_group("maps")
            .settings(Settings::default())
            .client(kube::Client::try_from(config).unwrap())
            .with_leader_election(RaftConfig::new("web").node_id(0));
        let refused = operator.run_until(std::future::pending()).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("Raft elects one leader for all controllers, and the election group maps"),
            "{refused}"
        );
    }
}
