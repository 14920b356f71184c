//! The operator: the process around one or several controllers. In: controllers, settings, background tasks. Out: a program
//! that works until it is told to stop. `lifecycle` starts and stops everything in order, `manager` is what controllers share,
//! `background` is the user's own tasks, `leader`, `election_group`, `sharding` and `campaign` are which instance works, `threads` is where all of it runs.

mod background;
mod cached_reads;
mod campaign;
mod election_group;
mod leader;
mod lifecycle;
mod manager;
mod manifests;
mod namespaces;
mod phase;
#[cfg(feature = "ha")]
mod raft;
mod sharding;
mod threads;

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{ClientLayers, Error, EventLog, HeldShard, Result, Term, WriteGate};
use kube::Client;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

pub use background::BackgroundTask;
pub(crate) use cached_reads::CachedReads;
pub use election_group::ElectionGroup;
pub(crate) use leader::Clients;
pub(crate) use manager::Manager;
pub(crate) use phase::Phase;
#[cfg(feature = "ha")]
pub use raft::RaftElection;

use background::Background;
use campaign::LeaderCallbacks;
use leader::{Leader, OtherElection};
use lifecycle::Workload;

use crate::controller::{AnyController, Controller};
use crate::log::start_logging;
use crate::metrics::Metrics;
use crate::probes::Health;
use crate::settings::Settings;
use crate::signal::StopSignals;
use crate::state::States;
use crate::versions::Versions;
use crate::webhook::{LocalWebhooks, Served};

/// What the recorder does to Events.
pub(crate) const EVENT_VERBS: [&str; 2] = ["create", "patch"];

type Configure = Arc<dyn Fn(&mut Settings) + Send + Sync>;

/// An operator: a process with a controller for the kind `R`, and through [`Operator::and`] with more controllers.
///
/// It has all methods of [`Controller`], such as [`reconcile`](Controller::reconcile), and those of a process, such as
/// [`run`](Operator::run).
///
/// ```no_run
/// use konverge::prelude::*;
///
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
/// pub struct GreetingSpec {
///     pub text: String,
/// }
///
/// async fn reconcile(ctx: Context<Greeting>) -> Result<Action> {
///     ctx.apply(ConfigMap::new(ctx.name()).data("text", &ctx.resource().spec.text)).await?;
///     Ok(Action::await_change())
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<()> {
///     Operator::<Greeting>::new().reconcile(reconcile).run().await
/// }
/// ```
///
/// # Start and stop
///
/// An operator starts metrics and probes, then the watches, and reconciles when the caches are filled; then background tasks
/// start. When it is told to stop, running reconciles and background tasks may finish for as long as the setting
/// `graceful_shutdown_timeout` says, then the watches end, the events that are left are written, and the probes end.
pub type Operator<R> = Controller<R, Process>;

/// The part of an [`Operator`] that belongs to the process: settings, client, metrics, further controllers and background
/// tasks. It has no methods of its own.
#[derive(Default)]
pub struct Process {
    settings: Option<Settings>,
    configure: Vec<Configure>,
    client: Option<Client>,
    layers: ClientLayers,
    metrics: Option<Metrics>,
    health: Health,
    events: EventLog,
    controllers: Vec<Box<dyn AnyController>>,
    background: Vec<Background>,
    local_webhooks: Option<LocalWebhooks>,
    told_of_leader: LeaderCallbacks,
    elected_by: Option<Box<dyn PlannedElection>>,
}

/// An election by something else than a Lease, before it starts: `raft` has one.
trait PlannedElection: Send + Sync {
    /// Settings that have to make room for it. `has_webhooks` says whether the operator serves some, whose certificates it may use.
    fn adjust(&mut self, settings: &mut Settings, has_webhooks: bool);
    /// Begins it, and gives reconciles and background tasks what it has for them.
    fn start<'a>(
        self: Box<Self>,
        settings: &'a Settings,
        client: &'a Client,
        metrics: &'a Metrics,
        states: &'a mut States,
    ) -> BoxFuture<'a, Result<Box<dyn OtherElection>>>;
    /// What runs an operator with such an election in a cluster.
    fn manifests(&self, settings: &Settings) -> Vec<serde_json::Value>;
}

impl Process {
    /// The settings as far as code makes them: flags, environment and file are not read.
    pub(crate) fn settings_from_code(&self) -> Settings {
        configured(self.settings.clone().unwrap_or_default(), &self.configure)
    }

    /// The webhooks of the controllers that were added, with the operator's state where they have none of their own.
    pub(crate) fn webhooks(&self, shared: &States) -> Vec<Served> {
        self.controllers.iter().flat_map(|controller| controller.webhooks(shared)).collect()
    }

