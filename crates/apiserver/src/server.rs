//! The server as a whole: what it holds, how it starts and stops. In: options. Out: an [`ApiServer`], which is a tower
//! service: put it behind a listener, or hand it to a client in the same process.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use konverge_core::MetricsPage;
use konverge_schema::{Budget, CompileError};
use konverge_store::{CommitError, Disk, Memory, OpenError as StoreError, Retention, Revision, Store};

use crate::admission::{
    AbsentPart, AdmissionPlugins, Chain, Policies, QuotaLocks, RequestOptions, WebhookMetrics, Webhooks,
};
use crate::assign::{Allocated, ServiceRanges};
use crate::audit::{AuditMetrics, AuditOptions, AuditOutput, Auditor};
use crate::authenticate::Authentication;
use crate::authorize::{AuthorizationMode, Authorizers};
use crate::body_memory::BodyMemory;
use crate::commit_lock::CommitLock;
use crate::context::RequestContext;
use crate::conversion::{ConversionMetrics, Converters, converters};
use crate::crd::Definitions;
use crate::documents::Documents;
use crate::env::{Environment, System};
use crate::event_cache::EventCache;
use crate::in_flight::{InFlight, InFlightLimits};
use crate::metrics::RequestMetrics;
use crate::node_authorizer::{self, Nodes};
use crate::rbac::{self, Rbac};
use crate::registry::Registry;
use crate::request::FieldValidation;
use crate::resource::Resource;
use crate::rights::Rights;
use crate::simulation::FileAreas;
use crate::subresource::Subresource;
use crate::tasks::keep_running;
use crate::user::{SystemUser, UserInfo};
use crate::validation::PrivilegedContainers;
use crate::webhook_client::{LocalWebhook, WebhookClients, WebhookIdentity};
use crate::work::{RequestLimits, Workers};
use crate::write::WriteRequest;
use crate::{admission, assign, builtin, crd, expire, flow_control, garbage, health, namespace};

/// How to run the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where objects are stored.
    pub storage: Storage,
    /// Where resource versions begin in a new store.
    pub versions: Versions,
    /// Whether a custom resource may be replaced without a resourceVersion. Kubernetes refuses that.
    pub lenient_updates: bool,
    /// How long a watch lasts at most, and if it sets no timeout.
    pub longest_watch: Duration,
    /// Who deletes objects whose owner or namespace is deleted.
    pub collector: Collector,
    /// What clients show to be believed.
    pub authentication: Authentication,
    /// Who decides what users may do, in the order in which they are asked. The default allows everything: the server
    /// authenticates nobody by itself.
    pub authorization: Vec<AuthorizationMode>,
    /// Who collects the rules of aggregated cluster roles.
    pub aggregation: Aggregation,
    /// The admission plugins that decide about writes.
    pub admission: AdmissionPlugins,
    /// The parts of a cluster that do not run beside the server. A write of an object that only they give an effect is
    /// answered with a warning.
    pub absent: Vec<AbsentPart>,
    /// Where the addresses and ports of services come from.
    pub service_ranges: ServiceRanges,
    /// Whether containers may be privileged.
    pub privileged: PrivilegedContainers,
    /// What webhooks see that ask for a client certificate. The default shows none.
    pub webhook_identity: Option<WebhookIdentity>,
    /// The audit log. The default has none, and then no request pays for it.
    pub audit: Option<AuditOptions>,
    /// What one request may cost.
    pub request_limits: RequestLimits,
    /// How many requests are worked on at the same time. The default has no bounds.
    pub in_flight: InFlightLimits,
    /// Makes more text for the page of metrics: what the process around the server counts.
    pub more_metrics: Option<MoreMetrics>,
    /// The time and random numbers.
    pub env: Arc<dyn Environment>,
}

/// Makes text for the page of metrics, in the format of Prometheus.
#[derive(Clone)]
pub struct MoreMetrics(pub Arc<dyn Fn() -> String + Send + Sync>);

impl std::fmt::Debug for MoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MoreMetrics").finish_non_exhaustive()
    }
}

/// Who deletes objects whose owner or namespace is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collector {
    /// The server itself.
    #[default]
    Inside,
    /// Nobody, or a controller manager beside the server.
    Elsewhere,
}

