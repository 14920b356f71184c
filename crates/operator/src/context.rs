//! The handle of a reconcile: the reconciled object, and methods that read and write the cluster. The methods name Rust types;
//! [`Reconciliation`] and [`CachedClient`] do the work for any kind.

use std::fmt;
use std::sync::Arc;

use konverge_core::ObjectKey;
use konverge_runtime::{
    Cause, Condition, Conditions, Object, OtherFields, Patch, ReconcileRecord, Result, Severity, StatusUpdate,
};
use kube::Client;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::api_kind::ApiKind;
use crate::builders::Selector;
use crate::cached_client::{CachedClient, DesiredChild};
use crate::children::{Children, Converged, Desired};
use crate::kind::Kind;
use crate::objects::{Objects, Within};
use crate::reconciliation::Reconciliation;

/// The object that is reconciled, and the cluster around it. Clones are the same.
///
/// **Reads** of kinds that are watched (everything applied, owned, listed or watched) come from the cache and cost no
/// request; other reads ask the server. A read after a write of this operator sees at least that write. In a cleanup
/// ([`Operator::on_delete`](crate::Operator::on_delete)) the server is asked where the cache has nothing, because a cleanup
/// runs once.
///
/// **Writes** are sent only if they would change something. A write that fails is an error for `?`: the reconcile is
/// retried, after a backoff that fits the error.
pub struct Context<R>(Arc<Inner<R>>);

struct Inner<R> {
    resource: Arc<R>,
    reconciliation: Reconciliation,
}

impl<R> Context<R> {
    /// The context of an object, which is `resource` as a Rust type.
    pub(crate) fn new(
        cached: Arc<CachedClient>,
        object: Arc<Object>,
        resource: Arc<R>,
        causes: Arc<[Arc<Cause>]>,
    ) -> Self {
        Self(Arc::new(Inner { resource, reconciliation: Reconciliation::new(cached, object, causes) }))
    }

    pub(crate) fn reconciliation(&self) -> &Reconciliation {
        &self.0.reconciliation
    }

    /// The object as this reconcile began with it. Writes of this reconcile, such as a new status, are not in it.
    pub fn resource(&self) -> &R {
        &self.0.resource
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.reconciliation().key.name()
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.reconciliation().key.namespace().unwrap_or_default()
    }

