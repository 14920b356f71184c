//! The server as a whole: what it holds, how it starts and stops. In: options. Out: an [`ApiServer`], which is a tower
//! service: put it behind a listener, or hand it to a client in the same process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use konverge_schema::{Budget, CompileError};
use konverge_store::{CommitError, Disk, Memory, OpenError as StoreError, Retention, Revision, Store};

use crate::admission::{AbsentPart, AdmissionPlugins, Chain, QuotaLocks};
use crate::assign::Allocated;
use crate::authorize::{AlwaysAllow, Authorizer};
use crate::commit_lock::CommitLock;
use crate::context::RequestContext;
use crate::conversion::Converters;
use crate::crd::Definitions;
use crate::documents::Documents;
use crate::env::{Environment, System};
use crate::event_cache::EventCache;
use crate::registry::Registry;
use crate::request::FieldValidation;
use crate::resource::Resource;
use crate::subresource::Subresource;
use crate::tasks::keep_running;
use crate::user::SystemUser;
use crate::work::{RequestLimits, Workers};
use crate::write::WriteRequest;
use crate::{admission, builtin, crd, expire, garbage, health, namespace};

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
    /// Who may do what. The default allows everything: the server authenticates nobody by itself.
    pub authorizer: Arc<dyn Authorizer>,
    /// The admission plugins that decide about writes.
    pub admission: AdmissionPlugins,
    /// The parts of a cluster that do not run beside the server. A write of an object that only they give an effect is
    /// answered with a warning.
    pub absent: Vec<AbsentPart>,
    /// What one request may cost.
    pub request_limits: RequestLimits,
    /// The time and random numbers.
    pub env: Arc<dyn Environment>,
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

impl Default for Options {
    fn default() -> Self {
        Self {
            storage: Storage::Memory,
            versions: Versions::FromClock,
            lenient_updates: false,
            // Long enough that clients seldom reconnect, short enough that abandoned watches end.
            longest_watch: Duration::from_secs(45 * 60),
            collector: Collector::default(),
            authorizer: Arc::new(AlwaysAllow),
            admission: AdmissionPlugins::default(),
            absent: vec![AbsentPart::ResourceQuotaController, AbsentPart::Preemption],
            request_limits: RequestLimits::default(),
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

/// Everything requests share.
pub(crate) struct Server {
    pub store: Arc<dyn Store>,
    pub registry: Registry,
    pub documents: Documents,
    pub event_cache: Arc<EventCache>,
    pub env: Arc<dyn Environment>,
    pub authorizer: Arc<dyn Authorizer>,
    pub admission: Chain,
    pub quota_locks: QuotaLocks,
    pub workers: Workers,
    pub lenient_updates: bool,
    pub longest_watch: Duration,
    pub definitions: Definitions,
    pub converters: Arc<Converters>,
    /// Held to write a service that gets an address or a port, so that no other service gets the same.
    pub service_lock: CommitLock,
    pub addresses: Mutex<Allocated>,
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

    /// Starts over a store that is open. No definition has a converter: those that ask for a webhook are refused.
    pub(crate) async fn start(store: Arc<dyn Store>, options: Options) -> Result<Self, OpenError> {
        Self::start_with(store, options, Arc::new(|_| None)).await
    }

    /// Starts over a store that is open, with what finds the converters of definitions.
    pub(crate) async fn start_with(
        store: Arc<dyn Store>,
        options: Options,
        converters: Arc<Converters>,
    ) -> Result<Self, OpenError> {
        let server = Arc::new(Server {
            store,
            registry: Registry::new(builtin::served()),
            documents: Documents::default(),
            event_cache: Arc::default(),
            env: options.env,
            authorizer: options.authorizer,
            admission: Chain::new(&options.admission, &options.absent),
            quota_locks: QuotaLocks::default(),
            workers: Workers::new(options.request_limits),
            lenient_updates: options.lenient_updates,
            longest_watch: options.longest_watch,
            definitions: Definitions::default(),
            converters,
            service_lock: CommitLock::default(),
            addresses: Mutex::default(),
            closing: watch::Sender::new(false),
        });
        namespace::create_initial(&server).await?;
        admission::create_initial(&server).await?;
        crd::load(&server)?;
        server.begin_tasks(options.collector);
        Ok(Self(server))
    }

    /// Ends all watches, so that connections can be closed. Other requests are still answered.
    pub fn shutdown(&self) {
        self.0.closing.send_replace(true);
    }

    /// The store behind the server, for backups and figures.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }
}

impl Server {
    /// Starts the server's own tasks. They end when the server closes, or when nobody holds it any more.
    fn begin_tasks(self: &Arc<Self>, collector: Collector) {
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
            budget: Budget::unlimited(),
        }
    }

    /// Becomes true when the server is closing.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.0.store.revision()).finish_non_exhaustive()
    }
}
