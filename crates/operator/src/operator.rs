//! The operator: a function for each kind, and what is said around it. In: reconcilers and settings. Out: a program that
//! works until it is told to stop; `life` starts and stops it, `steps` is one reconcile, `report` what is seen of one that
//! failed, `trial` one in a test.

mod life;
mod report;
mod steps;
mod threads;
mod trial;

use std::future::Future;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, ClientLayers, Error, EventLog, Object, Predicate, Result, Which, WriteGate};
use kube::Client;
use tokio::sync::oneshot;

pub use trial::Trial;

use life::{Part, life};

use crate::context::Context;
use crate::engine::Engine;
use crate::index::{Index, Indexes};
use crate::kind::Kind;
use crate::log::start_logging;
use crate::metrics::Metrics;
use crate::rules::Rules;
use crate::settings::{ControllerOverrides, Print, Settings};
use crate::signal::Asked;
use crate::state::States;
use crate::watching::{Selection, Watch, references};

/// What is done to Events.
const EVENTS: [&str; 2] = ["create", "patch"];

type Step<R> = Arc<dyn Fn(Context<R>) -> BoxFuture<'static, Result<Action>> + Send + Sync>;
type Hook<R> = Arc<dyn Fn(Context<R>, Arc<Error>) -> BoxFuture<'static, Result<()>> + Send + Sync>;
type Watches = Box<dyn Fn(&Engine) -> Result<()> + Send + Sync>;
type Configure = Arc<dyn Fn(&mut Settings) + Send + Sync>;

/// An operator for one kind, and through [`Operator::and`] for several.
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
#[must_use = "an operator does nothing until it is run"]
pub struct Operator<R: Kind> {
    name: Option<String>,
    reconcile: Option<Step<R>>,
    on_delete: Option<Step<R>>,
    on_error: Option<Hook<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    error_requeue: Option<Duration>,
    predicate: Predicate,
    urgent: Option<Which>,
    selection: Selection,
    watches: Vec<Watches>,
    indexes: Indexes,
    states: States,
    rules: Rules,
    overrides: ControllerOverrides,
    settings: Option<Settings>,
    configure: Vec<Configure>,
    client: Option<Client>,
    layers: ClientLayers,
    metrics: Option<Metrics>,
    events: EventLog,
    others: Vec<Box<dyn Part>>,
}

/// What a cleanup may answer with: nothing, or what a reconcile answers with.
pub trait IntoAction {
    /// As an action.
    fn into_action(self) -> Action;
}

impl IntoAction for () {
    fn into_action(self) -> Action {
        Action::Wait
    }
}

impl IntoAction for Action {
    fn into_action(self) -> Action {
        self
    }
}

impl<R: Kind> Default for Operator<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Kind> Operator<R> {
    /// An operator of the objects of this kind.
    pub fn new() -> Self {
        Self {
            name: None,
            reconcile: None,
            on_delete: None,
            on_error: None,
            finalizer: None,
            requeue_after: None,
            error_requeue: None,
            predicate: Predicate::always(),
            urgent: None,
            selection: Selection::default(),
            watches: Vec::new(),
            indexes: Indexes::default(),
            states: States::default(),
            rules: Rules::new(),
            overrides: ControllerOverrides::default(),
            settings: None,
            configure: Vec::new(),
            client: None,
            layers: ClientLayers::new(),
            metrics: None,
            events: EventLog::default(),
            others: Vec::new(),
        }
    }

