//! A cluster in this process, for tests. In: objects, operators, and what a test waits for. Out: objects as the server has
//! them, or an error that shows the last state of an object and the newest calls. What a test does itself through these
//! methods is not recorded among the calls, and scripted failures do not happen to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use http::Method;
use k8s_openapi::api::events::v1::Event;
use konverge::testing::{InProcess, key_of};
use konverge::{Action, Conditions, Controller, Error, Health, Kind, ObjectKey, Operator, Result, Rules};
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use kube::{Client, CustomResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::call::{Calls, Verb};
use crate::machine::{ActingAs, Machine, Refused, ask, unknown_kind, with_install_hint};
use crate::permissions::Permissions;
use crate::react::When;
use crate::seed::{Seed, typed};

/// How long a wait takes before it fails: far longer than anything takes, also on a busy machine. With tokio's time paused
/// it is over as soon as nothing else is left to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is asked whether an operator is ready: checks are asked, they do not tell.
const READY_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// How many of the newest calls an error shows.
const SHOWN: usize = 40;

/// An API server in this process, without a socket, a port or files. It starts in milliseconds, and no two tests share one.
///
/// Use it for integration tests: [`run`](Cluster::run) runs a whole operator against it, the test changes objects and
/// [waits](Cluster::wait_until) for what the operator does. For a unit test of one reconcile, [`Fake`](crate::Fake) is
/// shorter.
///
/// Keys are texts: `namespace/name`, or `name` alone for an object in the namespace `default` or without a namespace.
///
/// Methods fail with an error that says what to do: the kind is not installed, the object is not there, the server refuses
/// the object. A wait that is over after 30 seconds shows the object as it was last, and the newest calls of the operator.
///
/// ```
/// use konverge::prelude::*;
/// use konverge_testkit::Cluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let cluster = Cluster::start().await?;
/// cluster.create(ConfigMap::new("colours").data("sky", "blue")).await?;
/// let colours = cluster.get::<ConfigMap>("colours").await?;
/// assert_eq!(colours.inner().data.as_ref().unwrap()["sky"], "blue");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Cluster {
    pub(crate) machine: Machine,
}

impl Cluster {
    /// Starts a cluster for this test. It has the kinds of Kubernetes and the namespaces that every cluster has.
    pub async fn start() -> Result<Self> {
        let cluster = Self::over(Machine::default());
        cluster.machine.server().await?;
        Ok(cluster)
    }

    pub(crate) fn over(machine: Machine) -> Self {
        Self { machine }
    }

    /// A client, for the operator and for everything that these methods cannot do. Its calls are recorded
    /// ([`Cluster::calls`]), and scripted failures ([`Cluster::when`]) happen to them.
    pub fn client(&self) -> Client {
        Client::new(self.machine.clone(), "default")
    }

    /// Installs the CRD of a custom kind, and returns when the server serves the kind.
    pub async fn install<T: Kind + CustomResourceExt>(&self) -> Result<()> {
        let server = self.machine.server().await?;
        self.machine.place(server, json!(T::crd())).await?;
        self.list::<T>().await.map(drop)
    }

    /// Creates an object as it is given, with its status: a custom resource, a builder, a type of `k8s-openapi`, or JSON. The
    /// kind has to be installed and the namespace has to exist. An object with a `deletionTimestamp` is being deleted when
    /// this returns; it needs a finalizer.
    ///
    /// ```
    /// # use konverge::prelude::*;
    /// # use konverge::serde_json::json;
    /// # use konverge_testkit::Cluster;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let cluster = Cluster::start().await?;
    /// cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).await?;
    /// cluster.create(ConfigMap::new("colours").namespace("shop")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create<Origin, T>(&self, object: T) -> Result<T>
    where
        T: Seed<Origin> + DeserializeOwned,
    {
        let server = self.machine.server().await?;
        let object = object.seed().object.expect("an object was given");
        Ok(serde_json::from_value(self.machine.place(server, object).await?)?)
    }