    /// The kinds of the controllers that were added and have several versions, with their CRDs.
    pub(crate) fn versions(&self) -> Vec<(Versions, CustomResourceDefinition)> {
        let controllers = self.controllers.iter();
        controllers.filter_map(|other| Some((other.versions()?.clone(), other.definition()?))).collect()
    }

    pub(crate) fn event_log(&self) -> &EventLog {
        &self.events
    }

    /// What every request of the operator passes.
    pub(crate) fn layers(&self) -> &ClientLayers {
        &self.layers
    }
}

/// A controller becomes the first one of an operator, with all that it was told. So a function can return a plain [`Controller`], for tests
/// of single reconciles and for operators with any number of controllers:
///
/// ```
/// # use konverge::prelude::*;
/// # async fn databases(_: Context<StatefulSet>) -> Result<Action> { Ok(Action::await_change()) }
/// # async fn backups(_: Context<CronJob>) -> Result<Action> { Ok(Action::await_change()) }
/// let databases = Controller::<StatefulSet>::new().reconcile(databases);
/// let backups = Controller::<CronJob>::new().reconcile(backups);
/// Operator::from(databases).and(backups);
/// ```
impl<R> From<Controller<R>> for Operator<R> {
    fn from(controller: Controller<R>) -> Self {
        Self { spec: controller.spec, process: Process::default() }
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static> Operator<R> {
    /// Adds a controller of another kind, or of other objects of the same kind ([`Controller::named`]). It shares the client,
    /// the caches, the metrics and the settings of the operator, and sees the operator's state.
    ///
    /// It owns the fields that it applies under a field manager of its own: the operator's field manager, a hyphen and the
    /// controller's name. Two controllers of one kind need finalizers of different names ([`Controller::finalizer`]) if
    /// both have one; otherwise the operator does not start.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { size: u32 }
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Backup", namespaced)]
    /// # pub struct BackupSpec { database: String }
    /// # async fn databases(_: Context<Database>) -> Result<Action> { Ok(Action::await_change()) }
    /// # async fn backups(_: Context<Backup>) -> Result<Action> { Ok(Action::await_change()) }
    /// let backups = Controller::<Backup>::new().reconcile(backups).refers_to::<Database>(|b| vec![b.spec.database.clone()]);
    /// Operator::<Database>::new().reconcile(databases).and(backups);
    /// ```
    pub fn and<T: DeserializeOwned + Send + Sync + 'static>(mut self, controller: Controller<T>) -> Self {
        self.process.controllers.push(Box::new(controller.spec));
        self
    }

    /// Runs a task beside the controllers, such as a poller of another system or a server of one's own. controller-runtime
    /// calls this a `Runnable`.
    ///
    /// - It starts when the caches of all controllers are filled. If a kind is not installed, it waits for that.
    /// - It should end soon after [`BackgroundTask::stopped`] resolves, which is when the workers are told to stop, too.
    ///   Watches still run and events are still written then. A task that takes longer than the setting
    ///   `graceful_shutdown_timeout` is cut off at its next await.
    /// - An error or a panic ends the operator with that error. A task that returns `Ok` is done, and the operator goes on.
    ///   An error after the operator was told to stop is logged, and the operator still ends with `Ok`.
    /// - Keys that it sends to [`Controller::triggered_by`] are taken for as long as it runs.
    /// - Its rules are not known to the operator: declare them by [`Controller::needs`].
    ///
    /// With leader election it runs only on the instance that leads, from when that one leads first. If that instance loses the lead
    /// while the task has not ended, the operator ends with an error, because a task cannot be begun twice: whoever started the process
    /// starts it again. With shards ([`Operator::shards`]) it runs on the replica that holds shard 0, by the same rule.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::{BackgroundTask, key_channel};
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// # async fn next_change() -> Result<ObjectKey> { std::future::pending().await }
    /// let (prices, changed) = key_channel();
    /// Operator::<Shop>::new()
    ///     .triggered_by("prices", changed)
    ///     .background("price-sync", |task: BackgroundTask| async move {
    ///         loop {
    ///             tokio::select! {
    ///                 shop = next_change() => prices.send(shop?).await?,
    ///                 () = task.stopped() => return Ok(()),
    ///             }
    ///         }
    ///     });
    /// ```
    pub fn background<F, Fut>(mut self, name: impl Into<String>, work: F) -> Self
    where
        F: FnOnce(BackgroundTask) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.process.background.push(Background::new(name.into(), work));
        self
    }

