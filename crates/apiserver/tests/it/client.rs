//! The `kube` client against the server. Every flow runs twice by the same code: in process, where the server's service
//! is the client's transport, and over the network. A flow never knows which of the two it is.

mod applying;
mod collecting;
mod definitions;
mod deleting;
mod objects;
mod racing;
mod watching;

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, Status};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;
use tower_service::Service;

use konverge_apiserver::{ApiServer, Collector, Options};

use crate::network::Network;

/// Runs flows in process and over the network. Nothing collects garbage, unless the flow asks for the collector.
macro_rules! flows {
    ($($flow:ident),* $(,)?) => {
        $crate::client::flows![Elsewhere: $($flow),*];
    };
    ($collector:ident: $($flow:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $flow() {
                super::$flow(crate::client::Setup::in_process(konverge_apiserver::Collector::$collector).await).await;
            })*
        }
        mod over_network {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $flow() {
                super::$flow(crate::client::Setup::over_network(konverge_apiserver::Collector::$collector).await).await;
            })*
        }
    };
}
pub(crate) use flows;

/// A server and a client that reaches it.
pub(crate) struct Setup {
    pub server: ApiServer,
    pub client: Client,
    way: Way,
}

enum Way {
    Process(Arc<Notify>),
    Network(Network),
}

impl Setup {
    pub(crate) async fn in_process(collector: Collector) -> Self {
        let server = ApiServer::open(Options { collector, ..Options::default() }).await.unwrap();
        let cut = Arc::new(Notify::new());
        let client = Client::new(Fragile { server: server.clone(), cut: cut.clone() }, "default");
        Self { server, client, way: Way::Process(cut) }
    }

    pub(crate) async fn over_network(collector: Collector) -> Self {
        let server = ApiServer::open(Options { collector, ..Options::default() }).await.unwrap();
        let network = Network::listen(server.clone()).await;
        let config = Config::new(format!("http://{}", network.address).parse().unwrap());
        Self { server, client: Client::try_from(config).unwrap(), way: Way::Network(network) }
    }

    /// Another client, whose connections are not cut.
    pub(crate) fn aside(&self) -> Client {
        Client::new(self.server.clone(), "default")
    }

    /// Cuts every answer that is not complete.
    pub(crate) fn cut(&self) {
        match &self.way {
            Way::Process(cut) => cut.notify_waiters(),
            Way::Network(network) => network.cut(),
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn cluster_api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    /// Objects of `example.com/v1 Widget`, whose definition is there.
    pub(crate) async fn widgets(&self) -> (Api<DynamicObject>, ApiResource) {
        let definitions = self.cluster_api();
        definitions.create(&PostParams::default(), &definition(&crate::cluster::widgets())).await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
        (Api::default_namespaced_with(self.client.clone(), &resource), resource)
    }
}

pub(crate) type Definition =
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub(crate) fn definition(json: &Value) -> Definition {
    typed(json)
}

/// JSON as a type of the client.
#[track_caller]
pub(crate) fn typed<K: DeserializeOwned>(json: &Value) -> K {
    serde_json::from_value(json.clone()).unwrap()
}

/// The status of a request that was refused with this code.
#[track_caller]
pub(crate) fn refused<T: Debug>(outcome: kube::Result<T>, code: u16) -> Box<Status> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == code => status,
        other => panic!("expected {code}, got {other:?}"),
    }
}

/// The server, with answers that can be cut off.
struct Fragile {
    server: ApiServer,
    cut: Arc<Notify>,
}

impl Service<Request<kube::client::Body>> for Fragile {
    type Response = Response<UnsyncBoxBody<bytes::Bytes, Infallible>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let answer = self.server.call(request);
        let cut = self.cut.clone().notified_owned();
        Box::pin(async move {
            let whole = |body: konverge_apiserver::Body| {
                let pieces = body.into_data_stream().map(|piece| piece.map(http_body::Frame::data));
                StreamBody::new(pieces.take_until(cut)).boxed_unsync()
            };
            Ok(answer.await?.map(whole))
        })
    }
}

/// The plain way in: the server itself is the transport.
#[tokio::test]
async fn the_server_is_the_transport() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let client = Client::new(server.clone(), "default");
    let version = client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(client);
    let made = maps.create(&PostParams::default(), &typed(&crate::cluster::config_map("a"))).await.unwrap();
    assert_eq!(made.metadata.resource_version, Some(server.store().revision().to_string()));
}
