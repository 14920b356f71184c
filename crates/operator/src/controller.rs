//! The controller of one kind, as its builder: the user's functions, and what triggers them. `start` makes a running
//! controller of it, `reconciler` is what surrounds each call of the user's functions, `failure` is what users see of a
//! reconcile that failed.

mod failure;
mod reconciler;
mod start;
mod trigger;
mod versions;
mod webhooks;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_core::ObjectKey;
use konverge_runtime::{Action, Error, Object, ObjectFilter, Predicate as EnginePredicate, Result};
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;

pub(crate) use reconciler::ObjectReconciler;
pub(crate) use start::AnyController;
pub use trigger::{KeySender, KeyStream, key_channel};

use crate::api_kind::ApiKind;
use crate::cached_client::CachedClient;
use crate::context::Context;
use crate::index::{Index, Indexes};
use crate::kind::Kind;
use crate::operator::ElectionGroup;
use crate::predicate::Predicate;
use crate::references::references;
use crate::rules::Rules;
use crate::settings::ControllerOverrides;
use crate::state::States;
use crate::versions::Versions;
use crate::watch::{Selection, Watch};
use crate::webhook::AnyWebhook;
use trigger::Source;

type ReconcileFn<R> = Arc<dyn Fn(Context<R>) -> BoxFuture<'static, Result<Action>> + Send + Sync>;
type ErrorHook<R> = Arc<dyn Fn(Context<R>, Arc<Error>) -> BoxFuture<'static, Result<()>> + Send + Sync>;
type BeginWatch = Box<dyn Fn(&CachedClient) -> Result<()> + Send + Sync>;

/// A controller: the functions that reconcile the objects of one kind, and what triggers them.
///
/// An operator with one controller is an [`Operator`](crate::Operator), which has all methods of this type and those of a
/// process, such as `settings` and `run`. Further controllers of the same process are made as `Controller` and added by
/// [`Operator::and`](crate::Operator::and). What belongs to the process cannot be said to them:
///
/// ```compile_fail
/// use konverge::prelude::*;
/// let _ = Controller::<ConfigMap>::new().settings(Settings::default());
/// ```
///
/// ```
/// use konverge::prelude::*;
///
/// async fn databases(ctx: Context<StatefulSet>) -> Result<Action> {
///     Ok(Action::await_change())
/// }
///
/// async fn backups(ctx: Context<CronJob>) -> Result<Action> {
///     Ok(Action::await_change())
/// }
///
/// Operator::<StatefulSet>::new()
///     .reconcile(databases)
///     .and(Controller::<CronJob>::new().reconcile(backups));
/// ```
///
/// `P` is [`Process`](crate::Process) for an operator and `()` for a controller that is added to one.
#[must_use = "a controller does nothing until an operator runs it"]
pub struct Controller<R, P = ()> {
    pub(crate) spec: ControllerSpec<R>,
    pub(crate) process: P,
}

/// All that a controller was told.
pub(crate) struct ControllerSpec<R> {
    kind: ApiKind,
    definition: fn() -> Option<CustomResourceDefinition>,
    name: Option<String>,
    reconcile: Option<ReconcileFn<R>>,
    on_delete: Option<ReconcileFn<R>>,
    on_error: Option<ErrorHook<R>>,
    finalizer: Option<String>,
    requeue_after: Option<Duration>,
    error_requeue: Option<Duration>,
    predicate: Predicate<R>,
    urgent: Option<ObjectFilter>,
    selection: Selection,
    across_namespaces: bool,
    watches: Vec<BeginWatch>,
    sources: Vec<Source>,
    indexes: Indexes,
    pub(crate) states: States,
    rules: Rules,
    webhooks: Vec<Arc<dyn AnyWebhook>>,
    pub(crate) versions: Option<Versions>,
    pub(crate) overrides: ControllerOverrides,
    pub(crate) group: Option<ElectionGroup>,
}

impl<R> ControllerSpec<R> {
    /// The kind of the objects that are reconciled.
    pub(crate) fn kind(&self) -> &ApiKind {
        &self.kind
    }
}

