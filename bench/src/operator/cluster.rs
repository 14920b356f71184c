//! Our API server in memory, behind a listener that counts requests. In: the number of parents. Out: an address, the number of
//! requests by type, and whether all children exist. The counts are made in the same way for every implementation.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use konverge_apiserver::{ApiServer, Body, Options};
use konverge_serve::{BindOptions, Listener, RequestBody, Server};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use tokio::runtime::Runtime;

use super::kinds::Widget;
use crate::invalid_run::InvalidRun;
use crate::widget;

/// A cluster with parents.
pub(crate) struct Cluster {
    url: String,
    counts: Arc<Counts>,
    /// A client whose requests are not counted.
    client: Client,
    _server: Server,
    runtime: Runtime,
}

/// The number of requests by type.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Creates, updates, patches and deletes.
    pub writes: AtomicUsize,
    /// Gets and lists.
    pub reads: AtomicUsize,
    /// Watches.
    pub watches: AtomicUsize,
    /// Writes that failed with a conflict.
    pub conflicts: AtomicUsize,
    /// Requests that failed with another error.
    pub refused: AtomicUsize,
}

/// The server as a service that counts requests.
#[derive(Clone)]
struct CountingServer {
    server: ApiServer,
    counts: Arc<Counts>,
}

impl Cluster {
    /// Starts a cluster on a thread of its own.
    pub(crate) fn start(parents: usize) -> Result<Self, InvalidRun> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let counts = Arc::<Counts>::default();
        let (server, client) = runtime.block_on(prepare(parents))?;
        let inside = runtime.enter();
        let listener = Listener::bind(BindOptions::default()).map_err(|error| InvalidRun::new(error.to_string()))?;
        let url = listener.url();
        let server = listener.serve(CountingServer { server, counts: counts.clone() });
        drop(inside);
        Ok(Self { url, counts, client, _server: server, runtime })
    }

    /// The address at which it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The requests so far.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether all parents have a finalizer and a status, and all children exist.
    pub(super) fn converged(&self, parents: usize) -> Result<bool, InvalidRun> {
        self.runtime.block_on(converged(&self.client, parents)).map_err(|error| InvalidRun::new(error.to_string()))
    }
}

async fn prepare(parents: usize) -> Result<(ApiServer, Client), InvalidRun> {
    let server = ApiServer::open(Options::default()).await.map_err(|error| InvalidRun::new(error.to_string()))?;
    let client = Client::new(server.clone(), "default");
    let create = Request::post(widget::DEFINITIONS).header("content-type", "application/json");
    let create = create.body(widget::definition()).map_err(|error| InvalidRun::new(error.to_string()))?;
    client.request_text(create).await.map_err(|error| InvalidRun::new(error.to_string()))?;
    let widgets = Api::<Widget>::namespaced(client.clone(), "default");
    for number in 0..parents {
        let widget =
            serde_json::from_slice(&widget::widget(number)).map_err(|error| InvalidRun::new(error.to_string()))?;
        let created = widgets.create(&PostParams::default(), &widget).await;
        created.map_err(|error| InvalidRun::new(format!("creating a parent: {error}")))?;
    }
    Ok((server, client))
}

async fn converged(client: &Client, parents: usize) -> kube::Result<bool> {
    let all = ListParams::default();
    let widgets = Api::<Widget>::namespaced(client.clone(), "default").list(&all).await?;
    let is_done = |widget: &&Widget| {
        let observed = widget.status.as_ref().and_then(|status| status.observed_generation);
        observed.is_some()
            && observed == widget.metadata.generation
            && widget.metadata.finalizers.as_ref().is_some_and(|finalizers| finalizers.len() == 1)
    };
    if widgets.items.iter().filter(is_done).count() < parents {
        return Ok(false);
    }
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), "default").list_metadata(&all).await?.items.len();
    let services = Api::<Service>::namespaced(client.clone(), "default").list_metadata(&all).await?;
    // The cluster itself has the Service `kubernetes`.
    let services =
        services.items.iter().filter(|service| service.metadata.name.as_deref() != Some("kubernetes")).count();
    let deployments = Api::<Deployment>::namespaced(client.clone(), "default").list_metadata(&all).await?.items.len();
    Ok([config_maps, services, deployments] == [parents; 3])
}

impl tower_service::Service<Request<RequestBody>> for CountingServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let counts = self.counts.clone();
        let count = match *request.method() {
            Method::GET if request.uri().query().unwrap_or_default().contains("watch=") => &counts.watches,
            Method::GET => &counts.reads,
            _ => &counts.writes,
        };
        count.fetch_add(1, Relaxed);
        let response = self.server.call(request);
        Box::pin(async move {
            let response = response.await;
            match response.as_ref().map(|response| response.status().as_u16()) {
                Ok(409) => _ = counts.conflicts.fetch_add(1, Relaxed),
                Ok(400..) => _ = counts.refused.fetch_add(1, Relaxed),
                _ => {}
            }
            response
        })
    }
}
