//! What a reconcile is given: the object, and everything one does with a cluster, in few words.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use konverge_core::ObjectKey;
use konverge_runtime::{
    Adopt, Cause, Condition, Conditions, Error, Object, OtherFields, Owner, OwnerCheck, READY, Record, Result,
    Severity, StatusUpdate, WriteError,
};
use kube::Client;
use serde::Serialize;
use serde_json::Value;

use crate::builders::Selector;
use crate::children::{Children, Converged, Wanted};
use crate::engine::Engine;
use crate::kind::{Kind, Scope};
use crate::within::{Absence, Within, no_namespace};

/// The object that is reconciled, and the cluster around it. Clones are the same.
///
/// Reads of kinds that are watched (everything applied, owned or watched) come from the cache and cost nothing; others
/// ask the server. Writes are sent only when they would change something.
pub struct Context<R: Kind>(Arc<Inner<R>>);

struct Inner<R> {
    resource: R,
    object: Arc<Object>,
    key: ObjectKey,
    causes: Arc<[Arc<Cause>]>,
    engine: Arc<Engine>,
    /// Whether the operator's code set or removed the condition `Ready` in this reconcile: then that is its own.
    has_said_ready: AtomicBool,
    /// Whether the object may still adopt others, asked of the server when it first would.
    check: OwnerCheck,
}

impl<R: Kind> Context<R> {
    /// The context of an object; one that does not read as its type is an error.
    pub(crate) fn new(engine: Arc<Engine>, object: Arc<Object>, causes: Arc<[Arc<Cause>]>) -> Result<Self> {
        let resource: R = object.decode()?;
        let (key, has_said_ready, check) = (object.key(), AtomicBool::new(false), OwnerCheck::default());
        Ok(Self(Arc::new(Inner { resource, key, object, causes, engine, has_said_ready, check })))
    }

    /// The object as this reconcile began with it.
    pub(crate) fn object(&self) -> &Arc<Object> {
        &self.0.object
    }

    /// The object with what was written to it in this reconcile.
    pub(crate) fn current(&self) -> Arc<Object> {
        let Inner { engine, object, key, .. } = &*self.0;
        let current = engine.controller.primary_of(key).get(key).filter(|current| current.uid() == object.uid());
        current.unwrap_or_else(|| object.clone())
    }

    /// The generation of the object as this reconcile began with it.
    pub(crate) fn generation(&self) -> Option<i64> {
        self.0.object.generation()
    }

    /// Whether the operator's code set or removed the condition `Ready` in this reconcile.
    pub(crate) fn has_said_ready(&self) -> bool {
        self.0.has_said_ready.load(Relaxed)
    }

    /// Sets a condition that the operator's code did not ask for.
    pub(crate) async fn report(&self, condition: Condition) -> Result<()> {
        self.send_status(StatusUpdate::conditions([condition])).await
    }

    /// Takes away a condition that the operator's code did not ask for.
    pub(crate) async fn withdraw(&self, type_: &str) -> Result<()> {
        self.send_status(StatusUpdate { removed: vec![type_.to_owned()], ..StatusUpdate::default() }).await
    }

    /// The object, as the cache has it.
    pub fn resource(&self) -> &R {
        &self.0.resource
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.key.name()
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.key.namespace().unwrap_or_default()
    }

    /// The client, for everything else: subresources, kinds that have no type, objects that belong to nobody. What is
    /// written with it is seen by reads here when the watch brings it, not before.
    pub fn client(&self) -> Client {
        self.0.engine.client.clone()
    }

