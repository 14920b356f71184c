//! The operator: a function for each kind, and what is said around it. In: reconcilers and settings. Out: a program that
//! works until it is told to stop; `life` starts and stops it, `steps` is one reconcile, `trial` one in a test.

mod life;
mod steps;
mod threads;
mod trial;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, Error, Object, Predicate, Result, Trigger, Which};
use kube::Client;
use tokio::sync::oneshot;

pub use trial::Trial;

use life::{Part, life};

use crate::context::Context;
use crate::engine::Engine;
use crate::kind::Kind;
use crate::log::start_logging;
use crate::metrics::{Metrics, counted};
use crate::rules::Rules;
use crate::settings::{ControllerOverrides, Print, Settings};

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
    urgent: Option<Which>,
    watches: Vec<Watches>,
    rules: Rules,
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
            urgent: None,
            watches: Vec::new(),
            rules: Rules::new(),
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

    /// Watches a kind that belongs to these objects from the start; else the first apply of it does. The rules of the
    /// operator allow it to make, change and delete such objects.
    pub fn owns<T: Kind>(mut self) -> Self {
        self.watches.push(Box::new(|engine| {
            engine.places().for_each(|place| drop(engine.owned::<T>(place)));
        }));
        self.needs::<T>(["list", "watch", "create", "patch", "delete"])
    }

    /// Watches another kind; `map` says which objects a changed one concerns.
    pub fn watches<T, F>(mut self, map: F) -> Self
    where
        T: Kind,
        F: Fn(&T) -> Vec<ObjectKey> + Send + Sync + Clone + 'static,
    {
        self.watches.push(Box::new(move |engine| {
            let map = map.clone();
            // One that does not parse concerns nobody here; the watch has reported it.
            let keys = move |object: &Object| object.decode::<T>().map(|object| map(&object)).unwrap_or_default();
            let trigger = Trigger::mapped(T::resource().kind.as_str(), keys);
            for place in engine.places() {
                engine.controller.watch(engine.target::<T>(place), trigger.clone());
            }
        }));
        self.needs::<T>(["list", "watch"])
    }

    /// Says that reconciles do this to objects of a kind, beyond what else is declared: `.needs::<Secret>(["get"])`.
    /// Nothing is watched or checked by it; it is for [`Operator::rules`].
    pub fn needs<T: Kind>(mut self, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.rules = self.rules.allow::<T>(verbs);
        self
    }

    /// What this operator, with all its kinds, has to be allowed, as far as it says so: its own kinds, their status and
    /// finalizers, events, and what it `owns`, `watches` and `needs`. What reconciles apply without saying so is seen in
    /// a test run; `konverge-testkit` tells what that used.
    pub fn rules(&self) -> Rules {
        let declared = self.others.iter().fold(self.declared(), |rules, other| rules.and(other.declared()));
        declared.allow::<k8s_openapi::api::events::v1::Event>(["create", "patch"])
    }

    /// Which changes of the objects themselves count. Deletions always do.
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

    /// Settings from code, instead of from flags, environment and file.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// A client of one's own, instead of the one that settings name. In tests: an API server in the same process. Its
    /// requests are not among the metrics unless it goes through [`CountedRequests`](crate::CountedRequests).
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
    ///
    /// It runs on the threads of the program's runtime if there are at least four, or if it is a runtime of one thread by
    /// choice. Otherwise, as in a container with one CPU, it takes four threads of its own, so that a reconcile that blocks
    /// its thread holds up nobody else.
    pub async fn run_until(mut self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let settings = match self.settings.take() {
            Some(settings) => settings,
            None => load()?,
        };
        if let Some(print) = settings.print {
            return self.answer(print, &settings);
        }
        let metrics = self.metrics.take().unwrap_or_default();
        let client = match self.client.take() {
            Some(client) => client,
            None => connect(&settings, &metrics).await?,
        };
        let others = std::mem::take(&mut self.others);
        let parts: Vec<Box<dyn Part>> = std::iter::once(Box::new(self) as Box<dyn Part>).chain(others).collect();
        let (stopping, stopped) = oneshot::channel::<()>();
        let life = async move { life(parts, &settings, client, &metrics, async { drop(stopped.await) }).await };
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
        for manifest in manifests {
            let yaml = serde_saphyr::to_string(&manifest).map_err(Error::permanent)?;
            println!("---\n{}", yaml.trim_end());
        }
        Ok(())
    }

    /// The CRDs of its kinds, as far as they know them.
    pub fn definitions(&self) -> Vec<CustomResourceDefinition> {
        let others = self.others.iter().filter_map(|other| other.definition());
        R::definition().into_iter().chain(others).collect()
    }
}

/// The settings of this process.
fn load() -> Result<Settings> {
    let loaded = Settings::loader().args(std::env::args_os()).environment(std::env::vars_os()).load_or_answer()?;
    start_logging(&loaded.settings.logging);
    for warning in loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.settings)
}

/// A client as settings say.
async fn connect(settings: &Settings, metrics: &Metrics) -> Result<Client> {
    let config = settings.cluster().await?;
    let host = config.cluster_url.authority().map_or_else(String::new, ToString::to_string);
    Ok(counted(konverge_runtime::connect(config)?, metrics, &host))
}
