//! A cluster in a test: an API server, a control plane, and words for what a test does with them. Waits for conditions by
//! watching, never by sleeping.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use konverge_apiserver::{ApiServer, Collector};
use konverge_controllers::{ControlPlane, Options};
pub(crate) use konverge_schema::merge_patch;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Long enough for a busy machine; whoever waits that long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster.
pub(crate) struct Stage {
    pub client: Client,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Stage {
    /// A new cluster whose control plane has these options. The server collects nothing itself.
    pub(crate) async fn with(options: Options) -> Self {
        Self::on(server().await, options)
    }

    /// A control plane on a server that is there.
    pub(crate) fn on(server: ApiServer, options: Options) -> Self {
        Self::of(Client::new(server, "default"), options)
    }

    /// A control plane on what a client talks to.
    pub(crate) fn of(client: Client, options: Options) -> Self {
        let manager = ControlPlane::new(client.clone(), options).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { client, stop: Some(stop), running }
    }

    /// A new cluster as it comes.
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    /// Stops the control plane and waits until it has stopped.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.running).await.expect("it stops in time").unwrap();
    }

    /// All objects of a kind, given as `apps/v1 Deployment deployments`.
    pub(crate) fn all(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }

    /// The objects of a kind in `default`.
    pub(crate) fn some(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &resource(kind))
    }

    /// Creates an object.
    pub(crate) async fn create(&self, kind: &str, mut object: Value) -> Value {
        let api = resource(kind);
        object["apiVersion"] = api.api_version.clone().into();
        object["kind"] = api.kind.clone().into();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let namespace = object.metadata.namespace.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource(kind)),
            None => self.place(kind),
        };
        serde_json::to_value(api.create(&PostParams::default(), &object).await.unwrap()).unwrap()
    }

    /// Patches an object in `default`.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) -> Value {
        let api = self.place(kind);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        serde_json::to_value(patched).unwrap()
    }

    /// Where the objects of a kind are, as far as tests are concerned.
    fn place(&self, kind: &str) -> Api<DynamicObject> {
        let in_none = [NODES, NAMESPACES, DEFINITIONS, SIGNING_REQUESTS].contains(&kind);
        if in_none { self.all(kind) } else { self.some(kind) }
    }

    /// The objects of a kind in `default` now.
    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.some(kind).list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    /// An object of this name in `default`.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.place(kind).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    /// Waits until an object of a kind in `default` is so, and answers with it.
    pub(crate) async fn until(&self, kind: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.until_all(kind, |objects| {
            let found = objects.iter().find(|object| object["metadata"]["name"] == name);
            found.filter(|object| is_so(object)).cloned()
        })
        .await
    }

    /// Waits until all objects of a kind, in all namespaces, give an answer.
    pub(crate) async fn until_all<T>(&self, kind: &str, answer: impl Fn(&[Value]) -> Option<T>) -> T {
        let mut seen: Vec<Value> = Vec::new();
        let api = self.all(kind);
        let look = async {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            let mut listed = false;
            let mut listing: Vec<Value> = Vec::new();
            let same = |a: &Value, b: &Value| a["metadata"]["uid"] == b["metadata"]["uid"];
            while let Some(event) = events.try_next().await.unwrap() {
                let value = |object: &DynamicObject| serde_json::to_value(object).unwrap();
                match event {
                    watcher::Event::Init => listing.clear(),
                    watcher::Event::InitApply(object) => listing.push(value(&object)),
                    watcher::Event::InitDone => {
                        seen = std::mem::take(&mut listing);
                        listed = true;
                    }
                    watcher::Event::Apply(object) => {
                        let object = value(&object);
                        seen.retain(|other| !same(other, &object));
                        seen.push(object);
                    }
                    watcher::Event::Delete(object) => {
                        let object = value(&object);
                        seen.retain(|other| !same(other, &object));
                    }
                }
                if listed && let Some(answer) = answer(&seen) {
                    return answer;
                }
            }
            panic!("the watch ended");
        };
        match tokio::time::timeout(PATIENCE, look).await {
            Ok(answer) => answer,
            Err(_) => {
                panic!("{kind} did not become as expected; there is {}", serde_json::to_string_pretty(&seen).unwrap())
            }
        }
    }

    /// Waits until there is no object of a kind in `default`.
    pub(crate) async fn until_none(&self, kind: &str) {
        self.until_all(kind, |objects| {
            objects.iter().all(|object| object["metadata"]["namespace"] != "default").then_some(())
        })
        .await;
    }

    /// The reasons of all events about an object, once a reason is among them.
    pub(crate) async fn events(&self, name: &str, reason: &str) -> Vec<(String, String)> {
        self.until_all(EVENTS, |events| {
            let about = events.iter().filter(|event| event["regarding"]["name"] == name);
            let told: Vec<(String, String)> = about.map(|event| (text(event, "reason"), text(event, "note"))).collect();
            told.iter().any(|(told, _)| told == reason).then_some(told)
        })
        .await
    }

    /// The names of pods in `default` that are not on their way out.
    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let mut pods = api.list(&ListParams::default()).await.unwrap().items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.sort_by_key(ResourceExt::name_any);
        pods
    }
}