    /// Reads an object. It is an error if there is none; [`Cluster::find`] tells.
    pub async fn get<T: Kind>(&self, key: &str) -> Result<T> {
        match self.find(key).await? {
            Some(object) => Ok(object),
            None => Err(absent::<T>(key)),
        }
    }

    /// Reads an object, if there is one.
    pub async fn find<T: Kind>(&self, key: &str) -> Result<Option<T>> {
        match self.ask::<T>(Method::GET, &path_of::<T>(key), None).await? {
            Some(object) => Ok(Some(serde_json::from_value(object)?)),
            None => Ok(None),
        }
    }

    /// Reads the conditions in the status of an object. It is an error if there is no such object.
    pub async fn conditions<T: Kind>(&self, key: &str) -> Result<Conditions> {
        match self.ask::<T>(Method::GET, &path_of::<T>(key), None).await? {
            Some(object) => Ok(Conditions::of(&object)),
            None => Err(absent::<T>(key)),
        }
    }

    /// All objects of a kind, in all namespaces.
    pub async fn list<T: Kind>(&self) -> Result<Vec<T>> {
        let api = T::resource();
        let path = format!("{}/{}", root::<T>(), api.plural);
        let Some(list) = self.ask::<T>(Method::GET, &path, None).await? else {
            return Err(unknown_kind(&api.kind, &api.api_version));
        };
        let mut items = list["items"].clone();
        for item in items.as_array_mut().into_iter().flatten() {
            item["apiVersion"] = api.api_version.as_str().into();
            item["kind"] = api.kind.as_str().into();
        }
        Ok(serde_json::from_value(items)?)
    }

    /// Changes an object and its status, as another client would: `cluster.edit("shop", |app: &mut WebApp| …)`. If the
    /// object changes meanwhile, it is read again and `change` is called again.
    pub async fn edit<T: Kind>(&self, key: &str, change: impl Fn(&mut T)) -> Result<T> {
        loop {
            let mut object: T = self.get(key).await?;
            change(&mut object);
            match self.replace::<T>(key, typed(&object)).await {
                Err(error) if error.find::<Refused>().is_some_and(|refused| refused.code == 409) => {}
                done => return Ok(serde_json::from_value(done?)?),
            }
        }
    }

    /// Deletes an object. It is an error if there is none. An object with finalizers stays until they are removed:
    /// [`Cluster::wait_gone`] waits for that.
    pub async fn delete<T: Kind>(&self, key: &str) -> Result<()> {
        match self.ask::<T>(Method::DELETE, &path_of::<T>(key), None).await? {
            Some(_) => Ok(()),
            None => Err(absent::<T>(key)),
        }
    }

    /// Waits until an object exists and `done` is true of it, and returns the object. Nothing is polled: a watch tells of each
    /// change. After 30 seconds it is an error, which shows the object as it was last, and the newest calls.
    pub async fn wait_until<T: Kind>(&self, key: &str, done: impl Fn(&T) -> bool) -> Result<T> {
        let decide = |object: Option<&Value>| {
            let Some(object) = object else { return Ok(None) };
            let object: T = serde_json::from_value(object.clone())?;
            Ok(done(&object).then_some(object))
        };
        self.wait::<T, T>(key, "did not become what was waited for", decide).await
    }

    /// Waits until a condition in the status of an object is true, as `kubectl wait --for=condition=Ready` does:
    /// `cluster.wait_condition::<WebApp>("shop", READY)`. After 30 seconds it is an error, as for [`Cluster::wait_until`].
    pub async fn wait_condition<T: Kind>(&self, key: &str, condition: &str) -> Result<()> {
        let decide = |object: Option<&Value>| {
            Ok(object.is_some_and(|object| Conditions::of(object).is_true(condition)).then_some(()))
        };
        self.wait::<T, ()>(key, &format!("did not become {condition}"), decide).await
    }

    /// Waits until an object is gone.
    pub async fn wait_gone<T: Kind>(&self, key: &str) -> Result<()> {
        let decide = |object: Option<&Value>| Ok(object.is_none().then_some(()));
        self.wait::<T, ()>(key, "is not gone", decide).await
    }