/// Who collects the rules of aggregated cluster roles, such as `admin`, `edit` and `view`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// The server itself.
    #[default]
    Inside,
    /// Nobody, or a controller manager beside the server.
    Elsewhere,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            storage: Storage::Memory,
            versions: Versions::FromClock,
            lenient_updates: false,
            // Long enough that clients seldom reconnect, short enough that abandoned watches end.
            longest_watch: Duration::from_secs(45 * 60),
            collector: Collector::default(),
            authentication: Authentication::default(),
            authorization: vec![AuthorizationMode::AlwaysAllow],
            aggregation: Aggregation::default(),
            admission: AdmissionPlugins::default(),
            absent: vec![AbsentPart::ResourceQuotaController, AbsentPart::Preemption, AbsentPart::CertificateSigner],
            service_ranges: ServiceRanges::default(),
            privileged: PrivilegedContainers::default(),
            webhook_identity: None,
            audit: None,
            request_limits: RequestLimits::default(),
            in_flight: InFlightLimits::default(),
            more_metrics: None,
            env: Arc::new(System),
        }
    }
}

/// Where objects are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory, until the process ends.
    Memory,
    /// In this directory. Acknowledged writes survive a crash.
    Disk(PathBuf),
}

/// Where resource versions begin in a new store. A data directory that has a store continues where it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// At the time in microseconds, which no earlier server can have reached. A client with a version of an earlier server
    /// whose data is lost gets 410 and lists again, instead of resuming among other objects.
    #[default]
    FromClock,
    /// After this one, the same in every run: for tests that control all clients of their server.
    After(u64),
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error("the data directory cannot be used")]
    Storage(#[from] StoreError),
    /// The audit log cannot be opened.
    #[error("the audit log cannot be opened{}", in_file(.output))]
    AuditLog {
        /// Where it was to be written.
        output: AuditOutput,
        /// Why not.
        source: std::io::Error,
    },
    /// The namespaces that every cluster has could not be written.
    #[error("the first objects cannot be written")]
    Write(#[from] CommitError),
    /// A stored custom resource definition cannot be read any more.
    #[error("the custom resource definition {name} cannot be read")]
    Definition {
        /// Its name.
        name: String,
        /// Why it cannot be read.
        source: CompileError,
    },
}

/// A Kubernetes API server. Clones are the same server.
///
/// It is a `tower` service for HTTP requests, so a client in the same process needs no socket:
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use konverge_apiserver::{ApiServer, Options};
/// let server = ApiServer::open(Options::default()).await?;
/// // let client = kube::Client::new(server, "default");
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Server>);

/// A server whose requests are all from one user.
#[derive(Clone, Debug)]
pub struct ActingAs {
    pub(crate) server: ApiServer,
    pub(crate) user: Arc<UserInfo>,
}

/// Everything requests share.
pub(crate) struct Server {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub documents: Documents,
    pub event_cache: Arc<EventCache>,
    pub env: Arc<dyn Environment>,
    pub authentication: Authentication,
    pub authorizer: Arc<Authorizers>,
    pub rbac: Arc<Rbac>,
    pub nodes: Arc<Nodes>,
    pub rights: Rights,
    pub admission: Chain,
    pub audit: Option<Arc<Auditor>>,
    pub audit_metrics: Arc<AuditMetrics>,
    pub quota_locks: QuotaLocks,
    pub policies: Policies,
    pub webhooks: Webhooks,
    pub webhook_clients: WebhookClients,
    pub webhook_metrics: WebhookMetrics,
    pub conversion_metrics: ConversionMetrics,
    pub workers: Workers,
    pub in_flight: InFlight,
    pub bodies: BodyMemory,
    /// For members of `system:masters`, and so for controllers in this process: nobody else can take it.
    pub bodies_of_masters: BodyMemory,
    pub metrics: Arc<RequestMetrics>,
    more_metrics: Option<MoreMetrics>,
    pub lenient_updates: bool,
    pub longest_watch: Duration,
    pub definitions: Definitions,
    pub converters: Arc<Converters>,
    pub service_ranges: ServiceRanges,
    pub privileged: PrivilegedContainers,
    /// Held to write a service that gets an address or a port, so that no other service gets the same.
    pub service_lock: CommitLock,
    pub addresses: Mutex<Allocated>,
    /// What `kubectl cp` put into simulated containers.
    pub files: Arc<FileAreas>,
    closing: watch::Sender<bool>,
}

