//! Clients that disconnect before they are answered. A request is dropped after each number of steps that it can take; a commit
//! that is in progress happens all the same. Afterwards, and after a restart over the same store, the state must be that of a
//! request that was completed, or of one that was never sent.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{FutureExt, poll};
use http::Request;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tower_service::Service;

use konverge_store::{
    BackupError, BoxFuture, Commit, CommitError, Entry, Health, Memory, Page, Range, ReadError, Revision, Store, Watch,
};

use crate::env::Environment;
use crate::server::{ApiServer, Collector, Options};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// More rounds than the tasks of a server need to do everything.
const LONG: usize = 200;

/// A store whose commits happen when the test says so, as those of a disk happen when its fsync is done.
#[derive(Clone)]
struct Slow {
    memory: Arc<Memory>,
    queued: Arc<Mutex<VecDeque<Queued>>>,
    /// Whether commits wait to be released.
    holds: Arc<AtomicBool>,
}

type Queued = (Commit, oneshot::Sender<Result<Revision, CommitError>>);

impl Slow {
    fn new() -> Self {
        Self { memory: Arc::default(), queued: Arc::default(), holds: Arc::default() }
    }

    /// Lets the oldest queued commit happen.
    fn release(&self) -> bool {
        let Some((commit, answer)) = self.queued.lock().pop_front() else { return false };
        // The request that waited may be dropped.
        let _ = answer.send(self.memory.commit(commit).now_or_never().expect("memory commits at once"));
        true
    }
}

impl Store for Slow {
    fn revision(&self) -> Revision {
        self.memory.revision()
    }

    fn oldest(&self) -> Revision {
        self.memory.oldest()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError> {
        self.memory.get(key, at)
    }

    fn range(&self, range: Range<'_>) -> Result<Page, ReadError> {
        self.memory.range(range)
    }

    fn count(&self, range: Range<'_>) -> Result<usize, ReadError> {
        self.memory.count(range)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Revision, CommitError>> {
        if !self.holds.load(Ordering::Relaxed) {
            return self.memory.commit(commit);
        }
        let (answer, answered) = oneshot::channel();
        self.queued.lock().push_back((commit, answer));
        Box::pin(async move { answered.await.expect("every commit is released") })
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
        self.memory.watch(prefix, after)
    }

    fn compact(&self, before: Revision) {
        self.memory.compact(before);
    }

    fn maintain(&self, now: Instant) {
        self.memory.maintain(now);
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.memory.health()
    }

    fn backup(&self, to: &Path) -> Result<Revision, BackupError> {
        self.memory.backup(to)
    }
}

/// Always the same time and the same random number, so that every search for a free address begins at the same one.
struct Still;

impl Environment for Still {
    fn now(&self) -> Timestamp {
        "2026-01-02T03:04:05Z".parse().expect("a time")
    }

    fn random(&self) -> u128 {
        7
    }
}

/// A server over a slow store.
struct Scene {
    store: Slow,
    api: ApiServer,
}

impl Scene {
    async fn new(store: Slow) -> Self {
        store.holds.store(false, Ordering::Relaxed);
        let options = Options { env: Arc::new(Still), collector: Collector::Elsewhere, ..Options::default() };
        let api = ApiServer::start(Arc::new(store.clone()), options).await.unwrap();
        let scene = Self { store, api };
        scene.rest().await;
        scene
    }

    /// Lets commits happen and tasks run until nothing moves any more.
    async fn rest(&self) {
        let mut quiet = 0;
        while quiet < LONG {
            quiet = if self.store.release() { 0 } else { quiet + 1 };
            tokio::task::yield_now().await;
        }
    }

    /// The same store under a new server.
    async fn restart(self) -> Self {
        self.rest().await;
        let Self { store, api } = self;
        drop(api);
        Self::new(store).await
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut call = pin!(self.api.clone().call(request(method, path, body)));
        let response = loop {
            match poll!(&mut call) {
                std::task::Poll::Ready(response) => break response.unwrap(),
                std::task::Poll::Pending => {
                    self.store.release();
                    tokio::task::yield_now().await;
                }
            }
        };
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn expect(&self, method: &str, path: &str, body: Value, code: u16) -> Value {
        let (found, answer) = self.ask(method, path, body).await;
        assert_eq!(found, code, "{method} {path}: {answer}");
        answer
    }

    /// Sends a request and drops it after `steps` polls; between two of them one commit happens and tasks run. Whether it
    /// was answered before.
    async fn drop_after(&self, steps: usize, method: &str, path: &str, body: Value) -> bool {
        self.store.holds.store(true, Ordering::Relaxed);
        let mut call = Box::pin(self.api.clone().call(request(method, path, body)));
        for step in 0..steps {
            if step > 0 {
                self.store.release();
                tokio::task::yield_now().await;
            }
            if poll!(&mut call).is_ready() {
                return true;
            }
        }
        false
    }
}

fn request(method: &str, path: &str, body: Value) -> Request<Full<Bytes>> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    Request::builder().method(method).uri(path).header("content-type", kind).body(Full::new(body)).unwrap()
}

fn definition(plural: &str, kind: &str, color: &str) -> Value {
    let properties = json!({"spec": {"type": "object", "properties": {"color": {"type": "string", "default": color}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
            }],
        },
    })
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
           "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
}

fn condition<'d>(definition: &'d Value, kind: &str) -> &'d str {
    let conditions = definition["status"]["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|condition| condition["type"] == kind).expect("the condition");
    found["status"].as_str().expect("its status")
}

