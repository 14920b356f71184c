//! A cluster in this process, for tests. In: objects, operators, and what a test waits for. Out: objects as they are,
//! or an error that shows how they were last and what was asked of the server. What a test does itself through these
//! methods is not among the calls, and nothing the test has scripted happens to it.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use http::Method;
use k8s_openapi::api::events::v1::Event;
use konverge::testing::key_of;
use konverge::{Action, Conditions, Error, Kind, ObjectKey, Operator, Result, Rules};
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use kube::{Client, CustomResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::call::{Calls, Verb};
use crate::machine::{Machine, Refused, ask, unknown_kind};
use crate::react::When;
use crate::seed::{Seed, typed};

/// How long is waited for something to happen: far beyond what it takes, also on a busy machine. With tokio's time
/// paused it is over as soon as nothing else is left to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many of the newest calls an error shows.
const SHOWN: usize = 40;

/// An API server in this process, with nothing in front of it: no socket, no port, no files.
///
/// Keys are texts: `namespace/name`, or `name` alone for the namespace `default` and for what is in no namespace.
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
    /// Starts a cluster of one's own for this test.
    pub async fn start() -> Result<Self> {
        let cluster = Self::over(Machine::default());
        cluster.machine.server().await?;
        Ok(cluster)
    }

    pub(crate) fn over(machine: Machine) -> Self {
        Self { machine }
    }

    /// A client, for the operator and for whatever these methods have no word for. Its calls are recorded.
    pub fn client(&self) -> Client {
        Client::new(self.machine.clone(), "default")
    }

    /// Teaches the cluster a custom kind, and waits until it is served.
    pub async fn install<T: Kind + CustomResourceExt>(&self) -> Result<()> {
        let server = self.machine.server().await?;
        self.machine.place(server, json!(T::crd())).await?;
        self.list::<T>().await.map(drop)
    }

    /// Creates an object as it stands, with its status: what [`Fake::with`](crate::Fake::with) takes, JSON too. Its kind
    /// and its namespace have to be there.
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

    /// An object that has to be there.
    pub async fn get<T: Kind>(&self, key: &str) -> Result<T> {
        match self.find(key).await? {
            Some(object) => Ok(object),
            None => Err(absent::<T>(key)),
        }
    }

    /// An object, if it is there.
    pub async fn find<T: Kind>(&self, key: &str) -> Result<Option<T>> {
        match self.ask::<T>(Method::GET, &path_of::<T>(key), None).await? {
            Some(object) => Ok(Some(serde_json::from_value(object)?)),
            None => Ok(None),
        }
    }

    /// The conditions of an object that has to be there.
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

    /// Changes an object, its status too, as somebody else would: `cluster.edit("shop", |app: &mut WebApp| …)`. Tried
    /// again when it has changed meanwhile.
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

    /// Deletes an object, which has to be there. Finalizers keep it for a while, as ever; see [`Cluster::wait_gone`].
    pub async fn delete<T: Kind>(&self, key: &str) -> Result<()> {
        match self.ask::<T>(Method::DELETE, &path_of::<T>(key), None).await? {
            Some(_) => Ok(()),
            None => Err(absent::<T>(key)),
        }
    }

    /// Waits until an object is there and `done` is true of it. An error shows the object as it was last, and the
    /// newest calls.
    pub async fn wait_until<T: Kind>(&self, key: &str, done: impl Fn(&T) -> bool) -> Result<T> {
        let decide = |object: Option<&Value>| {
            let Some(object) = object else { return Ok(None) };
            let object: T = serde_json::from_value(object.clone())?;
            Ok(done(&object).then_some(object))
        };
        self.wait::<T, T>(key, "did not become what was waited for", decide).await
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

    /// Runs an operator beside the test: all of it, with caches, queue and workers. Flags and environment are not
    /// read, and nothing listens. It ends with what this returns.
    pub fn run<R: Kind>(&self, operator: Operator<R>) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let operator = operator.in_test(self.client());
        let task = tokio::spawn(operator.run_until(async move { drop(stopped.await) }));
        Running { stop: Some(stop), task }
    }

    /// Runs exactly one reconcile of an object, as the operator would: the finalizer is set, a terminating object is
    /// cleaned up, an error that no retry mends is shown in status and events. Events are written when it returns.
    /// Nothing is retried; [`retry`](crate::retry) says what would become of an error.
    pub async fn reconcile<R: Kind>(&self, operator: &Operator<R>, key: &str) -> Result<Action> {
        operator.trial(self.client()).reconcile(key).await
    }

    /// Lets something happen to the calls for a kind: `when::<Deployment>(Verb::Apply).once().fail(503)`.
    pub fn when<T: Kind>(&self, verbs: impl IntoIterator<Item = Verb>) -> When<'_> {
        self.whenever(verbs).of::<T>()
    }

    /// Lets something happen to the calls for every kind: `whenever(Verb::WRITES).times(3).unreachable()`.
    pub fn whenever(&self, verbs: impl IntoIterator<Item = Verb>) -> When<'_> {
        When::new(&self.machine, verbs)
    }

    /// What was asked of the server through [`Cluster::client`], in its order.
    pub fn calls(&self) -> Calls {
        self.machine.calls()
    }

    /// Those calls that were to change something. Events are not among them: [`Cluster::events`] has them.
    pub fn writes(&self) -> Calls {
        self.calls().only(|call| call.writes() && call.kind != "Event")
    }

    /// What the operators had to be allowed for everything they did through [`Cluster::client`], also what was forgotten
    /// since. `used().without(&operator.rules())` is empty if the operator declares all of it.
    pub fn used(&self) -> Rules {
        self.machine.used()
    }

    /// Forgets the calls so far, to look only at what comes now.
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
        Err(Error::permanent(format!(
            "{kind} {key} {failed} within {PATIENCE:?}; {object}\nthe newest of {} calls:\n{newest}",
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

/// An operator at work. Dropping it cuts it off, like a crash; [`Running::stop`] lets it finish.
#[must_use = "the operator ends when this is dropped"]
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<()>>,
}

impl Running {
    /// Asks the operator to stop and waits for it. An error is the one it ended with, also if it ended by itself.
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
