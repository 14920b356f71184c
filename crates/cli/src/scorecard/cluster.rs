//! A cluster for one measurement: the API server, its controllers and simulated pods, in this process and in memory, on a free port of the loopback
//! address. In: nothing. Out: clients, a kubeconfig for the operator, and the record of what the operator writes. It is gone when it is dropped.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use konverge::kube::Client;
use konverge::{ClientLayers, Metrics};
use konverge_apiserver::{ApiServer, AuthorizationMode, Collector, Options, PermissionReport, Storage};
use konverge_core::ErrorChain;
use konverge_serve::{BindOptions, Certificates, Limits, Listener, Server, Tls};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::write_record::{RecordedFrontend, Target, WriteRecord};
use crate::access::Access;
use crate::control_plane::{self, RunningControlPlane};
use crate::frontend::{Companions, Frontend};
use crate::kubeconfig::Kubeconfig;
use crate::operator_account::OperatorAccount;
use crate::own_service;
use crate::remote_cluster::{ApplyOptions, RemoteCluster, RemoteError};
use crate::users::{AnonymousRights, UserArgs, master};

/// Who applies samples and manifests.
const MANAGER: &str = "konverge-scorecard";

/// A running cluster.
pub(super) struct ScoreCluster {
    api: ApiServer,
    /// An administrator's client.
    pub client: Client,
    /// The same for objects of any kind.
    pub objects: RemoteCluster,
    /// What operators write.
    pub record: WriteRecord,
    kubeconfig: PathBuf,
    control_plane: Option<RunningControlPlane>,
    server: Option<Server>,
    _directory: TempDir,
}

impl ScoreCluster {
    /// Starts a cluster.
    pub(super) async fn start() -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("konverge-scorecard-").tempdir();
        let directory = directory.map_err(|error| format!("no temporary directory could be made: {error}"))?;
        let failed = |error: &(dyn std::error::Error + 'static)| ErrorChain(error).to_string();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let certificates = Certificates::in_memory(&[loopback.to_string()], SystemTime::now());
        let certificates = certificates.map_err(|error| failed(&error))?;
        let users = UserArgs::default().load(AnonymousRights::Nothing, None, certificates.ca_pem());
        let users = users.map_err(|error| failed(&error))?;
        let bind = BindOptions {
            address: loopback,
            port: 0,
            tls: Tls::On(certificates.clone()),
            client_ca: users.client_ca,
            limits: Limits::default(),
        };
        let listener = Listener::bind(bind).map_err(|error| failed(&error))?;
        let metrics = Metrics::new();
        let simulation = control_plane::options(&["*".to_owned()], &control_plane::SimulationArgs::at_once())
            .map_err(|error| failed(&error))?;
        let options = Options {
            storage: Storage::Memory,
            collector: Collector::Elsewhere,
            authentication: users.authentication,
            authorization: vec![AuthorizationMode::Rbac],
            admission: control_plane::admission(&simulation),
            // The simulated control plane has everything but preemption.
            absent: vec![konverge_apiserver::AbsentPart::Preemption],
            ..Options::default()
        };
        let ranges = options.service_ranges;
        let api = ApiServer::open(options).await.map_err(|error| failed(&error))?;
        own_service::publish(&api, ranges.cluster_ips, listener.local_addr()).await.map_err(|status| status.message)?;
        let inside = api.acting_as(master("system:kube-controller-manager"));
        let client = ClientLayers::new().meter(metrics.request_meter("konverge")).over(inside, "default");
        let control_plane = RunningControlPlane::start(&simulation, client.clone(), &metrics, &certificates);
        let control_plane = Some(control_plane.map_err(|error| failed(&error))?);
        let companions = Companions { metrics, failing: Arc::new(Vec::new) };
        let record = WriteRecord::default();
        let inner = Frontend::api(Access::Loopback, api.clone(), companions);
        let url = listener.url();
        let server = Some(listener.serve(RecordedFrontend { inner, record: record.clone() }));
        let kubeconfig = directory.path().join("kubeconfig");
        let written = Kubeconfig { server: &url, ca_pem: certificates.ca_pem(), token: &users.token };
        written.write(&kubeconfig).map_err(|error| failed(&error))?;
        let objects = RemoteCluster::over(client.clone(), url);
        Ok(Self { api, client, objects, record, kubeconfig, control_plane, server, _directory: directory })
    }

    /// Makes the operator's account with the rights in these manifests; its kubeconfig.
    pub(super) async fn account(&self, manifests: &[Value]) -> Result<(OperatorAccount, PathBuf), String> {
        let account = OperatorAccount::open(&self.client, manifests).await?;
        let kubeconfig = account.kubeconfig(&self.client, &self.kubeconfig).await?;
        self.record.follow(&token(&kubeconfig)?);
        Ok((account, kubeconfig))
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What an account may do, and what it did.
    pub(super) fn rights(&self, account: &OperatorAccount) -> PermissionReport {
        self.api.permissions(&account.user())
    }

    /// Applies an object of the user. A namespace that is not there is made. A refusal has the code of the server, and why.
    pub(super) async fn apply(&self, object: &Value) -> Result<(), (u16, String)> {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            let path = format!("/api/v1/namespaces/{namespace}");
            if self.objects.get(&path).await.map_err(refusal)?.is_none() {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
                self.apply_as_it_is(&namespace).await?;
            }
        }
        self.apply_as_it_is(object).await
    }

    async fn apply_as_it_is(&self, object: &Value) -> Result<(), (u16, String)> {
        let options = ApplyOptions { manager: MANAGER, force: true, dry_run: false };
        self.objects.apply(object, options).await.map(drop).map_err(refusal)
    }

    /// All objects of the kinds that these targets are of.
    pub(super) async fn objects_of<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a Target>,
    ) -> Result<Vec<Value>, String> {
        let lists: BTreeSet<String> = targets.into_iter().map(Target::list).collect();
        let mut found = Vec::new();
        for list in lists {
            found.extend(self.list(&list).await?);
        }
        Ok(found)
    }

    /// The objects of a list, each with its kind, which items of lists do not always have.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        let list: Result<Value, _> = self.client.request(request).await;
        let mut list = list.map_err(|error| format!("{path}: {:#}", konverge::Error::from(error)))?;
        let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        let version = list["apiVersion"].clone();
        let mut items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        for item in &mut items {
            item["kind"] = kind.as_str().into();
            item["apiVersion"] = version.clone();
        }
        Ok(items)
    }

    /// Stops it in order: the controllers, watches, connections.
    pub(super) async fn stop(mut self) {
        if let Some(control_plane) = self.control_plane.take() {
            control_plane.stop().await;
        }
        self.api.shutdown();
        if let Some(server) = self.server.take() {
            server.stop(crate::run::GRACE).await;
        }
    }
}

fn refusal(error: RemoteError) -> (u16, String) {
    (error.code(), error.to_string())
}

/// The token in a kubeconfig of ours.
fn token(kubeconfig: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(kubeconfig).map_err(|error| format!("{}: {error}", kubeconfig.display()))?;
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
    token.map(str::to_owned).ok_or_else(|| format!("{} has no token", kubeconfig.display()))
}