    /// What this controller is called in the log, in metrics and in readiness; else it is the kind and its group,
    /// `webapp.example.com`. Two controllers of one kind need it, as for objects of different labels.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What is done for an object whenever something happened to it: make the world look as it asks.
    pub fn reconcile<F, Fut>(mut self, reconcile: F) -> Self
    where
        F: Fn(Context<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action>> + Send + 'static,
    {
        self.reconcile = Some(Arc::new(move |context| Box::pin(reconcile(context))));
        self
    }

    /// What is done before an object goes. It stays until this succeeds, which takes a finalizer: one is managed.
    ///
    /// An object that does not read as `R` any more, as after its type lost a variant, goes without it: it could never be
    /// deleted otherwise. The log and an event `CleanupSkipped` name it.
    pub fn on_delete<F, Fut, A>(mut self, cleanup: F) -> Self
    where
        F: Fn(Context<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A>> + Send + 'static,
        A: IntoAction,
    {
        self.on_delete = Some(Arc::new(move |context| {
            let cleanup = cleanup(context);
            Box::pin(async move { cleanup.await.map(IntoAction::into_action) })
        }));
        self.with_finalizer()
    }

    /// What else is done when a reconcile or a cleanup fails: usually, to say so in the status. It is asked after every
    /// failure that lasts, by an error, a panic or the time limit; if another writer was faster or the server fails, when
    /// that comes five times in a row; and not when the server is away. [`Error::get_reason`] has one word for it, the error itself the rest.
    ///
    /// Without it, a failure is an event and the condition `Ready=False` on the object, which goes when a reconcile
    /// succeeds. A hook that sets `Ready` itself keeps it: the framework leaves a condition alone that the operator's code
    /// sets. A hook that fails, panics or takes more than five seconds is logged, and changes nothing about the retries.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
    /// # pub struct ShopSpec { image: String }
    /// # #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    /// # #[serde(default)]
    /// # pub struct ShopStatus { phase: String, message: String }
    /// async fn failed(ctx: Context<Shop>, error: Arc<Error>) -> Result<()> {
    ///     ctx.set_status(ShopStatus { phase: "Failed".into(), message: error.to_string() }).await
    /// }
    ///
    /// Operator::<Shop>::new().on_error(failed);
    /// ```
    pub fn on_error<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(Context<R>, Arc<Error>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.on_error = Some(Arc::new(move |context, error| Box::pin(hook(context, error))));
        self
    }

    /// Keeps a finalizer on every object: set before the first reconcile, removed when the cleanup is done. For a kind
    /// `WebApp` of the group `example.com` it is `example.com/webapp-finalizer`.
    pub fn with_finalizer(mut self) -> Self {
        self.finalizer.get_or_insert_with(|| {
            let api = R::resource();
            // The core group has no name, and a finalizer has to have one before the slash.
            let group = if api.group.is_empty() { "konverge.dev" } else { &api.group };
            format!("{group}/{}-finalizer", api.kind.to_lowercase())
        });
        self
    }

    /// Keeps a finalizer of this name, where there is another operator for the same kind: each has to have its own.
    pub fn finalizer(mut self, name: impl Into<String>) -> Self {
        self.finalizer = Some(name.into());
        self
    }

    /// How often an object is looked at that asked for nothing else.
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.requeue_after = Some(after);
        self
    }

    /// A fixed pause after each failure, instead of one that grows.
    pub fn error_requeue(mut self, after: Duration) -> Self {
        self.error_requeue = Some(after);
        self
    }

    /// Only objects with these labels, as `kubectl -l` takes it: `tier=gold,!retired`. One that loses them is gone for this
    /// operator: nothing more is done for it, and a finalizer that was set stays.
    pub fn matching_labels(mut self, selector: &str) -> Self {
        self.selection.labels(selector);
        self
    }

    /// Only objects with these fields, as `kubectl --field-selector` takes it: `metadata.name=main`. Custom resources have
    /// those that their definition names (`selectableFields`).
    pub fn matching_fields(mut self, selector: &str) -> Self {
        self.selection.fields(selector);
        self
    }

    /// Watches a kind that belongs to these objects from the start; else the first apply of it does. The rules of the
    /// operator allow it to make, change and delete such objects.
    pub fn owns<T: Kind>(mut self) -> Self {
        self.watches.push(Box::new(|engine| {
            engine.places::<T>().into_iter().for_each(|place| drop(engine.owned::<T>(place)));
            Ok(())
        }));
        self.needs::<T>(["create", "patch", "delete"]).sees::<T>()
    }

    /// Watches another kind; `map` says which objects a changed one concerns. If it is these objects that
    /// name the others, [`Operator::refers_to`] finds them; [`Operator::watch`] watches a kind in part.
    pub fn watches<T: Kind>(self, map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        self.watch(Watch::new(map))
    }

    /// Watches another kind, or some of it.
    pub fn watch<T: Kind>(mut self, watch: Watch<T>) -> Self {
        self.watches.push(Box::new(move |engine| watch.begin(engine)));
        self.sees::<T>()
    }

    /// Watches a kind that these objects name: whenever such an object comes, changes or goes, those that name it are
    /// reconciled. `names` says which; one with a slash is in another namespace.
    ///
    /// An operator that looks at some namespaces only ([`Settings`](crate::Settings)) also watches those that names lead
    /// to, as long as there are such names. Which these are only the objects tell, so the Roles that `--print-rbac` prints are
    /// for the namespaces of the settings: whoever lets objects name others grants `get`, `list` and `watch` there. Until then
    /// such an object is not reconciled, and an event on it says which rule is missing.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { password_secret: String }
    /// Operator::<Database>::new()
    ///     .refers_to::<Secret>(|database| vec![database.spec.password_secret.clone()]);
    /// ```
    pub fn refers_to<T: Kind>(mut self, names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.watches.push(Box::new(references::<R, T>(names)));
        self.sees::<T>()
    }

    /// Lets [`Context::list_by_index`] find objects of a kind without looking at all of them: `values` says under which
    /// values each is found.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { team: String }
    /// async fn reconcile(ctx: Context<Database>) -> Result<Action> {
    ///     let siblings = ctx.everywhere().list_by_index::<Database>("team", &ctx.resource().spec.team).await?;
    ///     ctx.event("Counted", format!("one of {} of this team", siblings.len())).await?;
    ///     Ok(Action::await_change())
    /// }
    ///
    /// Operator::<Database>::new()
    ///     .index("team", |database: &Database| vec![database.spec.team.clone()])
    ///     .reconcile(reconcile);
    /// ```
    pub fn index<T: Kind>(
        mut self,
        name: impl Into<String>,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexes.add::<T>(name.into(), Index::new(values));
        self.sees::<T>()
    }

    /// Something that all reconciles and cleanups share: a client of another system, a pool, counters. They get it by
    /// [`Context::state`]. One value of each type; what changes in it has to be behind a lock or an atomic.
    ///
    /// Each kind of an operator ([`Operator::and`]) has its own. To share one between them, give both a clone of an `Arc`.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { team: String }
    /// struct Prices { gold: u32 }
    ///
    /// async fn reconcile(ctx: Context<Database>) -> Result<Action> {
    ///     let prices = ctx.state::<Prices>()?;
    ///     ctx.event("Priced", format!("it costs {}", prices.gold)).await?;
    ///     Ok(Action::await_change())
    /// }
    ///
    /// Operator::<Database>::new().state(Prices { gold: 7 }).reconcile(reconcile);
    /// ```
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Says that reconciles do this to objects of a kind, beyond what else is declared: `.needs::<Secret>(["get"])`.
    /// Nothing is watched or checked by it; it is for [`Operator::rules`].
    pub fn needs<T: Kind>(mut self, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.rules = self.rules.allow::<T>(verbs);
        self
    }

    /// What it takes to watch a kind, and to ask the server where a cache is not believed: in cleanups, and after another
    /// writer was faster.
    fn sees<T: Kind>(self) -> Self {
        self.needs::<T>(["get", "list", "watch"])
    }

    /// What this operator, with all its kinds, has to be allowed, as far as it says so: its own kinds, their status and
    /// finalizers, events, and what it `owns`, `watches` and `needs`. What reconciles apply without saying so is seen in
    /// a test run; `konverge-testkit` tells what that used.
    pub fn rules(&self) -> Rules {
        let declared = self.others.iter().fold(self.declared(), |rules, other| rules.and(other.declared()));
        declared.allow::<Event>(EVENTS)
    }

    /// Which changes of the objects themselves count. Deletions always do, and so does the start of one.
    pub fn when(mut self, predicate: Predicate) -> Self {
        self.predicate = predicate;
        self
    }

    /// The objects whose changes go before those of others, when there is more to do than workers for it:
    /// `.urgent(|app: &WebApp| app.spec.tier == "gold")`. Others wait longer, but never for ever.
    pub fn urgent(mut self, which: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        self.urgent = Some(Arc::new(move |object: &Object| object.decode::<R>().is_ok_and(|object| which(&object))));
        self
    }

    /// What this kind does differently from the operator's settings.
    pub fn with(mut self, overrides: ControllerOverrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// What the operator's code insists upon, stronger than flags, environment and file, which say the rest:
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// Operator::<Shop>::new().configure(|settings| settings.controller.max_concurrent_reconciles = 1);
    /// ```
    pub fn configure(mut self, change: impl Fn(&mut Settings) + Send + Sync + 'static) -> Self {
        self.configure.push(Arc::new(change));
        self
    }

    /// All settings from code: flags, environment and file are not read, so that `--help` and `--print-crds` are not
    /// answered, and no log is started. For an operator within another program, which does that itself
    /// ([`Settings::load`], [`start_logging`](crate::start_logging)); others say what differs by
    /// [`Operator::configure`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// A client of one's own, instead of the one that settings name. In tests: an API server in the same process. Its
    /// requests are not among the metrics unless it has [`Metrics::request_meter`] in its layers.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Asks this gate before each write of the operator: to its objects and their status, to children, of events, and with
    /// [`Context::client`]. A refused write ends its reconcile without a retry. See [`WriteGate`].
    pub fn write_gate(mut self, gate: impl WriteGate) -> Self {
        self.layers = self.layers.gate(Arc::new(gate));
        self
    }

    /// Metrics with some of one's own among them, shown on the same page.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// A log of one's own to keep the events in: what was recorded can be searched and followed in it, also outside of
    /// reconciles.
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
        self.events = log;
        self
    }

    /// Another kind, run by the same operator. Settings, client, metrics and events are
    /// those of the first.
    pub fn and<T: Kind>(mut self, mut other: Operator<T>) -> Self {
        self.others.append(&mut other.others);
        self.others.push(Box::new(other));
        self
    }

    /// Runs until the process is asked to stop (Ctrl-C, SIGTERM). Reconciles that run may finish, for as long as settings
    /// say; whoever asks a second time ends the process at once.
    pub async fn run(self) -> Result<()> {
        let mut asked = Asked::listen();
        let (once, told) = oneshot::channel::<()>();
        let twice = async {
            asked.heard().await;
            drop(once);
            asked.heard().await;
        };
        tokio::select! {
            ended = self.run_until(async { drop(told.await) }) => ended,
            () = twice => {
                tracing::warn!("asked to stop a second time: reconciles that run are not waited for");
                std::process::exit(1)
            }
        }
    }

    /// Runs until `stop` resolves.
    ///
    /// It runs on the threads of the program's runtime if there are at least four, or if it is a runtime of one thread by
    /// choice. Otherwise, as in a container with one CPU, it takes four threads of its own, so that a reconcile that blocks
    /// its thread holds up nobody else.
    pub async fn run_until(mut self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let configure = std::mem::take(&mut self.configure);
        let settings = match self.settings.take() {
            Some(settings) => {
                let settings = configured(settings, &configure);
                settings.check()?;
                settings
            }
            None => load(configure)?,
        };
        if let Some(print) = settings.print {
            return self.answer(print, &settings);
        }
        let metrics = self.metrics.take().unwrap_or_default();
        let layers = std::mem::take(&mut self.layers);
        let client = match self.client.take() {
            Some(client) => layers.around(client),
            None => connect(&settings, &metrics, layers).await?,
        };
        let (others, log) = (std::mem::take(&mut self.others), self.events.clone());
        let parts: Vec<Box<dyn Part>> = std::iter::once(Box::new(self) as Box<dyn Part>).chain(others).collect();
        let (stopping, stopped) = oneshot::channel::<()>();
        let life = async move { life(parts, &settings, client, log, &metrics, async { drop(stopped.await) }).await };
        let mut life = std::pin::pin!(threads::on_enough(life));
        tokio::select! {
            // It ends by itself only if it could not begin.
            ended = &mut life => return ended,
            () = stop => drop(stopping),
        }
        life.await
    }

    /// Prints what was asked for, as YAML that `kubectl apply -f -` takes.
    fn answer(&self, print: Print, settings: &Settings) -> Result<()> {
        let manifests = match print {
            Print::Crds => self.definitions().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?,
            Print::Rbac => self.rules().manifests(&settings.name, settings.home(), &settings.namespaces),
        };
        let mut out = std::io::stdout().lock();
        for manifest in manifests {
            let yaml = serde_saphyr::to_string(&manifest).map_err(Error::permanent)?;
            match writeln!(out, "---\n{}", yaml.trim_end()) {
                // Whoever reads has seen enough: `--print-crds | head`.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        Ok(())
    }

    /// The CRDs of its kinds, as far as they know them.
    pub fn definitions(&self) -> Vec<CustomResourceDefinition> {
        let others = self.others.iter().filter_map(|other| other.definition());
        R::definition().into_iter().chain(others).collect()
    }
}

/// Settings with what the code insists upon.
fn configured(mut settings: Settings, configure: &[Configure]) -> Settings {
    configure.iter().for_each(|change| change(&mut settings));
    settings
}

/// The settings of this process.
fn load(configure: Vec<Configure>) -> Result<Settings> {
    let said = Settings::loader().args(std::env::args_os()).environment(std::env::vars_os());
    let loaded = configure.into_iter().fold(said, |loader, change| loader.code(move |settings| change(settings)));
    let loaded = loaded.load_or_answer()?;
    start_logging(&loaded.settings.logging);
    for warning in loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.settings)
}

/// A client as settings say.
async fn connect(settings: &Settings, metrics: &Metrics, layers: ClientLayers) -> Result<Client> {
    let config = settings.cluster().await?;
    let host = config.cluster_url.authority().map_or_else(String::new, ToString::to_string);
    let namespaces = if settings.namespaces.is_empty() { "all".into() } else { settings.namespaces.join(",") };
    tracing::info!(name = settings.name, cluster = %config.cluster_url, namespaces, "the operator starts");
    Ok(layers.meter(metrics.request_meter(&host)).around(konverge_runtime::connect(config)?))
}
