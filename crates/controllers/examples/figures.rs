//! What the control plane takes, with the API server in the same process: a Deployment of so many replicas from `create` to
//! Available, and a namespace of a thousand objects from `delete` to gone. Prints figures; holds nobody to them.
//!
//! `cargo run --release -p konverge-controllers --example figures [REPLICAS [ROUNDS]]`

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use konverge_apiserver::{ApiServer, Collector};
use konverge_controllers::{ControlPlane, Options};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How many objects are in the namespace that goes.
const OBJECTS: usize = 1000;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<i32>());
    let replicas = arguments.next().transpose()?.unwrap_or(100);
    let rounds = arguments.next().transpose()?.unwrap_or(10);
    let (mut deployments, mut namespaces) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        deployments.push(available(replicas).await?);
        namespaces.push(gone().await?);
    }
    print(&format!("a Deployment of {replicas} replicas is Available"), deployments);
    print(&format!("a namespace of {OBJECTS} objects is gone"), namespaces);
    Ok(())
}

fn print(what: &str, took: Vec<(Duration, u64)>) {
    let (mut times, writes): (Vec<Duration>, Vec<u64>) = took.into_iter().unzip();
    times.sort();
    println!("{what} after {:?} (median of {})", times[times.len() / 2], times.len());
    println!("  fastest {:?}, slowest {:?}", times[0], times[times.len() - 1]);
    println!("  writes until then, events among them: {writes:?}");
}

/// A server and its control plane.
struct Cluster {
    server: ApiServer,
    client: Client,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Cluster {
    /// A cluster whose caches are filled and whose node is there: one Deployment has become available.
    async fn start() -> Outcome<Self> {
        let options = konverge_apiserver::Options { collector: Collector::Elsewhere, ..Default::default() };
        let server = ApiServer::open(options).await?;
        let client = Client::new(server.clone(), "default");
        let (stop, stopped) = oneshot::channel::<()>();
        let manager = ControlPlane::new(client.clone(), Options::default())?;
        let running = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        let cluster = Self { server, client, stop, running };
        cluster.deploy("warm", 1).await?;
        Ok(cluster)
    }

    /// Creates a Deployment and waits until a watch shows every replica available.
    async fn deploy(&self, name: &str, replicas: i32) -> Outcome<()> {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let wanted: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "main", "image": "registry.example/web:1"}]},
                },
            },
        }))?;
        let created = api.create(&PostParams::default(), &wanted).await?;
        let version = created.metadata.resource_version.unwrap_or_default();
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut changes = api.watch(&only, &version).await?.boxed();
        while let Some(change) = changes.try_next().await? {
            if let WatchEvent::Modified(deployment) = change
                && deployment.status.is_some_and(|status| status.available_replicas == Some(replicas))
            {
                return Ok(());
            }
        }
        Err("the watch ended".into())
    }

    /// How many writes there have been.
    fn writes(&self) -> u64 {
        self.server.store().revision().0
    }

    async fn stop(self) -> Outcome<()> {
        drop(self.stop);
        self.running.await?;
        self.server.shutdown();
        Ok(())
    }
}

/// From the request to the moment a watch shows every replica available.
async fn available(replicas: i32) -> Outcome<(Duration, u64)> {
    let cluster = Cluster::start().await?;
    let (began, before) = (Instant::now(), cluster.writes());
    cluster.deploy("web", replicas).await?;
    let figures = (began.elapsed(), cluster.writes() - before);
    cluster.stop().await?;
    Ok(figures)
}

/// From the request to the moment a watch shows that the namespace is gone.
async fn gone() -> Outcome<(Duration, u64)> {
    let cluster = Cluster::start().await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let shop: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}}))?;
    let created = namespaces.create(&PostParams::default(), &shop).await?;
    let objects: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "shop");
    for at in 0..OBJECTS {
        let name = format!("c{at}");
        let object: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}}))?;
        objects.create(&PostParams::default(), &object).await?;
    }
    let version = created.metadata.resource_version.unwrap_or_default();
    let mut changes = namespaces.watch(&WatchParams::default(), &version).await?.boxed();
    let (began, before) = (Instant::now(), cluster.writes());
    namespaces.delete("shop", &Default::default()).await?;
    while let Some(change) = changes.try_next().await? {
        if matches!(change, WatchEvent::Deleted(_)) {
            break;
        }
    }
    let figures = (began.elapsed(), cluster.writes() - before);
    cluster.stop().await?;
    Ok(figures)
}