    /// The events of all objects, oldest first: `Warning Invalid WebApp default/web: spec.replicas: …`.
    pub async fn events(&self) -> Result<Vec<String>> {
        let mut events: Vec<Event> = self.list().await?;
        events.sort_by_key(|event| event.event_time.clone().map(|time| time.0));
        let line = |event: Event| {
            let about = event.regarding.unwrap_or_default();
            let (kind, name) = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
            let key = ObjectKey::new(about.namespace.as_deref(), &name);
            let text = |text: Option<String>| text.unwrap_or_default();
            format!("{} {} {kind} {key}: {}", text(event.type_), text(event.reason), text(event.note))
        };
        Ok(events.into_iter().map(line).collect())
    }

    /// Runs a whole operator beside the test, with its caches, queue and workers. Flags and environment are not read, and no
    /// port is opened. The operator ends when the returned handle is dropped.
    ///
    /// The API server calls the operator's webhooks, for admission and for conversion, as soon as the operator has told it of them:
    /// [`Running::ready`] waits for that. As on a cluster, writes that a webhook is about are refused after the operator has ended.
    /// Operators with webhooks need names of their own if several run in one cluster: `.configure(|settings| settings.name = …)`.
    ///
    /// The operator may do what it declares ([`Operator::rules`]) and nothing else, as on a cluster with the roles that it prints. A
    /// request beyond that is answered with 403, and [`Cluster::permissions`] tells what is lacking and what was never used.
    pub fn run<R: DeserializeOwned + Send + Sync + 'static>(&self, operator: Operator<R>) -> Running {
        let besides = operator.webhook_rules().and(operator.leader_election_rules());
        let user = self.machine.accounts().open(operator.rules(), besides, operator.watched_namespaces());
        let acting = ActingAs { machine: self.machine.clone(), user: user.into() };
        self.run_with(operator, Client::new(acting, "default"))
    }

    /// Runs a whole operator beside the test like [`Cluster::run`], and lets it do everything: for an operator that is not
    /// finished, or that finds out at run time what it needs.
    pub fn run_unrestricted<R: DeserializeOwned + Send + Sync + 'static>(&self, operator: Operator<R>) -> Running {
        self.run_with(operator, self.client())
    }

    fn run_with<R: DeserializeOwned + Send + Sync + 'static>(&self, operator: Operator<R>, client: Client) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let health = operator.health_checks();
        let (machine, webhooks) = (self.machine.clone(), self.machine.clone());
        let serve = Arc::new(move |host: &str, handler| webhooks.serve_webhooks(host, handler));
        let operator = operator.in_test(client).serve_webhooks_locally(serve);
        let task = tokio::spawn(async move {
            // Its webhooks are served by the server that calls them.
            machine.server().await?;
            operator.run_until(async move { drop(stopped.await) }).await
        });
        Running { stop: Some(stop), task, health }
    }

    /// Runs exactly one reconcile of an object, as a running operator would: it adds the finalizer, calls the cleanup of an object
    /// that is being deleted, and shows a lasting failure in status and events. Events are written when it returns. Nothing
    /// is retried; [`retry`](crate::retry) says what would become of an error. A kind whose CRD is not installed, be it of the
    /// object or of a child, is an error at once, which says how a test installs it; an operator would wait.
    pub async fn reconcile<R, P>(&self, controller: &Controller<R, P>, key: &str) -> Result<Action>
    where
        R: DeserializeOwned + Send + Sync + 'static,
        P: InProcess,
    {
        let reconciled = controller.test_reconciler(self.client()).reconcile(key).await;
        reconciled.map_err(with_install_hint)
    }

    /// Scripts what happens to calls about a kind: `cluster.when::<Deployment>(Verb::Apply).once().fail(503)`. See [`When`].
    pub fn when<T: Kind>(&self, verbs: impl IntoIterator<Item = Verb>) -> When<'_> {
        self.whenever(verbs).of::<T>()
    }

    /// Scripts what happens to calls about any kind: `cluster.whenever(Verb::WRITES).times(3).unreachable()`. See [`When`].
    pub fn whenever(&self, verbs: impl IntoIterator<Item = Verb>) -> When<'_> {
        When::new(&self.machine, verbs)
    }

    /// The calls that came through [`Cluster::client`], in their order.
    pub fn calls(&self) -> Calls {
        self.machine.calls()
    }

    /// The calls that were to change something, without those that record Events ([`Cluster::events`] has them):
    /// `assert_eq!(cluster.writes().lines(), ["apply ConfigMap default/hello"])`.
    pub fn writes(&self) -> Calls {
        self.calls().only(|call| call.writes() && call.kind != "Event")
    }

    /// The RBAC rules that all calls through [`Cluster::client`] needed, those included that were forgotten since.
    /// `cluster.used().without(&operator.rules())` is empty if the operator declares all of them.
    pub fn used(&self) -> Rules {
        self.machine.used()
    }

    /// What the operators that this cluster [runs](Cluster::run) may do, beside what they did: the rules that they used, those
    /// that they declare in vain, and those that they lack.
    pub fn permissions(&self) -> Permissions {
        self.machine.accounts().permissions()
    }

    /// Forgets the calls so far, so that [`Cluster::calls`] shows only what comes next.
    pub fn forget_calls(&self) {
        self.machine.forget_calls();
    }

    /// A request of the test itself; nothing if what it names is not there.
    async fn ask<T: Kind>(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Option<Value>> {
        let server = self.machine.server().await?;
        match ask(server, method, path, body).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Refused { code: 404, .. }) => {
                let api = T::resource();
                // A kind that is not served says the same about every object.
                let collection = format!("{}/{}", root::<T>(), api.plural);
                match ask(server, Method::GET, &collection, None).await {
                    Ok(_) => Ok(None),
                    Err(_) => Err(unknown_kind(&api.kind, &api.api_version)),
                }
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// Replaces an object, and its status if that is written apart.
    async fn replace<T: Kind>(&self, key: &str, object: Value) -> Result<Value> {
        let server = self.machine.server().await?;
        let path = path_of::<T>(key);
        let mut written = ask(server, Method::PUT, &path, Some(&object)).await?;
        if !object["status"].is_null() && written["status"] != object["status"] {
            written["status"] = object["status"].clone();
            written = ask(server, Method::PUT, &format!("{path}/status"), Some(&written)).await?;
        }
        Ok(written)
    }

    async fn wait<T: Kind, Out>(
        &self,
        key: &str,
        failed: &str,
        decide: impl Fn(Option<&Value>) -> Result<Option<Out>>,
    ) -> Result<Out> {
        // Tells at once about a kind that is not installed, which a watch would wait for.
        self.ask::<T>(Method::GET, &path_of::<T>(key), None).await?;
        let mut last = None;
        let watched = self.watch::<T, Out>(key, &mut last, &decide);
        if let Ok(done) = tokio::time::timeout(PATIENCE, watched).await {
            return done;
        }
        let (kind, key) = (T::resource().kind, key_of::<T>(key));
        let object = match &mut last {
            None => "it was not there".to_owned(),
            Some(object) => {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                format!("it was last:\n{object:#}")
            }
        };
        let calls = self.calls();
        let shown = calls.len().saturating_sub(SHOWN);
        let newest = Calls(calls[shown..].to_vec());
        let permissions = self.permissions();
        let denied = match permissions.lacking.is_empty() {
            true => String::new(),
            false => format!("\nthe operator was denied what it does not declare:\n{permissions}"),
        };
        Err(Error::permanent(format!(
            "{kind} {key} {failed} within {PATIENCE:?}; {object}{denied}\nthe newest of {} calls:\n{newest}",
            calls.len()
        )))
    }

    /// Looks at an object whenever it changes, until `decide` comes to something.
    async fn watch<T: Kind, Out>(
        &self,
        key: &str,
        last: &mut Option<Value>,
        decide: &impl Fn(Option<&Value>) -> Result<Option<Out>>,
    ) -> Result<Out> {
        let key = key_of::<T>(key);
        let client = Client::new(self.machine.server().await?.clone(), "default");
        let api: Api<DynamicObject> = match key.namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace, &T::resource()),
            None => Api::all_with(client, &T::resource()),
        };
        let field = format!("metadata.name={}", key.name());
        loop {
            let list = api.list(&ListParams::default().fields(&field)).await?;
            *last = list.items.into_iter().next().map(|object| json!(object));
            if let Some(done) = decide(last.as_ref())? {
                return Ok(done);
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            let changes = api.watch(&WatchParams::default().fields(&field), &version).await?;
            let changes = changes.into_stream().take_while(|change| std::future::ready(change.is_ok()));
            pin_mut!(changes);
            while let Some(Ok(change)) = changes.next().await {
                *last = match change {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(json!(object)),
                    WatchEvent::Deleted(_) => None,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                };
                if let Some(done) = decide(last.as_ref())? {
                    return Ok(done);
                }
            }
        }
    }
}