/// A server that collects nothing itself.
pub(crate) async fn server() -> ApiServer {
    let options = konverge_apiserver::Options { collector: Collector::Elsewhere, ..Default::default() };
    ApiServer::open(options).await.unwrap()
}

pub(crate) const CONFIG_MAPS: &str = "v1 ConfigMap configmaps";
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions";
pub(crate) const SERVICE_ACCOUNTS: &str = "v1 ServiceAccount serviceaccounts";
pub(crate) const DEPLOYMENTS: &str = "apps/v1 Deployment deployments";
pub(crate) const REPLICA_SETS: &str = "apps/v1 ReplicaSet replicasets";
pub(crate) const DAEMON_SETS: &str = "apps/v1 DaemonSet daemonsets";
pub(crate) const STATEFUL_SETS: &str = "apps/v1 StatefulSet statefulsets";
pub(crate) const CONTROLLER_REVISIONS: &str = "apps/v1 ControllerRevision controllerrevisions";
pub(crate) const CLAIMS: &str = "v1 PersistentVolumeClaim persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "v1 PersistentVolume persistentvolumes";
pub(crate) const CLASSES: &str = "storage.k8s.io/v1 StorageClass storageclasses";
pub(crate) const JOBS: &str = "batch/v1 Job jobs";
pub(crate) const CRON_JOBS: &str = "batch/v1 CronJob cronjobs";
pub(crate) const SERVICES: &str = "v1 Service services";
pub(crate) const ENDPOINTS: &str = "v1 Endpoints endpoints";
pub(crate) const ENDPOINT_SLICES: &str = "discovery.k8s.io/v1 EndpointSlice endpointslices";
pub(crate) const BUDGETS: &str = "policy/v1 PodDisruptionBudget poddisruptionbudgets";
pub(crate) const AUTOSCALERS: &str = "autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers";
pub(crate) const PODS: &str = "v1 Pod pods";
pub(crate) const SIGNING_REQUESTS: &str = "certificates.k8s.io/v1 CertificateSigningRequest certificatesigningrequests";
pub(crate) const NODES: &str = "v1 Node nodes";
pub(crate) const NAMESPACES: &str = "v1 Namespace namespaces";
pub(crate) const EVENTS: &str = "events.k8s.io/v1 Event events";

fn resource(kind: &str) -> ApiResource {
    let mut words = kind.split(' ');
    let (api_version, kind, plural) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

pub(crate) fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

/// A Deployment of this image.
pub(crate) fn deployment(name: &str, replicas: i32, image: &str, more: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
        },
    });
    merge_patch(&mut object, &more);
    object
}

/// Whether `kubectl rollout status` would say that a Deployment is rolled out, with this many replicas.
pub(crate) fn is_rolled_out(deployment: &Value, replicas: i64) -> bool {
    let status = |field: &str| deployment["status"][field].as_i64().unwrap_or_default();
    status("observedGeneration") >= deployment["metadata"]["generation"].as_i64().unwrap()
        && status("updatedReplicas") == replicas
        && status("replicas") == replicas
        && status("availableReplicas") == replicas
}

/// A status and a reason, as [`condition`] gives them.
pub(crate) fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

/// The status and the reason of a condition.
pub(crate) fn condition(object: &Value, type_: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    found.map(|condition| (text(condition, "status"), text(condition, "reason"))).unwrap_or_default()
}