impl ApiServer {
    /// Opens the store, creates the namespaces that every cluster has, and reads the stored definitions.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let begin = match options.versions {
            Versions::FromClock => Revision::begin(options.env.now().into()),
            Versions::After(revision) => Revision(revision),
        };
        let store: Arc<dyn Store> = match options.storage.clone() {
            Storage::Memory => Arc::new(Memory::new(Retention::default(), begin)),
            Storage::Disk(directory) => {
                // Reading and verifying a large store takes a while.
                let opening = tokio::task::spawn_blocking(move || Disk::open(directory, Retention::default(), begin));
                Arc::new(opening.await.expect("opening a store does not panic")?)
            }
        };
        Self::start(store, options).await
    }

    /// Starts over a store that is open. Definitions that ask for a webhook are converted by it.
    pub(crate) async fn start(store: Arc<dyn Store>, options: Options) -> Result<Self, OpenError> {
        Self::start_with(store, options, converters).await
    }

    /// Starts over a store that is open, with what finds the converters of definitions.
    pub(crate) async fn start_with(
        store: Arc<dyn Store>,
        options: Options,
        converters: impl FnOnce(Weak<Server>) -> Arc<Converters>,
    ) -> Result<Self, OpenError> {
        let (rbac, nodes) = (Arc::new(Rbac::default()), Arc::new(Nodes::default()));
        let audit_metrics = Arc::<AuditMetrics>::default();
        let audit = options.audit.as_ref().map(|audit| {
            let refused = |source| OpenError::AuditLog { output: audit.log.output.clone(), source };
            Auditor::open(audit, &audit_metrics, &options.env).map(Arc::new).map_err(refused)
        });
        let audit = audit.transpose()?;
        let server = Arc::new_cyclic(|server| Server {
            store,
            registry: Registry::new(builtin::served()),
            documents: Documents::default(),
            event_cache: Arc::default(),
            env: options.env,
            authentication: options.authentication,
            authorizer: Arc::new(Authorizers::new(&options.authorization, &rbac, &nodes)),
            rbac,
            nodes,
            rights: Rights::default(),
            admission: Chain::new(&options.admission, &options.absent),
            audit,
            audit_metrics,
            quota_locks: QuotaLocks::default(),
            policies: Policies::default(),
            webhooks: Webhooks::default(),
            webhook_clients: WebhookClients::new(options.webhook_identity),
            webhook_metrics: WebhookMetrics::default(),
            conversion_metrics: ConversionMetrics::default(),
            workers: Workers::new(options.request_limits),
            in_flight: InFlight::new(options.in_flight, Instant::now()),
            bodies: BodyMemory::default(),
            bodies_of_masters: BodyMemory::default(),
            metrics: Arc::default(),
            more_metrics: options.more_metrics,
            lenient_updates: options.lenient_updates,
            longest_watch: options.longest_watch,
            definitions: Definitions::default(),
            converters: converters(server.clone()),
            service_ranges: options.service_ranges,
            privileged: options.privileged,
            service_lock: CommitLock::default(),
            addresses: Mutex::default(),
            files: Arc::default(),
            closing: watch::Sender::new(false),
        });
        // They are committed together, so that they share one fsync.
        tokio::try_join!(
            namespace::create_initial(&server),
            admission::create_initial(&server),
            flow_control::create_initial(&server),
        )?;
        assign::create_missing_ip_addresses(&server).await?;
        if options.authorization.iter().any(|mode| matches!(mode, AuthorizationMode::Rbac)) {
            rbac::create_initial(&server, options.aggregation).await?;
        }
        rbac::load(&server);
        crd::load(&server)?;
        let nodes = options.authorization.iter().any(|mode| matches!(mode, AuthorizationMode::Node));
        if nodes {
            node_authorizer::load(&server);
        }
        if let Some(warning) = node_authorizer::warning(&options.authorization, &options.admission) {
            tracing::warn!("{warning}");
        }
        server.begin_tasks(options.collector, options.aggregation, nodes);
        Ok(Self(server))
    }

    /// Ends all watches, so that connections can be closed. Other requests are still answered.
    pub fn shutdown(&self) {
        self.0.closing.send_replace(true);
    }

    /// Waits until the audit log has every event of the requests that were answered, for some seconds at most. For the end of the
    /// process.
    pub async fn flush_audit_log(&self) {
        if let Some(audit) = &self.0.audit {
            audit.flush().await;
        }
    }

    /// The server for a client in the same process that is this user. Such a client needs no credential.
    pub fn acting_as(&self, user: UserInfo) -> ActingAs {
        ActingAs { server: self.clone(), user: Arc::new(user) }
    }

    /// Answers the webhooks of one host in this process, without a socket: those of the Service `webapp-webhook` in the
    /// namespace `shop` if the host is `webapp-webhook.shop.svc`, or those of all URLs with this host. Nothing any more if there
    /// is no handler. For tests; other processes are called over HTTPS.
    pub fn register_webhooks(&self, host: &str, handler: Option<LocalWebhook>) {
        self.0.webhook_clients.register(host, handler);
    }

    /// The store behind the server, for backups and figures.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
}

