//! The operator: a function for each kind, and the life around it. In: reconcilers and settings. Out: a program that
//! works until it is told to stop. This is the only place that starts things; it stops them in the reverse order.
//!
//! ```text
//! start   log → client → metrics and probes → recorder → caches → workers
//! stop    workers finish → caches → recorder writes what is left → probes
//! ```

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use konverge_core::ObjectKey;
use konverge_runtime::{
    Action, Backoff, Caches, Condition, Controller, ControllerOptions, Error, FieldManager, Finalized, Object,
    Predicate, QueueOptions, READY, Rate, Recorder, RecorderOptions, Result, Retry, Run, Trigger, WatchSettings,
    Writer, WriterOptions, retry,
};
use kube::Client;
use tokio::sync::watch;

use crate::context::Context;
use crate::engine::{Engine, target};
use crate::kind::{Kind, Scope};
use crate::log::start_logging;
use crate::meter::ControllerMeter;
use crate::metrics::Metrics;
use crate::probes::{Health, Probes};
use crate::settings::{ControllerOverrides, Settings};

type Step<R> = Arc<dyn Fn(Context<R>) -> BoxFuture<'static, Result<Action>> + Send + Sync>;
type Watches = Box<dyn Fn(&Engine) + Send + Sync>;

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
    reconcile: Option<Step<R>>,
    on_delete: Option<Step<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    error_requeue: Option<Duration>,
    predicate: Predicate,
    watches: Vec<Watches>,
    overrides: ControllerOverrides,
    settings: Option<Settings>,
    client: Option<Client>,
    metrics: Option<Metrics>,
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
            reconcile: None,
            on_delete: None,
            finalizer: None,
            requeue_after: None,
            error_requeue: None,
            predicate: Predicate::always(),
            watches: Vec::new(),
            overrides: ControllerOverrides::default(),
            settings: None,
            client: None,
            metrics: None,
            others: Vec::new(),
        }
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

    /// Keeps a finalizer on every object: set before the first reconcile, removed when the cleanup is done.
    pub fn with_finalizer(mut self) -> Self {
        self.finalizer.get_or_insert_with(|| {
            let api = R::resource();
            format!("{}/{}-finalizer", api.group, api.kind.to_lowercase())
        });
        self
    }

    /// Keeps a finalizer of this name.
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

    /// Watches a kind that belongs to these objects from the start; else the first apply of it does.
    pub fn owns<T: Kind>(mut self) -> Self {
        self.watches.push(Box::new(|engine| {
            engine.owned::<T>();
        }));
        self
    }

    /// Watches another kind; `map` says which objects a changed one concerns.
    pub fn watches<T, F>(mut self, map: F) -> Self
    where
        T: Kind,
        F: Fn(&T) -> Vec<ObjectKey> + Send + Sync + Clone + 'static,
    {
        self.watches.push(Box::new(move |engine| {
            let api = T::resource();
            let map = map.clone();
            // One that does not parse concerns nobody here; the watch has reported it.
            let keys = move |object: &Object| object.decode::<T>().map(|object| map(&object)).unwrap_or_default();
            let trigger = Trigger::mapped(api.kind.as_str(), keys);
            engine.controller.watch(engine.target(api, T::scope()), trigger);
        }));
        self
    }

    /// Which changes of the objects themselves count. Deletions always do.
    pub fn when(mut self, predicate: Predicate) -> Self {
        self.predicate = predicate;
        self
    }

    /// What this kind does differently from the operator's settings.
    pub fn with(mut self, overrides: ControllerOverrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Settings from code, instead of from flags, environment and file.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// A client of one's own, instead of the one that settings name. In tests: an API server in the same process.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Metrics with some of one's own among them, shown on the same page.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Another kind, run by the same operator. Settings and client are those of the first.
    pub fn and<T: Kind>(mut self, mut other: Operator<T>) -> Self {
        self.others.append(&mut other.others);
        self.others.push(Box::new(other));
        self
    }

    /// Runs until the process is asked to stop (Ctrl-C, SIGTERM).
    pub async fn run(self) -> Result<()> {
        self.run_until(crate::signal::asked()).await
    }

    /// Runs until `stop` resolves.
    pub async fn run_until(mut self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let settings = match self.settings.take() {
            Some(settings) => settings,
            None => {
                let settings = Settings::load()?;
                start_logging(&settings.logging);
                settings
            }
        };
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut config = settings.cluster().await?;
                // When to try again is the queue's business: it honours Retry-After and lets other objects go first.
                config.default_retry = false;
                Client::try_from(config)?
            }
        };
        let metrics = self.metrics.take().unwrap_or_default();
        let others = std::mem::take(&mut self.others);
        let parts: Vec<Box<dyn Part>> = std::iter::once(Box::new(self) as Box<dyn Part>).chain(others).collect();
        life(parts, &settings, client, &metrics, stop).await
    }
}