/// An operator that runs beside a test. Dropping it ends the operator in the middle of whatever it does, like a crash;
/// [`Running::stop`] shuts it down in order.
#[must_use = "the operator ends when this is dropped"]
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<()>>,
    health: Health,
}

impl Running {
    /// Waits until the operator is ready: its caches are filled, and the API server calls its webhooks. It is an error if the
    /// operator ends instead, or if it is not ready after 30 seconds; the error says why.
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge_testkit::Cluster;
    ///
    /// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
    /// # pub struct GreetingSpec { text: String }
    /// # #[tokio::main(flavor = "multi_thread", worker_threads = 2)]
    /// # async fn main() -> Result<()> {
    /// async fn validate(request: Admission<Greeting>) -> Result<()> {
    ///     let mut errors = FieldErrors::new();
    ///     if request.object().spec.text.is_empty() {
    ///         errors.required("spec.text", "greetings say something");
    ///     }
    ///     Ok(errors.into_result()?)
    /// }
    /// let cluster = Cluster::start().await?;
    /// cluster.install::<Greeting>().await?;
    /// let operator = Operator::<Greeting>::new().validate(validate);
    /// let running = cluster.run(operator.reconcile(async |_: Context<Greeting>| Ok(Action::await_change())));
    /// running.ready().await?;
    /// let refused = cluster.create(Greeting::new("silent", GreetingSpec { text: String::new() })).await.unwrap_err();
    /// assert!(refused.to_string().contains("spec.text: Required value: greetings say something"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<()> {
        let began = tokio::time::Instant::now();
        while !self.health.is_ready() {
            if self.task.is_finished() {
                return Err(Error::permanent("the operator has ended; stop() says why"));
            }
            if began.elapsed() > PATIENCE {
                let why: Vec<String> =
                    self.health.failing_readiness().into_iter().map(|(check, why)| format!("{check}: {why}")).collect();
                return Err(Error::permanent(format!(
                    "the operator is not ready within {PATIENCE:?}: {}",
                    why.join("; ")
                )));
            }
            tokio::time::sleep(READY_AGAIN_AFTER).await;
        }
        Ok(())
    }

    /// Asks the operator to stop, and waits until it has ended. The error is the one that the operator ended with, also if it
    /// ended by itself before.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        (&mut self.task).await?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The error for an object that should be there.
fn absent<T: Kind>(key: &str) -> Error {
    Error::permanent(format!("there is no {} {}", T::resource().kind, key_of::<T>(key)))
}

/// Where the kinds of a group's version are.
fn root<T: Kind>() -> String {
    let api = T::resource();
    if api.group.is_empty() { format!("/api/{}", api.version) } else { format!("/apis/{}/{}", api.group, api.version) }
}

/// Where an object is.
fn path_of<T: Kind>(key: &str) -> String {
    let key = key_of::<T>(key);
    let plural = T::resource().plural;
    match key.namespace() {
        Some(namespace) => format!("{}/namespaces/{namespace}/{plural}/{}", root::<T>(), key.name()),
        None => format!("{}/{plural}/{}", root::<T>(), key.name()),
    }
}