    /// Changes settings in code. The change is stronger than flags, environment and file:
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// Operator::<Shop>::new().configure(|settings| settings.controller.max_concurrent_reconciles = 1);
    /// ```
    pub fn configure(mut self, change: impl Fn(&mut Settings) + Send + Sync + 'static) -> Self {
        self.process.configure.push(Arc::new(change));
        self
    }

    /// Takes all settings from code. Flags, environment and file are not read, so `--help` and `--print-crds` are not
    /// answered, and no log is started.
    ///
    /// For an operator within another program, which does that itself ([`Settings::load`],
    /// [`start_logging`](crate::start_logging)). Otherwise use [`Operator::configure`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.process.settings = Some(settings);
        self
    }

    /// Uses this client instead of the one that settings describe; in tests, a client of an API server in the same process.
    /// Its requests are not in the metrics unless it has [`Metrics::request_meter`] in its layers.
    pub fn client(mut self, client: Client) -> Self {
        self.process.client = Some(client);
        self
    }

    /// Asks this gate before each write of the operator: to its objects and their status, to children, of events, and with
    /// [`Context::client`](crate::Context::client) and [`BackgroundTask::client`]. See [`WriteGate`].
    ///
    /// A refused write ends its reconcile. Whatever the gate's reason was, the object is neither retried nor is the failure
    /// shown on it: it is reconciled again when something changes, or by the instance that may write. The gate hears nothing
    /// of an apply that would change nothing, because no request is sent for it.
    pub fn write_gate(mut self, gate: impl WriteGate) -> Self {
        self.process.layers = self.process.layers.gate(Arc::new(gate));
        self
    }

    /// Calls this when this instance begins to lead, with its term. It has to return soon. client-go calls it `OnStartedLeading`.
    /// Without leader election ([`LeaderElectionSettings`](crate::LeaderElectionSettings)) it is never called.
    pub fn on_started_leading(mut self, told: impl Fn(&Term) + Send + Sync + 'static) -> Self {
        self.process.told_of_leader.started.push(Arc::new(told));
        self
    }

    /// Calls this when a term of this instance is over: lost, or given up at the end. Writes for that term are refused by then. It has
    /// to return soon. client-go calls it `OnStoppedLeading`.
    pub fn on_stopped_leading(mut self, told: impl Fn(&Term) + Send + Sync + 'static) -> Self {
        self.process.told_of_leader.stopped.push(Arc::new(told));
        self
    }

    /// Calls this when another instance leads, or this one, with its identity. It has to return soon. client-go calls it `OnNewLeader`.
    pub fn on_new_leader(mut self, told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.process.told_of_leader.new_leader.push(Arc::new(told));
        self
    }

    /// Divides the objects of all controllers into this many shards over all replicas, so that every replica reconciles a part. 0 is off.
    /// It is the setting `--shards` in code.
    ///
    /// Use it when one replica does not keep up, mostly because reconciles wait for the API server or for something outside. Take a few
    /// times as many shards as replicas, so that they can be divided evenly: 12 for three. Do not enable leader election as well.
    ///
    /// - An object belongs to a shard by its uid. Each shard is held by one replica at a time, in a term of its own, and each write of a
    ///   reconcile is refused when the term of its object's shard is over.
    /// - When replicas come or go, shards move, and the objects of a moved shard are reconciled once more. The replica that gives a shard
    ///   up finishes its reconciles first.
    /// - Background tasks, and writes of tasks that belong to no reconcile, are for the replica that holds shard 0. A task that a
    ///   reconcile spawns belongs to no reconcile.
    /// - All replicas need the same number. Replicas with another number wait until those with the old one have stopped.
    /// - Every replica keeps all objects in memory. With `--shard-cache=own` ([`ShardCache`](crate::ShardCache)) it keeps those of its own shards and
    ///   their children, and reads those of a shard that it takes from the server. `ctx.get` of another shard's object asks the server then.
    ///
    /// The guide has a page about it: `docs/guide/sharding.md`.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// Operator::<Shop>::new().shards(12).on_shards(|held| println!("this replica has {} shards", held.len()));
    /// ```
    pub fn shards(self, count: usize) -> Self {
        self.configure(move |settings| settings.shards = count)
    }

    /// Calls this when this replica holds other shards than before, with all that it holds. It has to return soon.
    pub fn on_shards(mut self, told: impl Fn(&[HeldShard]) + Send + Sync + 'static) -> Self {
        self.process.told_of_leader.shards.push(Arc::new(told));
        self
    }

    /// Serves these metrics, to which the program may add its own.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.process.metrics = Some(metrics);
        self
    }

    /// Registers the operator's liveness and readiness checks here, to which the program may add its own. Use it to show the
    /// health of an operator on a page of the program, as `konverge dev` does; the probes of the operator show it anyway.
    pub fn health(mut self, health: Health) -> Self {
        self.process.health = health;
        self
    }

    /// Keeps recorded events in this log, where the program can search and follow them, also outside of reconciles.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { team: String }
    /// let log = EventLog::default();
    /// let operator = Operator::<Database>::new().events(log.clone());
    /// // While it runs, anywhere in the program:
    /// let bad = log.find(&HistoryFilter { severity: Severity::Error, ..HistoryFilter::default() });
    /// let mut from_now_on = log.follow(); // from_now_on.next().await
    /// ```
    pub fn events(mut self, log: EventLog) -> Self {
        self.process.events = log;
        self
    }

    /// Runs until the process is told to stop (Ctrl-C, SIGTERM). Running reconciles may finish, for as long as settings say;
    /// a second signal ends the process at once.
    ///
    /// Flags, environment and file are read first, and `--help`, `--print-crds`, `--print-rbac` and `--print-webhooks` are
    /// answered. Settings that
    /// are wrong are an error, and so is a controller or a background task that ends with one. A cluster that is away is no
    /// error: the operator waits for it.
    pub async fn run(self) -> Result<()> {
        let mut signals = StopSignals::listen();
        let (once, told) = oneshot::channel::<()>();
        let twice = async {
            signals.next().await;
            drop(once);
            signals.next().await;
        };
        tokio::select! {
            ended = self.run_until(async { drop(told.await) }) => ended,
            () = twice => {
                tracing::warn!("told to stop a second time: not waiting for running reconciles");
                std::process::exit(1)
            }
        }
    }

    /// Runs until `stop` resolves; otherwise like [`Operator::run`].
    ///
    /// It runs on the threads of the program's runtime if that has at least four, or if it is a current-thread runtime.
    /// Otherwise, as in a container with one CPU, it starts four threads of its own, so that a reconcile that blocks its
    /// thread does not hold up the others.
    pub async fn run_until(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let mut settings = match &self.process.settings {
            Some(_) => {
                let settings = self.process.settings_from_code();
                settings.check()?;
                settings
            }
            None => load(&self.process.configure)?,
        };
        if let Some(print) = settings.print {
            return self.print(print, &settings);
        }
        let Controller { spec, process } = self;
        let Process { client, layers, metrics, health, events, controllers, background, local_webhooks, .. } = process;
        let (told, elected_by) = (process.told_of_leader, process.elected_by);
        let metrics = metrics.unwrap_or_default();
        let is_given = client.is_some();
        let (client, layers) = match client {
            Some(client) => (client, layers),
            None => connect(&settings, &metrics, layers).await?,
        };
        let mut states = spec.states.clone();
        let first: Box<dyn AnyController> = Box::new(spec);
        let controllers: Vec<_> = std::iter::once(first).chain(controllers).collect();
        let groups = election_group::planned(
            controllers.iter().filter_map(|controller| controller.election_group()),
            &settings,
        )?;
        let leader = match elected_by {
            Some(_) if !groups.is_empty() => {
                return Err(Error::permanent(format!(
                    "Raft elects one leader for all controllers, and the election group {} would have another; remove \
                     .with_leader_election(…), or .election_group(…)",
                    groups[0].name
                )));
            }
            Some(_) if settings.leader_election.enabled => {
                return Err(Error::permanent(
                    "the leader would be elected by a Lease and by Raft; remove --leader-elect, or .with_leader_election(…)",
                ));
            }
            Some(_) if settings.shards > 0 => {
                return Err(Error::permanent(
                    "the objects would be divided into shards, and reconciled by one leader that Raft elects; remove --shards, or \
                     .with_leader_election(…)",
                ));
            }
            Some(mut election) => {
                let serves = |controller: &dyn AnyController| {
                    controller.versions().is_some() || !controller.webhooks(&states).is_empty()
                };
                let has_webhooks = controllers.iter().any(|controller| serves(controller.as_ref()));
                let is_served = settings.webhook.listen().is_some() && local_webhooks.is_none();
                election.adjust(&mut settings, has_webhooks && is_served);
                Leader::elected_by(election.start(&settings, &client, &metrics, &mut states).await?, told)
            }
            None => Leader::new(&settings, client.default_namespace(), told, controllers.len(), groups),
        };
        let clients = leader.clients(client, layers);
        // A test that gives a client wants to see the requests of the operator, and no others.
        let check = namespaces::warn_of_missing(clients.every.clone(), settings.namespaces.clone());
        let check = async {
            if !is_given {
                check.await;
            }
            std::future::pending::<()>().await
        };
        let workload = Workload { controllers, background, states, local_webhooks, leader };
        let (stopping, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let lifecycle =
            async move { lifecycle::run(workload, &settings, clients, events, &metrics, health, stopped).await };
        let mut lifecycle = std::pin::pin!(threads::with_enough_threads(lifecycle));
        tokio::select! {
            // Before it is told to stop, it ends only with an error.
            ended = &mut lifecycle => return ended,
            () = stop => drop(stopping),
            () = check => {}
        }
        lifecycle.await
    }

    /// The namespaces that the operator watches by its settings in code; none is all of them.
    pub fn watched_namespaces(&self) -> Vec<String> {
        self.process.settings_from_code().namespaces
    }

    /// The operator for a test that runs all of it: with this client, without listeners, flags and environment. Settings
    /// that were made in code stay.
    pub fn in_test(mut self, client: Client) -> Self {
        let mut settings = self.process.settings_from_code();
        settings.metrics.enabled = false;
        settings.health.enabled = false;
        settings.webhook.enabled = false;
        self.process.configure.clear();
        // Before anybody can ask: an operator that has not begun is not ready.
        self.process.health.readiness(&AnyController::name(&self.spec));
        self.settings(settings).client(client)
    }

    /// The checks of the operator: those that were given to it, or its own.
    pub fn health_checks(&self) -> Health {
        self.process.health.clone()
    }

    /// Serves the webhooks of an operator within this process instead of on a port. The operator tells the API server of a Service,
    /// and `serve` is told which handler answers for the host of that Service.
    pub fn serve_webhooks_locally(mut self, serve: LocalWebhooks) -> Self {
        self.process.local_webhooks = Some(serve);
        self
    }
}

