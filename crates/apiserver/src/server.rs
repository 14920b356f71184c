//! The server as a whole: what it holds, how it starts and stops. In: options. Out: an [`ApiServer`], which is a tower
//! service: put it behind a listener, or hand it to a client in the same process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use konverge_schema::{Budget, CompileError};
use konverge_store::{CommitError, Disk, Memory, OpenError as StoreError, Retention, Revision, Store};

use crate::assign::Addresses;
use crate::authorize::{AlwaysAllow, Authorizer};
use crate::change::Write;
use crate::context::RequestContext;
use crate::conversion::Converters;
use crate::crd::Definitions;
use crate::documents::Documents;
use crate::env::{Environment, System};
use crate::kinds::KindTable;
use crate::lines::Lines;
use crate::part::Part;
use crate::request::FieldValidation;
use crate::resource::Resource;
use crate::tasks::keep_running;
use crate::turns::Turns;
use crate::user::SystemUser;
use crate::work::{RequestLimits, Workers};
use crate::{builtin, collect, crd, expire, health, namespace};

/// How to run the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where objects are kept.
    pub storage: Storage,
    /// Where resource versions begin when nothing is kept yet.
    pub versions: Versions,
    /// Whether a custom resource may be replaced without saying which version is meant. Kubernetes says no.
    pub lenient_updates: bool,
    /// How long a watch lasts that sets no limit of its own.
    pub longest_watch: Duration,
    /// Who deletes what belongs to an owner or a namespace that goes.
    pub collector: Collector,
    /// Who may do what. The default allows everything: the server authenticates nobody by itself.
    pub authorizer: Arc<dyn Authorizer>,
    /// What one request may cost.
    pub request_limits: RequestLimits,
    /// The time and the dice.
    pub env: Arc<dyn Environment>,
}

/// Who deletes what belongs to an owner or a namespace that goes.
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
            // Long enough not to be noticed, short enough that forgotten watches end.
            longest_watch: Duration::from_secs(45 * 60),
            collector: Collector::default(),
            authorizer: Arc::new(AlwaysAllow),
            request_limits: RequestLimits::default(),
            env: Arc::new(System),
        }
    }
}

/// Where objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In memory: gone with the process.
    Memory,
    /// In this directory: what was acknowledged is there after a crash.
    Disk(PathBuf),
}

/// Where resource versions begin when nothing is kept yet. A data directory that has a store goes on where it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// At the time in microseconds, which no earlier server can have reached. A client that comes with a version of an
    /// earlier server whose data is gone is told to list anew (410), instead of resuming among other objects.
    #[default]
    FromClock,
    /// After this one, the same in every run: for tests that know all clients of their server.
    After(u64),
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be used.
    #[error("the data directory cannot be used")]
    Storage(#[from] StoreError),
    /// What every cluster has could not be written.
    #[error("the first objects cannot be written")]
    Write(#[from] CommitError),
    /// A CRD that is kept does not read any more.
    #[error("the custom resource definition {name} cannot be read")]
    Definition {
        /// Its name.
        name: String,
        /// What is wrong with it.
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
    pub kinds: KindTable,
    pub documents: Documents,
    pub lines: Arc<Lines>,
    pub env: Arc<dyn Environment>,
    pub authorizer: Arc<dyn Authorizer>,
    pub workers: Workers,
    pub lenient_updates: bool,
    pub longest_watch: Duration,
    pub definitions: Definitions,
    pub converters: Arc<Converters>,
    /// Taken to write a service that gets an address or a port, so that no other gets the same.
    pub services: Turns,
    pub addresses: Mutex<Addresses>,
    closing: watch::Sender<bool>,
}

impl ApiServer {
    /// Opens the store, creates what every cluster has, and learns the CRDs that are kept.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let begin = match options.versions {
            Versions::FromClock => Revision::begin(options.env.now().into()),
            Versions::After(revision) => Revision(revision),
        };
        let store: Arc<dyn Store> = match options.storage.clone() {
            Storage::Memory => Arc::new(Memory::new(Retention::default(), begin)),
            Storage::Disk(directory) => {
                // Reading and verifying everything that is kept takes its time.
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
            kinds: KindTable::new(builtin::served()),
            documents: Documents::default(),
            lines: Arc::default(),
            env: options.env,
            authorizer: options.authorizer,
            workers: Workers::new(options.request_limits),
            lenient_updates: options.lenient_updates,
            longest_watch: options.longest_watch,
            definitions: Definitions::default(),
            converters,
            services: Turns::default(),
            addresses: Mutex::default(),
            closing: watch::Sender::new(false),
        });
        namespace::create_always(&server).await?;
        crd::learn(&server)?;
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
    /// All of them end with the server: when it closes, or when nobody holds it any more.
    fn begin_tasks(self: &Arc<Self>, collector: Collector) {
        let (server, closing) = (Arc::downgrade(self), self.closing());
        if collector == Collector::Inside {
            let (server, closing) = (server.clone(), closing.clone());
            let collecting = move || collect::run(server.clone(), closing.clone());
            tokio::spawn(keep_running("collector", collecting));
        }
        let (health, closed) = (self.store.health(), closing.clone());
        tokio::spawn(keep_running("health", move || health::log(health.clone(), closed.clone())));
        let (definitions, closed) = (server.clone(), closing.clone());
        tokio::spawn(keep_running("definitions", move || crd::run(definitions.clone(), closed.clone())));
        tokio::spawn(keep_running("expiry", move || expire::run(server.clone(), closing.clone())));
    }

    /// The context of what one of the server's own tasks does.
    pub fn task_context(&self, user: SystemUser) -> RequestContext {
        RequestContext::of_task(user, &*self.env)
    }

    /// A write that the server itself decides on, for a request or for one of its own tasks.
    pub fn internal_write<'a>(&'a self, context: &'a RequestContext, resource: &'a Arc<Resource>) -> Write<'a> {
        Write {
            server: self,
            context,
            resource,
            namespace: None,
            part: Part::Main,
            validation: FieldValidation::Ignore,
            manager: "konverge".to_owned(),
            api_version: resource.api_version(),
            budget: Budget::unlimited(),
        }
    }

    /// Tells a watch when the server is closing.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.0.store.revision()).finish_non_exhaustive()
    }
}