/// What a cleanup may return: nothing, or what a reconcile returns.
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

impl<R: Kind, P: Default> Default for Controller<R, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Kind, P: Default> Controller<R, P> {
    /// A controller of the objects of kind `R`.
    pub fn new() -> Self {
        Self::over(ApiKind::of::<R>(), R::definition)
    }
}

impl<P: Default> Controller<DynamicObject, P> {
    /// A controller of the objects of a kind that is known only at run time, such as a custom resource of others.
    ///
    /// If the server does not serve the kind yet, the operator waits for it. Failures are shown in the condition `Ready` if
    /// the kind's group has a dot and is none of Kubernetes' own.
    ///
    /// ```no_run
    /// use konverge::prelude::*;
    ///
    /// async fn reconcile(ctx: Context<DynamicObject>) -> Result<Action> {
    ///     let size = ctx.resource().data["spec"]["size"].as_u64().unwrap_or(1);
    ///     ctx.apply(ConfigMap::new(ctx.name()).data("size", size.to_string())).await?;
    ///     Ok(Action::await_change())
    /// }
    ///
    /// # async fn start(client: konverge::kube::Client) -> Result<()> {
    /// let widgets = ApiKind::discover(&client, "example.com/v1", "Widget").await?;
    /// Operator::dynamic(&widgets).reconcile(reconcile).run().await
    /// # }
    /// ```
    pub fn dynamic(kind: &ApiKind) -> Self {
        Self::over(kind.clone(), || None)
    }
}

impl<R, P: Default> Controller<R, P> {
    fn over(kind: ApiKind, definition: fn() -> Option<CustomResourceDefinition>) -> Self {
        let spec = ControllerSpec {
            kind,
            definition,
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
            across_namespaces: false,
            watches: Vec::new(),
            sources: Vec::new(),
            indexes: Indexes::default(),
            states: States::default(),
            rules: Rules::new(),
            webhooks: Vec::new(),
            versions: None,
            overrides: ControllerOverrides::default(),
            group: None,
        };
        Self { spec, process: P::default() }
    }
}