/// Settings with the changes that the operator's code makes.
fn configured(mut settings: Settings, configure: &[Configure]) -> Settings {
    configure.iter().for_each(|change| change(&mut settings));
    settings
}

/// The settings of this process, from all sources. Starts the log.
fn load(configure: &[Configure]) -> Result<Settings> {
    let loader = Settings::loader().args(std::env::args_os()).environment(std::env::vars_os());
    let loader = configure.iter().cloned().fold(loader, |loader, change| loader.code(move |settings| change(settings)));
    let loaded = loader.load_or_answer()?;
    start_logging(&loaded.settings.logging);
    for warning in loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.settings)
}

/// A client as settings describe it, and what goes around it.
async fn connect(settings: &Settings, metrics: &Metrics, layers: ClientLayers) -> Result<(Client, ClientLayers)> {
    let config = settings.cluster().await?;
    let host = config.cluster_url.authority().map_or_else(String::new, ToString::to_string);
    let namespaces = if settings.namespaces.is_empty() { "all".into() } else { settings.namespaces.join(",") };
    tracing::info!(name = settings.name, cluster = %config.cluster_url, namespaces, "the operator starts");
    Ok((konverge_runtime::connect(config)?, layers.meter(metrics.request_meter(&host))))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Requests of the client that settings describe pass the gate and are counted.
    #[tokio::test]
    async fn a_client_from_settings_has_its_gate_and_its_meter() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = server.local_addr().unwrap().to_string();
        let answered = tokio::spawn(async move {
            let (mut connection, _) = server.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(connection.read_u8().await.unwrap());
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            connection.write_all(answer.as_bytes()).await.unwrap();
            connection.shutdown().await.unwrap();
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, users: [{{name: c, user: {{}}}}],
               clusters: [{{name: c, cluster: {{server: 'http://{host}'}}}}],
               contexts: [{{name: c, context: {{cluster: c, user: c}}}}]}}"
        );
        std::fs::write(&file, kubeconfig).unwrap();
        let settings = Settings { kubeconfig: vec![file], ..Settings::default() };
        let refuse = |_: &konverge_runtime::RequestInfo| {
            Err(konverge_runtime::WriteRefused::new("ReadOnly", "this operator only looks"))
        };
        let metrics = Metrics::default();
        let (client, layers) = connect(&settings, &metrics, ClientLayers::new().gate(Arc::new(refuse))).await.unwrap();
        let client = layers.around(client);

        let request = |method: &str| {
            let request = http::Request::builder().method(method).uri("/api/v1/namespaces/default/configmaps/c");
            request.body(Vec::new()).unwrap()
        };
        assert!(client.request_text(request("DELETE")).await.is_err(), "the gate was not asked");
        assert_eq!(client.request_text(request("GET")).await.unwrap(), "{}");
        answered.await.unwrap();
        let page = metrics.page();
        let counted = format!("rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{host}\"}} 1");
        assert!(page.contains(&counted), "{page}");
    }
}