impl Server {
    /// Starts the server's own tasks. They end when the server closes, or when nobody holds it any more.
    fn begin_tasks(self: &Arc<Self>, collector: Collector, aggregation: Aggregation, nodes: bool) {
        let (server, closing) = (Arc::downgrade(self), self.closing());
        if collector == Collector::Inside {
            let (server, closing) = (server.clone(), closing.clone());
            let collecting = move || garbage::run(server.clone(), closing.clone());
            tokio::spawn(keep_running("collector", collecting));
        }
        let (health, closed) = (self.store.health(), closing.clone());
        tokio::spawn(keep_running("health", move || health::log(health.clone(), closed.clone())));
        let (definitions, closed) = (server.clone(), closing.clone());
        tokio::spawn(keep_running("definitions", move || crd::run(definitions.clone(), closed.clone())));
        let (roles, closed) = (server.clone(), closing.clone());
        tokio::spawn(keep_running("roles", move || rbac::run(roles.clone(), closed.clone(), aggregation)));
        if nodes {
            let (nodes, closed) = (server.clone(), closing.clone());
            tokio::spawn(keep_running("nodes", move || node_authorizer::run(nodes.clone(), closed.clone())));
        }
        for issuer in &self.authentication.jwt {
            let (issuer, closed) = (issuer.clone(), closing.clone());
            tokio::spawn(keep_running("issuer", move || issuer.clone().follow(closed.clone())));
        }
        let (flow_control, closed) = (server.clone(), closing.clone());
        tokio::spawn(keep_running("flow control", move || flow_control::run(flow_control.clone(), closed.clone())));
        let (policies, closed) = (server.clone(), closing.clone());
        tokio::spawn(keep_running("policies", move || admission::check_types(policies.clone(), closed.clone())));
        tokio::spawn(keep_running("expiry", move || expire::run(server.clone(), closing.clone())));
    }

    /// The context of what one of the server's own tasks does.
    pub(crate) fn task_context(&self, user: SystemUser) -> RequestContext {
        RequestContext::of_task(user, &*self.env)
    }

    /// A write that the server itself decides on, for a request or for one of its own tasks.
    pub(crate) fn internal_write<'a>(
        &'a self,
        context: &'a RequestContext,
        resource: &'a Arc<Resource>,
    ) -> WriteRequest<'a> {
        WriteRequest {
            server: self,
            context,
            resource,
            namespace: None,
            subresource: Subresource::Main,
            validation: FieldValidation::Ignore,
            manager: "konverge".to_owned(),
            api_version: resource.api_version(),
            options: RequestOptions::None,
            budget: Budget::unlimited(),
            admitted: false,
        }
    }

    /// The page for Prometheus, as of now.
    pub(crate) fn metrics_page(&self) -> String {
        let more = self.more_metrics.as_ref().map(|MoreMetrics(more)| more()).unwrap_or_default();
        let webhooks = |page: &mut MetricsPage| {
            self.audit_metrics.write(page);
            self.webhook_metrics.write(page);
            self.conversion_metrics.write(page);
        };
        self.metrics.page(&self.in_flight, &self.bodies, Instant::now(), webhooks) + &more
    }

    /// Becomes true when the server is closing.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

/// Names the file of an audit log.
fn in_file(output: &AuditOutput) -> String {
    match output {
        AuditOutput::Stdout => String::new(),
        AuditOutput::File(path) => format!(": {}", path.display()),
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.0.store.revision()).finish_non_exhaustive()
    }
}