/// One kind of an operator, whatever its type.
trait Part: Send + Sync {
    fn start(self: Box<Self>, shared: &Shared<'_>, stop: watch::Receiver<bool>) -> Result<BoxFuture<'static, ()>>;
}

/// What all parts share.
struct Shared<'a> {
    settings: &'a Settings,
    caches: Caches,
    writer: Writer,
    recorder: Recorder,
    metrics: &'a Metrics,
    health: Health,
}

/// Starts everything in order, and stops it in the reverse order.
async fn life(
    parts: Vec<Box<dyn Part>>,
    settings: &Settings,
    client: Client,
    metrics: &Metrics,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let health = Health::default();
    let probes = Probes::start(settings, metrics, &health)?;
    let writer = Writer::new(client.clone(), FieldManager::new(settings.field_manager()), WriterOptions::default());
    let options = RecorderOptions { controller: settings.name.clone(), ..RecorderOptions::default() };
    let (recorder, recording) = Recorder::new(writer.clone(), options);
    let recording = tokio::spawn(recording.run());
    let caches = Caches::new(client, WatchSettings::default());
    let shared = Shared { settings, caches: caches.clone(), writer, recorder: recorder.clone(), metrics, health };

    let (stopping, told) = watch::channel(false);
    let mut running = tokio::task::JoinSet::new();
    for part in parts {
        running.spawn(part.start(&shared, told.clone())?);
    }
    stop.await;
    tracing::info!("stopping: reconciles that run are let finish");
    stopping.send_replace(true);
    while running.join_next().await.is_some() {}
    caches.shutdown().await;
    recorder.close();
    drop(shared);
    if tokio::time::timeout(Duration::from_secs(5), recording).await.is_err() {
        tracing::warn!("events that were left could not be written in time");
    }
    probes.stop(Duration::from_secs(1)).await;
    Ok(())
}

impl<R: Kind> Part for Operator<R> {
    fn start(self: Box<Self>, shared: &Shared<'_>, stop: watch::Receiver<bool>) -> Result<BoxFuture<'static, ()>> {
        let api = R::resource();
        let Some(reconcile) = self.reconcile else {
            return Err(Error::permanent(format!(
                "the operator of {} has no function; give it one with .reconcile(…)",
                api.kind
            )));
        };
        let settings = self.overrides.over(&shared.settings.controller);
        let name = format!("{}.{}", api.kind.to_lowercase(), api.group);
        let metrics = shared.metrics.controller(&name);
        metrics.set_max_concurrent(settings.max_concurrent_reconciles);
        let mut backoff = Backoff {
            initial: settings.backoff.initial,
            max: settings.backoff.max,
            multiplier: settings.backoff.multiplier,
            max_retries: settings.backoff.max_retries,
            jitter: settings.backoff.jitter,
        };
        if let Some(pause) = self.error_requeue {
            backoff = Backoff { initial: pause, max: pause, jitter: 0.0, ..backoff };
        }
        let mut controllers = Vec::new();
        let rate = (settings.rate_limit.per_second > 0.0).then(|| Rate {
            every: Duration::from_secs_f64(1.0 / settings.rate_limit.per_second),
            burst: settings.rate_limit.burst,
        });
        let queue = QueueOptions { backoff, rate, ..QueueOptions::default() };
        // Several namespaces are several watches, and nothing outside of them is read: a controller for each.
        let namespaces: Vec<Option<Arc<str>>> = match shared.settings.namespaces.as_slice() {
            [] => vec![None],
            _ if R::scope() == Scope::Cluster => vec![None],
            some => some.iter().map(|namespace| Some(namespace.as_str().into())).collect(),
        };
        let mut running: Vec<BoxFuture<'static, ()>> = Vec::new();
        for namespace in namespaces {
            let check = match &namespace {
                Some(namespace) => format!("{name}-{namespace}"),
                None => name.clone(),
            };
            let options = ControllerOptions {
                concurrency: settings.max_concurrent_reconciles,
                timeout: settings.reconcile_timeout,
                resync: shared.settings.sync_period,
                drain: shared.settings.graceful_shutdown_timeout,
                queue: queue.clone(),
                predicate: self.predicate.clone(),
                meter: Arc::new(ControllerMeter { metrics: metrics.clone(), ready: shared.health.readiness(&check) }),
            };
            let primary = target(namespace.as_deref(), api.clone(), R::scope());
            let controller = Controller::new(&name, primary, shared.caches.clone(), options);
            let engine = Engine {
                caches: shared.caches.clone(),
                writer: shared.writer.clone(),
                recorder: shared.recorder.clone(),
                controller: controller.clone(),
                namespace,
                owner: api.clone(),
                owner_scope: R::scope(),
            };
            for watches in &self.watches {
                watches(&engine);
            }
            controllers.push(Arc::downgrade(&controller));
            let steps = Arc::new(Steps {
                reconcile: reconcile.clone(),
                on_delete: self.on_delete.clone(),
                finalizer: self.finalizer.clone(),
                requeue_after: self.requeue_after,
                engine,
            });
            let reconciler = move |run: Run| -> BoxFuture<'static, Result<Action>> {
                let steps = steps.clone();
                Box::pin(async move { steps.walk(run).await })
            };
            let mut stop = stop.clone();
            running.push(Box::pin(async move {
                let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
                controller.run(Arc::new(reconciler), stopped).await;
            }));
        }
        metrics.depth_from(move |each| {
            for controller in controllers.iter().filter_map(Weak::upgrade) {
                for (priority, ready) in controller.queue().ready.into_iter().enumerate() {
                    each(priority as i32, ready);
                }
            }
        });
        Ok(Box::pin(async move {
            futures_util::future::join_all(running).await;
        }))
    }
}