impl<R: DeserializeOwned + Send + Sync + 'static, P> Controller<R, P> {
    /// The name of this controller in the log, in metrics and in readiness. Without it the name is the kind and its group:
    /// `webapp.example.com`.
    ///
    /// Two controllers of one kind in one operator need names, for example for objects with different labels.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.spec.name = Some(name.into());
        self
    }

    /// The function that reconciles an object: it reads the object and makes the cluster look as the object asks.
    ///
    /// It is called for every object when the operator starts, and whenever something happens to the object or to what
    /// belongs to it. One object is reconciled by one call at a time; a change during a call leads to another call. The
    /// function has to be idempotent: it may be called again although nothing changed, and after a failure half way.
    ///
    /// An error is retried with a growing backoff, a panic is caught and treated as an error, and a call that takes longer
    /// than the setting `reconcile_timeout` is cancelled at its next await and treated as an error.
    pub fn reconcile<F, Fut>(mut self, reconcile: F) -> Self
    where
        F: Fn(Context<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action>> + Send + 'static,
    {
        self.spec.reconcile = Some(Arc::new(move |context| Box::pin(reconcile(context))));
        self
    }

    /// The cleanup that runs before an object is deleted. The object stays until this returns `Ok`, which takes a finalizer:
    /// one is managed, as by [`Controller::with_finalizer`]. A cleanup that returns `Action::requeue` is not done yet and is
    /// called again.
    ///
    /// Children that were applied need no cleanup: Kubernetes deletes them. Use it for what lies outside of the cluster or
    /// in other namespaces. It has to be idempotent, like a reconcile.
    ///
    /// An object that does not decode as `R` any more, for example because the type lost a variant, is released without a
    /// cleanup: otherwise it could never be deleted. The log and an event `CleanupSkipped` name it.
    pub fn on_delete<F, Fut, A>(mut self, cleanup: F) -> Self
    where
        F: Fn(Context<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<A>> + Send + 'static,
        A: IntoAction,
    {
        self.spec.on_delete = Some(Arc::new(move |context| {
            let cleanup = cleanup(context);
            Box::pin(async move { cleanup.await.map(IntoAction::into_action) })
        }));
        self.with_finalizer()
    }

    /// A hook that is called when a reconcile or a cleanup fails, usually to write the failure into the status.
    ///
    /// It is called after every failure that does not pass by itself: an error, a panic, the time limit. After a conflict
    /// with another writer or an error of the server it is called if that comes five times in a row, and never while the
    /// server is away. It is not called for an object that does not decode as `R`, because there is nothing to give it; an
    /// event shows that. [`Error::get_reason`] has one word for the failure, the error itself the rest.
    ///
    /// Without a hook, a failure is an event and the condition `Ready=False` on the object, which is removed when a
    /// reconcile succeeds. A hook that sets `Ready` itself keeps it: the framework leaves a condition alone that the
    /// operator's code sets. A hook that fails, panics or takes more than five seconds is logged, and changes nothing about
    /// the retries.
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
        self.spec.on_error = Some(Arc::new(move |context, error| Box::pin(hook(context, error))));
        self
    }

    /// Keeps a finalizer on every object: added before the first reconcile, removed when the cleanup is done. For a kind
    /// `WebApp` of the group `example.com` it is called `example.com/webapp-finalizer`.
    pub fn with_finalizer(mut self) -> Self {
        let api = self.spec.kind.resource();
        self.spec.finalizer.get_or_insert_with(|| {
            // The core group has no name, and a finalizer needs a domain before the slash.
            let group = if api.group.is_empty() { "konverge.dev" } else { &api.group };
            format!("{group}/{}-finalizer", api.kind.to_lowercase())
        });
        self
    }

    /// Keeps a finalizer of this name. Two operators for the same kind, and two controllers of one operator, need finalizers
    /// of different names: otherwise the first cleanup that is done would release the object.
    pub fn finalizer(mut self, name: impl Into<String>) -> Self {
        self.spec.finalizer = Some(name.into());
        self
    }

    /// Reconciles an object again after this time if its reconcile asked for nothing else, for what changes outside of the
    /// cluster.
    pub fn requeue_after(mut self, after: Duration) -> Self {
        self.spec.requeue_after = Some(after);
        self
    }

    /// Retries a failed reconcile always after this time, instead of after a growing backoff.
    pub fn error_requeue(mut self, after: Duration) -> Self {
        self.spec.error_requeue = Some(after);
        self
    }

    /// Reconciles only objects with these labels, as `kubectl -l` takes it: `tier=gold,!retired`. An object that loses them
    /// is gone for this controller: it is not reconciled again, and a finalizer that was added stays.
    pub fn matching_labels(mut self, selector: &str) -> Self {
        self.spec.selection.labels(selector);
        self
    }

    /// Reconciles only objects with these fields, as `kubectl --field-selector` takes it: `metadata.name=main`. Custom
    /// resources have those that their definition names (`selectableFields`).
    pub fn matching_fields(mut self, selector: &str) -> Self {
        self.spec.selection.fields(selector);
        self
    }

    /// Says that reconciles apply children of kind `T`. The kind is watched from the start, instead of from the first apply,
    /// and the operator's rules allow to create, change and delete such objects.
    pub fn owns<T: Kind>(self) -> Self {
        self.owns_dynamic(&ApiKind::of::<T>())
    }

    /// The same as [`Controller::owns`] for a kind that is known only at run time.
    pub fn owns_dynamic(mut self, kind: &ApiKind) -> Self {
        let owned = kind.clone();
        self.spec.watches.push(Box::new(move |cached| {
            cached.watched_namespaces(&owned).into_iter().for_each(|namespace| drop(cached.owned(&owned, namespace)));
            Ok(())
        }));
        // Apart from what watching takes, which begins at once: if nothing is ever written, the declaration is too much.
        self.needs_together(kind, &["create", "patch", "delete"]).reads(kind)
    }

    /// Watches another kind. `map` returns the keys of the objects to reconcile when an object of that kind changes.
    ///
    /// If the reconciled objects name the others, [`Controller::refers_to`] is simpler. [`Controller::watch`] watches a part
    /// of a kind, or a kind that is known only at run time.
    pub fn watches<T: Kind>(self, map: impl Fn(&T) -> Vec<ObjectKey> + Send + Sync + 'static) -> Self {
        self.watch(Watch::new(map))
    }

    /// Watches another kind, or a part of it: see [`Watch`].
    pub fn watch<T: 'static>(mut self, watch: Watch<T>) -> Self {
        let kind = watch.kind().clone();
        self.spec.watches.push(Box::new(move |cached| watch.begin(cached)));
        self.reads(&kind)
    }

    /// Watches a kind whose objects the reconciled objects name. When such an object is created, changes or is deleted, the
    /// objects that name it are reconciled. `names` returns the names; a name with a slash is in another namespace.
    ///
    /// An operator that watches some namespaces only ([`Settings`](crate::Settings)) also watches the namespaces that names
    /// lead to, as long as there are such names. Only the objects know these namespaces, so the Roles that `--print-rbac`
    /// prints are for the namespaces of the settings: whoever lets objects name others grants `get`, `list` and `watch`
    /// there. Until then such an object is not reconciled, and an event on it says which rule is missing.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { password_secret: String }
    /// Operator::<Database>::new()
    ///     .refers_to::<Secret>(|database| vec![database.spec.password_secret.clone()]);
    /// ```
    pub fn refers_to<T: Kind>(self, names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.refers_to_when::<T>(names, Predicate::always())
    }

    /// The same as [`Controller::refers_to`], but only changes that a predicate lets through reconcile the objects that name
    /// the changed one. Creations and deletions always count.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Proxy", namespaced)]
    /// # pub struct ProxySpec { backend: String }
    /// // The status of the backend changes often, and does not matter.
    /// Operator::<Proxy>::new()
    ///     .refers_to_when::<Deployment>(|proxy| vec![proxy.spec.backend.clone()], Predicate::generation_changed());
    /// ```
    pub fn refers_to_when<T: Kind>(
        self,
        names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static,
        predicate: Predicate<T>,
    ) -> Self {
        self.add_references(&ApiKind::of::<T>(), names, predicate.engine())
    }

    /// The same as [`Controller::refers_to`] for a kind that is known only at run time.
    pub fn refers_to_dynamic(self, kind: &ApiKind, names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.add_references(kind, names, EnginePredicate::always())
    }

    /// Lets reconciles of an object in a namespace read, write and refer to objects in others.
    ///
    /// Without this, [`Context::within`], an object that is applied with another namespace, and names with a slash in
    /// [`Controller::refers_to`] are refused or do not count. The reason: an operator may do more than the people who create its
    /// objects, and a name in such an object would let them read a Secret, or change a Deployment, of somebody else. Declare it only if
    /// the other namespaces do not come from the object, or if the operator checks who may name what. Lists over all namespaces
    /// ([`Context::everywhere`]) and objects without a namespace, which administrators create, need no declaration.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Mirror", namespaced)]
    /// # pub struct MirrorSpec { text: String }
    /// // Every object gets a copy in the namespace of the backups, which is the same for all.
    /// Operator::<Mirror>::new().across_namespaces().owns::<ConfigMap>();
    /// ```
    pub fn across_namespaces(mut self) -> Self {
        self.spec.across_namespaces = true;
        self
    }

    fn add_references(
        mut self,
        kind: &ApiKind,
        names: impl Fn(&R) -> Vec<String> + Send + Sync + 'static,
        predicate: EnginePredicate,
    ) -> Self {
        self.spec.watches.push(Box::new(references::<R>(kind.clone(), names, predicate)));
        self.reads(kind)
    }

    /// Reconciles the objects whose keys a stream yields, for triggers outside of the cluster: webhooks of other systems,
    /// message queues, timers. `source` names the trigger in [`Context::causes`] and in the log. [`key_channel`] makes a
    /// stream that any part of the program can send keys to.
    ///
    /// The stream is read from when the caches are filled, in a task of its own, until the operator stops. Keys are taken as
    /// fast as the stream yields them: a key that waits to be reconciled already is merged, so the queue never holds more
    /// keys than there are objects, and a key without an object is skipped (an object is reconciled anyway when it is
    /// created). If the stream ends, that is logged, and the controller goes on. A panic in the stream ends the operator with
    /// an error.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::key_channel;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// let (prices, changed) = key_channel();
    /// let operator = Operator::<Shop>::new().triggered_by("prices", changed);
    /// // Anywhere in the program: prices.send(ObjectKey::new(Some("default"), "main")).await
    /// ```
    pub fn triggered_by<S>(mut self, source: impl Into<String>, keys: S) -> Self
    where
        S: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.spec.sources.push(Source::new(source.into(), keys));
        self
    }

    /// Lets [`Context::list_by_index`] find objects of a kind without a scan: `values` returns the values under which an
    /// object is found.
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
        self,
        name: impl Into<String>,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.add_index(ApiKind::of::<T>(), name.into(), Index::new(values))
    }

    /// The same as [`Controller::index`] for a kind that is known only at run time.
    pub fn index_dynamic(
        self,
        kind: &ApiKind,
        name: impl Into<String>,
        values: impl Fn(&DynamicObject) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.add_index(kind.clone(), name.into(), Index::new(values))
    }

    fn add_index(mut self, kind: ApiKind, name: String, index: Index) -> Self {
        self.spec.indexes.add(kind.clone(), name, index);
        self.reads(&kind)
    }

    /// A value that all reconciles and cleanups share, such as a client of another system, a pool or counters. They get it
    /// by [`Context::state`]. There is one value of each type; what changes in it has to be behind a lock or an atomic.
    ///
    /// The state of an operator is seen by all its controllers and background tasks, the state of a controller that was
    /// added by [`Operator::and`](crate::Operator::and) only by that one, which prefers it to the operator's state of the
    /// same type.
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
        self.spec.states.insert(state);
        self
    }

    /// Says that reconciles do this to objects of a kind, beyond what else is declared: `.needs::<Secret>(["get"])`. It adds
    /// to [`Operator::rules`](crate::Operator::rules), and nothing is watched or checked by it.
    pub fn needs<T: Kind>(self, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.needs_dynamic(&ApiKind::of::<T>(), verbs)
    }

    /// The same as [`Controller::needs`] for a kind that is known only at run time.
    pub fn needs_dynamic(mut self, kind: &ApiKind, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.spec.rules = self.spec.rules.allow_dynamic(kind, "", verbs);
        self
    }

    /// What it takes to watch a kind, and to ask the server where the cache is not believed: in cleanups, and after a
    /// conflict.
    fn reads(self, kind: &ApiKind) -> Self {
        self.needs_together(kind, &["get", "list", "watch"])
    }

    /// What one declaration brings. Some of it is needed rarely, such as `delete`, so it does not count as unused while other parts of it are
    /// used.
    fn needs_together(mut self, kind: &ApiKind, verbs: &[&str]) -> Self {
        self.spec.rules = self.spec.rules.and_together(Rules::new().allow_dynamic(kind, "", verbs));
        self
    }

    /// Reconciles an object only after changes that a predicate lets through. Deletions always count, and so does the start
    /// of one.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// Operator::<Shop>::new().when(Predicate::new(|old: &Shop, new: &Shop| old.spec.image != new.spec.image));
    /// Operator::<Shop>::new().when(Predicate::generation_changed());
    /// ```
    pub fn when(mut self, predicate: Predicate<R>) -> Self {
        self.spec.predicate = predicate;
        self
    }

    /// The objects whose changes are reconciled first when there is more to do than the workers can:
    /// `.urgent(|app: &WebApp| app.spec.tier == "gold")`. Others wait longer, but never for ever.
    pub fn urgent(mut self, which: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        let which = move |object: &Object| object.decode::<R>().is_ok_and(|object| which(&object));
        self.spec.urgent = Some(Arc::new(which));
        self
    }

    /// What this controller does differently from the operator's settings.
    pub fn with(mut self, overrides: ControllerOverrides) -> Self {
        self.spec.overrides = overrides;
        self
    }
}