    /// Its namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.reconciliation().key
    }

    /// A client for everything that this type has no method for: subresources, logs, reviews. Reads here see what it wrote
    /// when the watch brings that, not before.
    ///
    /// Its requests are counted in the metrics, unless the program made the client itself
    /// ([`Operator::client`](crate::Operator::client)).
    pub fn client(&self) -> Client {
        self.reconciliation().cached.client.clone()
    }

    /// A value that the controller or the whole operator was given by [`Operator::state`](crate::Operator::state).
    ///
    /// A type that was not given is an error which names the type and is shown on the object, not a panic.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T> {
        let cached = &self.reconciliation().cached;
        cached.states.get(|| format!("the operator of {}", cached.kind.name()))
    }

    /// Why this reconcile runs: what happened since the last one, oldest first. A retry has no causes of its own.
    ///
    /// For logs and events. Do not decide by it what to do: causes are merged, and lost when the operator restarts.
    pub fn causes(&self) -> &[Arc<Cause>] {
        &self.reconciliation().causes
    }

    /// The newest reconciles of this object before this one, oldest first: why each ran, how long it took, how it ended.
    /// The operator keeps them in memory, for some thousand objects.
    pub fn past_runs(&self) -> Vec<ReconcileRecord> {
        let Reconciliation { cached, key, .. } = self.reconciliation();
        cached.controller.history().of(key)
    }

    /// Makes a child look like this by server-side apply: creates it, changes it, or sends nothing if it looks so already.
    ///
    /// - The child belongs to the reconciled object: Kubernetes deletes it with its owner, and a change of the child
    ///   reconciles the owner, which puts back what somebody else changed.
    /// - Fields that were applied before and are no longer given are removed. Fields that others set stay.
    /// - A child without a namespace goes into that of the reconciled object.
    /// - An object that exists and belongs to nobody is adopted, unless the reconciled object is being deleted. That costs
    ///   one read of the reconciled object for each reconcile that adopts something. An object that belongs to another
    ///   owner is an error.
    /// - A child in another namespace, or a cluster-scoped child of a namespaced object, is put back as well, but
    ///   Kubernetes cannot delete it with its owner. Delete it in `on_delete`, with [`Context::within`].
    ///
    /// The first apply of a kind starts a watch of it, so the operator needs the rules that
    /// [`Operator::owns`](crate::Operator::owns) declares. The answer is the child as the server has it.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String }
    /// async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    ///     let container = Container::new("shop").image(&ctx.resource().spec.image).port(8080);
    ///     let shop = ctx.apply(Deployment::new(ctx.name()).container(container)).await?;
    ///     if shop.ready_replicas() == 0 {
    ///         ctx.set_condition(Condition::no(READY, "Starting", "no replica is ready yet")).await?;
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn apply<T: Kind>(&self, desired: T) -> Result<T> {
        self.here().objects::<T>().apply(desired).await
    }

    /// The same as [`Context::apply`] for an object that belongs to nobody: it stays when the reconciled object goes.
    ///
    /// Use it for what several objects share, such as a namespace or a role that must outlive them. Nothing is adopted, and
    /// an owner that the object has stays, unless this operator applied that owner before. A change of the object by
    /// somebody else reconciles nobody: it is put back by the next reconcile, which
    /// [`Operator::watches`](crate::Operator::watches) can ask for.
    ///
    /// All objects that a controller reconciles apply under one field manager. If two of them apply different fields to the
    /// same shared object, each removes the fields of the other: let them apply the same fields, or an object each. Two
    /// controllers have field managers of their own and do not disturb each other.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Tenant", namespaced)]
    /// # pub struct TenantSpec { team: String }
    /// async fn reconcile(ctx: Context<Tenant>) -> Result<Action> {
    ///     // Other tenants of the team use it, too.
    ///     ctx.apply_unowned(ServiceAccount::new(&ctx.resource().spec.team)).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn apply_unowned<T: Kind>(&self, desired: T) -> Result<T> {
        self.here().objects::<T>().apply_unowned(desired).await
    }

    /// Creates a child that must not exist yet, and answers with it. Like [`Context::apply`] it watches the kind, so that a
    /// change of the child reconciles its owner; the rules are those of [`Operator::owns`](crate::Operator::owns).
    ///
    /// If the object exists, that is a conflict: the reconcile is retried after a pause that grows to at most 30 seconds,
    /// however often, and from the fifth time on the conflict is shown on the reconciled object. If the deletion of the
    /// reconciled object began meanwhile, nothing is created, and that is a conflict, too.
    ///
    /// Use it for objects that cannot be changed afterwards, or with `generateName`, where the server makes up the name.
    /// For all others [`Context::apply`] and [`Context::create_once`] are safer, because a reconcile may run again at any
    /// point: if the answer to a create is lost, the next reconcile cannot know the generated name. Give such objects a
    /// label to find them by, and look with [`Context::list_by`] before you create another.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Backup", namespaced)]
    /// # pub struct BackupSpec { image: String }
    /// async fn reconcile(ctx: Context<Backup>) -> Result<Action> {
    ///     if ctx.list_by::<Job>(Selector::new().insert("backup", ctx.name())).await?.is_empty() {
    ///         let container = Container::new("backup").image(&ctx.resource().spec.image);
    ///         let job = Job::new("").container(container).label("backup", ctx.name());
    ///         ctx.create(job.patch(|job| job.metadata.generate_name = Some(format!("{}-", ctx.name())))).await?;
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn create<T: Kind>(&self, object: T) -> Result<T> {
        self.here().objects::<T>().create(object).await
    }

    /// Creates a child unless it exists, and never changes it afterwards: a generated password, a certificate, data that
    /// users fill in. Answers with the object as it is, whoever created it; the argument counts only if there was none.
    ///
    /// - A child that this creates belongs to the reconciled object: it is deleted with it, and created anew if somebody
    ///   deletes it.
    /// - An object that was there before, such as a Secret that a user brings along, stays its creator's. It is not
    ///   deleted with the reconciled object, and its changes reconcile nobody, unless
    ///   [`Operator::refers_to`](crate::Operator::refers_to) names it.
    /// - If two reconciles create it at the same time, the server takes one; the other is retried after about a second and
    ///   reads that one.
    /// - If the deletion of the reconciled object began meanwhile, nothing is created, and the reconcile is retried as after
    ///   a conflict.
    ///
    /// Like [`Context::apply`] it watches the kind; the rules are those of [`Operator::owns`](crate::Operator::owns).
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # fn random() -> String { "correct horse".into() }
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Database", namespaced)]
    /// # pub struct DatabaseSpec { team: String }
    /// async fn reconcile(ctx: Context<Database>) -> Result<Action> {
    ///     let login = ctx.create_once(Secret::new(format!("{}-login", ctx.name())).data("password", random())).await?;
    ///     let container = Container::new("db").image("postgres:17");
    ///     ctx.apply(Deployment::new(ctx.name()).container(container).restart_when(&login)).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn create_once<T: Kind>(&self, object: T) -> Result<T> {
        self.here().objects::<T>().create_once(object).await
    }

    /// Changes some fields of an object in this namespace that somebody else manages, and answers with the object.
    ///
    /// A patch says what it expects to find, so that it cannot undo what somebody else wrote meanwhile:
    /// [`Patch::Merge`] names the resource version it was made for, [`Patch::Json`] brings `test` operations of its own. If
    /// the object is different by now, that is a conflict, and the reconcile is retried with the object as it is then. A
    /// merge patch without a resource version, or that is no JSON object, is refused before it is sent. An object that is
    /// not there is an error. The operator needs the rule `patch`.
    ///
    /// For children [`Context::apply`] is better: it also removes what is no longer wanted.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::Patch;
    /// # use konverge::serde_json::json;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Pause", namespaced)]
    /// # pub struct PauseSpec { deployment: String }
    /// async fn reconcile(ctx: Context<Pause>) -> Result<Action> {
    ///     let name = &ctx.resource().spec.deployment;
    ///     let found = ctx.get::<Deployment>(name).await?;
    ///     if let Some(resource_version) = found.and_then(|found| found.inner().metadata.resource_version.clone()) {
    ///         let patch = Patch::Merge { patch: json!({"spec": {"paused": true}}), resource_version };
    ///         ctx.patch::<Deployment>(name, patch).await?;
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn patch<T: Kind>(&self, name: &str, patch: Patch) -> Result<T> {
        self.here().patch(name, patch).await
    }

    /// Applies a set of children, and deletes those that were in the set before and no longer are.
    ///
    /// All children are applied before the first is deleted. If one cannot be applied, the others still are, nothing is
    /// deleted, and the error is returned.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::Children;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
    /// # pub struct ShopSpec { image: String, host: Option<String> }
    /// async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    ///     let shop = &ctx.resource().spec;
    ///     let children = Children::new()
    ///         .add(Deployment::new(ctx.name()).container(Container::new("shop").image(&shop.image)))
    ///         .add(Service::new(ctx.name()).port(80, 8080))
    ///         // Without a host there is no Ingress, and an Ingress from before is deleted.
    ///         .maybe(shop.host.as_ref().map(|host| {
    ///             Ingress::new(ctx.name()).rule(IngressRule::new().host(host).path("/", ctx.name(), 80))
    ///         }));
    ///     ctx.apply_all(children).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn apply_all(&self, children: Children) -> Result<Converged> {
        let reconciliation = self.reconciliation();
        let Children { set, desired, kinds } = children;
        let mut placed = Vec::with_capacity(desired.len());
        for Desired { kind, meta, config } in desired {
            let mut config = config?;
            let key = reconciliation.key_of(&kind, reconciliation.key.namespace(), &meta)?;
            if let Some(namespace) = key.namespace() {
                config["metadata"]["namespace"] = namespace.into();
            }
            placed.push(DesiredChild { kind, key, config });
        }
        let owner = (&reconciliation.owner(), reconciliation.adopt()?);
        reconciliation.cached.apply_all(owner, &set, &kinds, placed).await
    }

    /// Deletes an object in this namespace; that there is none is fine. Its own children are deleted in the background.
    ///
    /// In a cleanup the server is asked if the cache has no such object: a write whose answer was lost may have come
    /// through after all.
    pub async fn delete<T: Kind>(&self, name: &str) -> Result<()> {
        self.here().delete::<T>(name).await
    }

    /// An object in this namespace, if it is there. In a cleanup the server is asked if the cache has none.
    pub async fn get<T: Kind>(&self, name: &str) -> Result<Option<T>> {
        self.here().get(name).await
    }

    /// The objects of a kind in this namespace; for a cluster-scoped object, in all namespaces. The kind is watched from
    /// now on, so that the next list costs no request. In a cleanup the server is asked: a write whose answer was lost may
    /// have come through after all.
    pub async fn list<T: Kind>(&self) -> Result<Vec<T>> {
        self.here().list().await
    }

    /// The objects of a kind in this namespace that have these labels; otherwise like [`Context::list`].
    pub async fn list_by<T: Kind>(&self, selector: Selector) -> Result<Vec<T>> {
        self.here().list_by(selector).await
    }

    /// The objects of a kind in this namespace that an index finds under a value: see
    /// [`Operator::index`](crate::Operator::index).
    pub async fn list_by_index<T: Kind>(&self, index: &str, value: &str) -> Result<Vec<T>> {
        self.here().list_by_index(index, value).await
    }

    /// Another namespace, to read, patch and delete in: `ctx.within("kube-system").get::<ConfigMap>("kube-root-ca.crt")`. To
    /// apply an object there, give the object that namespace.
    pub fn within<'a>(&'a self, namespace: &'a str) -> Within<'a> {
        Within::new(self.reconciliation(), Some(namespace))
    }

    /// All namespaces that the operator watches, to list in.
    pub fn everywhere(&self) -> Within<'_> {
        Within::new(self.reconciliation(), None)
    }

    /// The objects of a kind that is known only at run time, in this namespace: read, applied, created, patched and deleted
    /// with the guarantees of the methods of the same names here.
    ///
    /// Declare the kind with [`Operator::owns_dynamic`](crate::Operator::owns_dynamic) if children of it are applied, so
    /// that the operator's rules have it.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::serde_json::json;
    /// # use konverge::Scope;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Site", namespaced)]
    /// # pub struct SiteSpec { host: String }
    /// async fn reconcile(ctx: Context<Site>) -> Result<Action> {
    ///     let certificates = ApiKind::new("cert-manager.io/v1", "Certificate", "certificates", Scope::Namespaced);
    ///     let spec = json!({"spec": {"dnsNames": [ctx.resource().spec.host], "secretName": ctx.name()}});
    ///     let certificate = DynamicObject::new(ctx.name(), certificates.resource()).data(spec);
    ///     ctx.dynamic(&certificates).apply(certificate).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub fn dynamic(&self, kind: &ApiKind) -> Objects<'_, DynamicObject> {
        self.here().dynamic(kind)
    }

    /// Replaces the status of the object. Fields that are not given are removed, except conditions. If the object has this
    /// status already, nothing is sent.
    ///
    /// The framework fills two fields. `observedGeneration`, if the status has that field and it is unset or as it was
    /// read, becomes the generation that was reconciled. `conditions: Vec<Condition>` may be left empty: conditions stay
    /// until they are set or removed, and those that are given get their times and generation.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
    /// # pub struct ShopSpec { image: String }
    /// #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    /// #[serde(default, rename_all = "camelCase")]
    /// pub struct ShopStatus {
    ///     pub phase: String,
    ///     pub observed_generation: Option<i64>,
    ///     pub conditions: Vec<Condition>,
    /// }
    ///
    /// async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    ///     ctx.set_status(ShopStatus { phase: "Open".into(), ..ShopStatus::default() }).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn set_status<S: Serialize>(&self, status: S) -> Result<()> {
        let fields = self.reconciliation().with_observed_generation(status)?;
        self.reconciliation().write_status(StatusUpdate::fields(fields, OtherFields::Go)).await
    }

    /// The conditions of the object as this reconcile began with it.
    pub fn conditions(&self) -> Conditions {
        Conditions::of(&self.reconciliation().object.value())
    }

    /// Sets one condition and leaves the others. Its transition time moves only when its status does.
    pub async fn set_condition(&self, condition: Condition) -> Result<()> {
        self.set_conditions([condition]).await
    }

    /// Sets several conditions by one write, and leaves the others.
    pub async fn set_conditions(&self, conditions: impl IntoIterator<Item = Condition>) -> Result<()> {
        self.reconciliation().write_status(StatusUpdate::conditions(conditions)).await
    }

    /// [`Context::set_status`] and [`Context::set_conditions`] by one write: nobody sees the one without the other.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::READY;
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
    /// # pub struct ShopSpec { image: String }
    /// # #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    /// # #[serde(default)]
    /// # pub struct ShopStatus { phase: String }
    /// async fn reconcile(ctx: Context<Shop>) -> Result<Action> {
    ///     let ready = Condition::yes(READY, "Open", "customers may come in");
    ///     ctx.set_status_with(ShopStatus { phase: "Open".into() }, [ready]).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn set_status_with<S: Serialize>(
        &self,
        status: S,
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Result<()> {
        let fields = self.reconciliation().with_observed_generation(status)?;
        let conditions = conditions.into_iter().collect();
        let update = StatusUpdate { fields, conditions, others: OtherFields::Go, ..StatusUpdate::default() };
        self.reconciliation().write_status(update).await
    }

    /// Removes a condition; that there is none is fine.
    pub async fn remove_condition(&self, type_: impl Into<String>) -> Result<()> {
        let update = StatusUpdate { removed: vec![type_.into()], ..StatusUpdate::default() };
        self.reconciliation().write_status(update).await
    }

    /// Records that something happened to the object, as a Kubernetes Event that `kubectl describe` shows.
    ///
    /// Events are written in the background: this returns at once, repetitions are counted instead of repeated, and while
    /// the server is away events may be lost.
    pub async fn event(&self, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        self.record(Severity::Info, reason, message)
    }

    /// Records that something needs attention, as an Event of the type `Warning`.
    pub async fn warning(&self, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        self.record(Severity::Warning, reason, message)
    }

    /// Records an event of any severity.
    pub fn record(&self, severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        let Reconciliation { cached, object, .. } = self.reconciliation();
        cached.record(object, severity, reason, message)
    }

    fn here(&self) -> Within<'_> {
        let reconciliation = self.reconciliation();
        Within::new(reconciliation, reconciliation.key.namespace())
    }
}

impl<R> Clone for Context<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R> fmt::Debug for Context<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reconciliation { cached, key, .. } = self.reconciliation();
        f.debug_struct("Context").field("kind", &cached.kind.name()).field("key", key).finish()
    }
}