/// What surrounds a user's function: finalizer, cleanup, requeue, and what becomes of errors.
struct Steps<R: Kind> {
    reconcile: Step<R>,
    on_delete: Option<Step<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    engine: Engine,
}

impl<R: Kind> Steps<R> {
    async fn walk(&self, run: Run) -> Result<Action> {
        let Some(object) = self.engine.controller.primary().get(&run.key) else { return Ok(Action::Wait) };
        let context = Context::<R>::new(self.engine.clone(), &object, run.causes.clone())?;
        let walked = if object.is_terminating() {
            self.leave(&object, context.clone()).await
        } else {
            self.stay(&object, context.clone(), run).await
        };
        if let Err(error) = &walked
            && retry(error) == Retry::UntilChanged
        {
            self.say(&context, error).await;
        }
        walked
    }

    async fn stay(&self, object: &Object, mut context: Context<R>, run: Run) -> Result<Action> {
        if let Some(finalizer) = &self.finalizer
            && !object.finalizers().any(|name| name == finalizer.as_str())
        {
            let engine = &self.engine;
            match engine.writer.add_finalizer(&engine.owner, &object.value(), finalizer).await? {
                Finalized::Changed(object) => {
                    engine.wrote(&engine.owner, &object)?;
                    context = Context::of(engine.clone(), object, run.causes)?;
                }
                Finalized::Unchanged => {}
                // The change that says so is on its way.
                Finalized::Deleting(_) | Finalized::Gone => return Ok(Action::Wait),
            }
        }
        match ((self.reconcile)(context).await?, self.requeue_after) {
            (Action::Wait, Some(after)) => Ok(Action::Requeue(after)),
            (action, _) => Ok(action),
        }
    }

    async fn leave(&self, object: &Object, context: Context<R>) -> Result<Action> {
        let Some(finalizer) = &self.finalizer else { return Ok(Action::Wait) };
        if !object.finalizers().any(|name| name == finalizer.as_str()) {
            return Ok(Action::Wait);
        }
        if let Some(cleanup) = &self.on_delete
            && let Action::Requeue(after) = cleanup(context).await?
        {
            // The cleanup is under way; the object stays until it says that it is done.
            return Ok(Action::Requeue(after));
        }
        let engine = &self.engine;
        engine.writer.remove_finalizer(&engine.owner, &object.value(), finalizer).await?;
        Ok(Action::Wait)
    }

    /// An error that no retry mends is for people: it is shown where they look.
    async fn say(&self, context: &Context<R>, error: &Error) {
        let (reason, message) = (error.reason(), error.to_string());
        if let Err(unsaid) = context.record(konverge_runtime::Severity::Warning, reason, message.clone()) {
            tracing::debug!(%unsaid, "the event could not be recorded");
        }
        // Kinds without a status subresource have no place for it.
        if let Err(unsaid) = context.set_condition(Condition::no(READY, reason, message)).await {
            tracing::debug!(%unsaid, "the condition could not be set");
        }
    }
}