    /// What the operator was given by [`Operator::state`](crate::Operator::state). If it was not, that is an error which
    /// names the type, and is shown on the object; it is not a panic.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.0.engine.states.get(&self.0.engine.owner.kind)
    }

    /// Why this reconcile runs: what happened since the last one, oldest first.
    pub fn causes(&self) -> &[Arc<Cause>] {
        &self.0.causes
    }

    /// The newest reconciles of this object before this one, oldest first: why each ran, how long it took, how it ended.
    pub fn past_runs(&self) -> Vec<Record> {
        self.0.engine.controller.history().of(&self.0.key)
    }

    /// Makes an object look like this: creates it, changes it, or does nothing if it does already. It belongs to the
    /// reconciled object, goes when that goes, and is put back when somebody else changes it.
    ///
    /// An object that exists and belongs to nobody is taken over, unless the reconciled object is being deleted. That costs
    /// one read of the reconciled object for each reconcile that takes something over.
    ///
    /// What lies in another namespace, or in none while the reconciled object is in one, is put back as well but cannot
    /// go by itself: Kubernetes knows no such owners. Delete it in `on_delete`, with [`Context::within`].
    pub async fn apply<T: Kind>(&self, desired: T) -> Result<T> {
        let ObjectMeta { name, namespace, .. } = desired.meta();
        let key = self.place(&T::kind(&()), T::scope(), name.as_deref(), namespace.as_deref())?;
        self.0.engine.apply((&self.owner(), self.adopt()?), &key, &desired).await
    }

    /// An object that is made once and then left alone: a generated password, a certificate, data that users fill in.
    /// Answers with the object as it is, whoever made it; what is given here counts only if there is none.
    ///
    /// What is made here belongs to the reconciled object like what is applied, so it goes with it, and is made anew if
    /// somebody deletes it. What was there before, as a Secret that a user brings along, stays its maker's: it does not go
    /// with the object, and its change or deletion wakes nobody, unless
    /// [`Operator::refers_to`](crate::Operator::refers_to) names it.
    ///
    /// Nothing in it is ever changed or put back. Of two that make it at the same time one is first; the other's
    /// reconcile is tried again, and gets what the first has made. Like [`Context::apply`] it watches the kind: the rules
    /// for it are those of [`Operator::owns`](crate::Operator::owns).
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
    pub async fn create_once<T: Kind>(&self, wanted: T) -> Result<T> {
        let ObjectMeta { name, namespace, .. } = wanted.meta();
        let key = self.place(&T::kind(&()), T::scope(), name.as_deref(), namespace.as_deref())?;
        self.0.engine.create_once(&self.owner(), &key, &wanted).await
    }

    /// Makes all children look like this, and deletes those of before that are no longer among them.
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
    ///         // Without a host there is no Ingress, and one from before goes.
    ///         .maybe(shop.host.as_ref().map(|host| {
    ///             Ingress::new(ctx.name()).rule(IngressRule::new().host(host).path("/", ctx.name(), 80))
    ///         }));
    ///     ctx.apply_all(children).await?;
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub async fn apply_all(&self, children: Children) -> Result<Converged> {
        let Children { set, wanted, kinds } = children;
        let mut placed = Vec::with_capacity(wanted.len());
        for Wanted { kind, config } in wanted {
            let mut config = config?;
            let text = |field: &str| config["metadata"][field].as_str();
            let key = self.place(&kind.api.kind, kind.scope, text("name"), text("namespace"))?;
            if let Some(namespace) = key.namespace() {
                config["metadata"]["namespace"] = namespace.into();
            }
            placed.push((kind, key, config));
        }
        self.0.engine.apply_all((&self.owner(), self.adopt()?), &set, &kinds, placed).await
    }

    /// Deletes an object in this namespace; that there is none is fine. In a cleanup the server is asked if the cache has
    /// none: a write whose answer was lost may have come through after all.
    pub async fn delete<T: Kind>(&self, name: &str) -> Result<()> {
        self.here().delete::<T>(name).await
    }

    /// An object in this namespace, if it is there. In a cleanup the server is asked if the cache has none.
    pub async fn get<T: Kind>(&self, name: &str) -> Result<Option<T>> {
        self.here().get(name).await
    }

    /// The objects of a kind in this namespace; for a cluster-scoped object, in all namespaces. The kind is watched from
    /// now on. In a cleanup the server is asked: a write whose answer was lost may have come through after all.
    pub async fn list<T: Kind>(&self) -> Result<Vec<T>> {
        self.here().list().await
    }

    /// Those that [`Context::list`] lists and that have these labels.
    pub async fn list_by<T: Kind>(&self, selector: Selector) -> Result<Vec<T>> {
        self.here().list_by(selector).await
    }

    /// The objects of a kind in this namespace that an index finds under a value: see [`Operator::index`](crate::Operator::index).
    pub async fn list_by_index<T: Kind>(&self, index: &str, value: &str) -> Result<Vec<T>> {
        self.here().list_by_index(index, value).await
    }

    /// Another namespace, to read and delete in: `ctx.within("kube-system").get::<ConfigMap>("kube-root-ca.crt")`. To apply
    /// something there, give it that namespace.
    pub fn within<'a>(&'a self, namespace: &'a str) -> Within<'a> {
        Within::new(&self.0.engine, Some(namespace), self.absence())
    }

    /// All namespaces that the operator looks at, to list in.
    pub fn everywhere(&self) -> Within<'_> {
        Within::new(&self.0.engine, None, self.absence())
    }

    /// Says what is true of the object now. What is not mentioned goes, but for conditions; what is so already is not
    /// written.
    ///
    /// Two fields of a status are filled by the framework. `observedGeneration`, if the status has it and it is not set or
    /// is as it was read, is the generation that was reconciled. `conditions: Vec<Condition>` may be left empty: conditions stay until they are
    /// set or removed, and those that are given get their time and generation.
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
        let fields = self.fields_of(status)?;
        self.write_status(StatusUpdate::fields(fields, OtherFields::Go)).await
    }

    /// The conditions of the object, as the cache has them.
    pub fn conditions(&self) -> Conditions {
        Conditions::of(&self.0.object.value())
    }

    /// Sets one condition and leaves the others. Its transition time moves only when its status does.
    pub async fn set_condition(&self, condition: Condition) -> Result<()> {
        self.set_conditions([condition]).await
    }

    /// Sets several conditions by one write, and leaves the others.
    pub async fn set_conditions(&self, conditions: impl IntoIterator<Item = Condition>) -> Result<()> {
        self.write_status(StatusUpdate::conditions(conditions)).await
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
        let fields = self.fields_of(status)?;
        let conditions = conditions.into_iter().collect();
        self.write_status(StatusUpdate { fields, conditions, others: OtherFields::Go, ..StatusUpdate::default() }).await
    }

    /// Takes a condition away; that there is none is fine.
    pub async fn remove_condition(&self, type_: impl Into<String>) -> Result<()> {
        self.write_status(StatusUpdate { removed: vec![type_.into()], ..StatusUpdate::default() }).await
    }

    /// Records that something happened, for `kubectl describe`. Repetitions are counted, not repeated.
    pub async fn event(&self, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        self.record(Severity::Info, reason, message)
    }

    /// Records that something needs attention.
    pub async fn warning(&self, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        self.record(Severity::Warning, reason, message)
    }

    /// Records an event of any severity.
    pub fn record(&self, severity: Severity, reason: impl Into<String>, message: impl Into<String>) -> Result<()> {
        self.0.engine.record(&self.0.object, severity, reason, message)
    }

    /// A status as JSON, with the generation that it is about, if it has a place for that.
    fn fields_of(&self, status: impl Serialize) -> Result<Value> {
        const GENERATION: &str = "observedGeneration";
        let mut fields = serde_json::to_value(status)?;
        if let (Some(generation), Some(all)) = (self.generation(), fields.as_object_mut()) {
            // What the object said when this reconcile read it came along with the rest of its status.
            let read = self.0.object.pointer("/status/observedGeneration").and_then(|text| text.parse::<i64>().ok());
            let is_unset = |given: &Value| given.is_null() || given == 0 || read.is_some() && given.as_i64() == read;
            let is_unset = all.get(GENERATION).is_none_or(is_unset);
            if is_unset && (self.0.engine.observes_generation || all.contains_key(GENERATION)) {
                all.insert(GENERATION.to_owned(), generation.into());
            }
        }
        Ok(fields)
    }

    async fn write_status(&self, update: StatusUpdate) -> Result<()> {
        if says_ready(&update) {
            self.0.has_said_ready.store(true, Relaxed);
        }
        self.send_status(update).await
    }

    async fn send_status(&self, update: StatusUpdate) -> Result<()> {
        let Inner { engine, object, .. } = &*self.0;
        // What was written earlier in this reconcile counts as well; but what is said is about what was reconciled.
        let current = self.current();
        let update = StatusUpdate { observed: object.generation(), ..update };
        if let Some(written) = engine.writer.set_status(&engine.owner, &current, &update, Timestamp::now()).await? {
            engine.wrote(&engine.owner, &written)?;
        }
        Ok(())
    }

    /// The reconciled object as an owner.
    fn owner(&self) -> Owner {
        let Inner { engine, object, key, .. } = &*self.0;
        let (api_version, kind) = (engine.owner.api_version.clone(), engine.owner.kind.clone());
        Owner { api_version, kind, key: key.clone(), uid: object.uid().to_owned() }
    }

    /// Whether what exists already may be taken over. Nothing at all may be applied by a reconcile during which the object
    /// began to go: only its cleanup knows what is still to be made.
    fn adopt(&self) -> Result<Adopt<'_>> {
        let Inner { engine, object, key, check, .. } = &*self.0;
        if object.is_terminating() {
            return Ok(Adopt::Never);
        }
        if self.current().is_terminating() {
            let kind = &engine.owner.kind;
            let message =
                format!("{kind} {key} is being deleted since this reconcile began, so nothing is applied for it");
            return Err(WriteError::Conflict { message, fields: Vec::new() }.into());
        }
        Ok(Adopt::IfAlive { api: &engine.owner, check })
    }

    /// Where an object belongs that says so, or not: then it goes into this namespace.
    fn place(&self, kind: &str, scope: Scope, name: Option<&str>, namespace: Option<&str>) -> Result<ObjectKey> {
        let is_said = |text: &&str| !text.is_empty();
        let Some(name) = name.filter(is_said) else {
            return Err(Error::permanent(format!("a {kind} has to have a name; give it one")));
        };
        let namespace = match (scope, namespace.filter(is_said).or(self.0.key.namespace())) {
            (Scope::Cluster, _) => None,
            (Scope::Namespaced, Some(namespace)) => Some(namespace),
            (Scope::Namespaced, None) => return Err(no_namespace(kind, name)),
        };
        Ok(ObjectKey::new(namespace, name))
    }

    fn here(&self) -> Within<'_> {
        Within::new(&self.0.engine, self.0.key.namespace(), self.absence())
    }

    /// A cleanup is done once, so it does not take a cache's word for it that something is not there.
    fn absence(&self) -> Absence {
        if self.0.object.is_terminating() { Absence::Doubted } else { Absence::Believed }
    }
}

/// Whether an update is about the condition `Ready`.
fn says_ready(update: &StatusUpdate) -> bool {
    let given = update.fields["conditions"].as_array().into_iter().flatten();
    update.conditions.iter().any(|condition| condition.type_ == READY)
        || update.removed.iter().any(|type_| type_ == READY)
        || given.into_iter().any(|condition| condition["type"] == READY)
}

impl<R: Kind> Clone for Context<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Kind> fmt::Debug for Context<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("kind", &self.0.engine.owner.kind).field("key", &self.0.key).finish()
    }
}