/// One request, what was there before, and what must be true after it was dropped.
macro_rules! dropped_anywhere {
    ($name:ident, $prepare:expr, $request:expr, $check:expr) => {
        #[tokio::test]
        async fn $name() {
            for steps in 0.. {
                let scene = Scene::new(Slow::new()).await;
                let prepare: fn() -> Vec<(&'static str, String, Value)> = $prepare;
                for (method, path, body) in prepare() {
                    let (code, answer) = scene.ask(method, &path, body).await;
                    assert!(code < 300, "{method} {path}: {answer}");
                }
                let (method, path, body): (&str, String, Value) = $request;
                let answered = scene.drop_after(steps, method, &path, body).await;
                $check(&scene, steps, answered).await;
                scene.rest().await;
                $check(&scene, steps, answered).await;
                let scene = scene.restart().await;
                $check(&scene, steps, answered).await;
                if answered {
                    assert!(steps > 1, "the request was never dropped on its way");
                    return;
                }
            }
        }
    };
}

/// Whether the definition is there is also whether its kind is served.
async fn served_as_stored(scene: &Scene, steps: usize, answered: bool) {
    scene.rest().await;
    let (stored, _) = scene.ask("GET", &format!("{CRDS}/widgets.example.com"), Value::Null).await;
    let (served, _) = scene.ask("GET", WIDGETS, Value::Null).await;
    assert_eq!(stored, served, "dropped after {steps} steps");
    assert!(!answered || stored == 200);
}

dropped_anywhere!(
    a_definition_that_is_stored_is_served,
    Vec::new,
    ("POST", CRDS.to_owned(), definition("widgets", "Widget", "red")),
    served_as_stored
);

/// New objects have what the definition in the store says.
async fn shown_as_stored(scene: &Scene, steps: usize, answered: bool) {
    scene.rest().await;
    let stored = scene.expect("GET", &format!("{CRDS}/widgets.example.com"), Value::Null, 200).await;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/default";
    let color = stored.pointer(schema).unwrap();
    assert!(!answered || color == "blue");
    let made = scene.expect("POST", &format!("{WIDGETS}?dryRun=All"), widget("w"), 201).await;
    assert_eq!(&made["spec"]["color"], color, "dropped after {steps} steps");
}

dropped_anywhere!(
    a_definition_that_changed_is_served_as_it_is,
    || vec![("POST", CRDS.to_owned(), definition("widgets", "Widget", "red"))],
    (
        "PATCH",
        format!("{CRDS}/widgets.example.com"),
        json!({"spec": {"versions": definition("widgets", "Widget", "blue")["spec"]["versions"]}})
    ),
    shown_as_stored
);

/// A deletion that has begun is completed, and a definition that waited for the names has them.
async fn gone_or_untouched(scene: &Scene, steps: usize, answered: bool) {
    scene.rest().await;
    let (stored, object) = scene.ask("GET", &format!("{CRDS}/widgets.example.com"), Value::Null).await;
    if stored == 200 {
        assert!(!answered, "the deletion was answered");
        assert_eq!(object["metadata"].get("deletionTimestamp"), None, "dropped after {steps} steps: {object}");
        return;
    }
    assert_eq!(scene.ask("GET", WIDGETS, Value::Null).await.0, 404, "dropped after {steps} steps");
    let left = scene.store.range(Range { prefix: "/registry/example.com/widgets/", ..Range::default() }).unwrap();
    assert!(left.entries.is_empty(), "dropped after {steps} steps: {left:?}");
    let waiting = scene.expect("GET", &format!("{CRDS}/gadgets.example.com"), Value::Null, 200).await;
    assert_eq!(condition(&waiting, "Established"), "True", "dropped after {steps} steps");
    scene.expect("GET", &WIDGETS.replace("widgets", "gadgets"), Value::Null, 200).await;
}

dropped_anywhere!(
    the_deletion_of_a_definition_comes_to_its_end,
    || {
        vec![
            ("POST", CRDS.to_owned(), definition("widgets", "Widget", "red")),
            ("POST", CRDS.to_owned(), definition("gadgets", "Widget", "red")),
            ("POST", WIDGETS.to_owned(), widget("a")),
            ("POST", WIDGETS.to_owned(), widget("b")),
        ]
    },
    ("DELETE", format!("{CRDS}/widgets.example.com"), Value::Null),
    gone_or_untouched
);

/// A definition stays while its objects have finalizers, and is removed with the last of them.
#[tokio::test]
async fn the_last_object_takes_its_definition_along() {
    for steps in 0.. {
        let scene = Scene::new(Slow::new()).await;
        scene.expect("POST", CRDS, definition("widgets", "Widget", "red"), 201).await;
        let mut held = widget("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        scene.expect("POST", WIDGETS, held, 201).await;
        let path = format!("{CRDS}/widgets.example.com");
        scene.expect("DELETE", &path, Value::Null, 200).await;
        // A server that did not see the begin of the deletion completes it, too.
        let scene = if steps % 2 == 1 { scene.restart().await } else { scene };
        scene.expect("GET", &path, Value::Null, 200).await;
        let free = json!({"metadata": {"finalizers": null}});
        let answered = scene.drop_after(steps, "PATCH", &format!("{WIDGETS}/held"), free).await;
        scene.rest().await;
        let expect = if scene.ask("GET", WIDGETS, Value::Null).await.0 == 200 { 200 } else { 404 };
        let (stored, definition) = scene.ask("GET", &path, Value::Null).await;
        assert_eq!(stored, expect, "dropped after {steps} steps: {definition}");
        let objects = scene.store.range(Range { prefix: "/registry/example.com/widgets/", ..Range::default() });
        assert_eq!(objects.unwrap().entries.len(), usize::from(stored == 200), "dropped after {steps} steps");
        if answered {
            assert_eq!(stored, 404);
            return;
        }
    }
}

/// An address of a dropped request is not given to the next one while the first commit is in progress.
#[tokio::test]
async fn an_address_on_its_way_is_taken() {
    for steps in 0.. {
        let scene = Scene::new(Slow::new()).await;
        let answered = scene.drop_after(steps, "POST", SERVICES, service("a")).await;
        scene.expect("POST", SERVICES, service("b"), 201).await;
        scene.rest().await;
        let all = scene.expect("GET", SERVICES, Value::Null, 200).await;
        let all = all["items"].as_array().unwrap();
        let mut addresses: Vec<&str> = all.iter().map(|one| one["spec"]["clusterIP"].as_str().unwrap()).collect();
        let mut ports: Vec<u64> = all.iter().map(|one| one["spec"]["ports"][0]["nodePort"].as_u64().unwrap()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!((addresses.len(), ports.len()), (all.len(), all.len()), "dropped after {steps} steps");
        if answered {
            assert_eq!(all.len(), 2);
            return;
        }
    }
}

/// The same for the names of kinds: the second definition has to wait, also if the first request was dropped.
#[tokio::test]
async fn names_on_their_way_are_taken() {
    for steps in 0.. {
        let scene = Scene::new(Slow::new()).await;
        let answered = scene.drop_after(steps, "POST", CRDS, definition("widgets", "Widget", "red")).await;
        scene.expect("POST", CRDS, definition("gadgets", "Widget", "red"), 201).await;
        scene.rest().await;
        let all = scene.expect("GET", CRDS, Value::Null, 200).await;
        let established = all["items"].as_array().unwrap().iter().filter(|it| condition(it, "Established") == "True");
        assert_eq!(established.count(), 1, "dropped after {steps} steps");
        if answered {
            return;
        }
    }
}
