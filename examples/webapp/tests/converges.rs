//! The operator against an API server in the same process: no cluster, no socket.

use std::time::Duration;

use konverge::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use konverge::kube::{Client, CustomResourceExt};
use konverge::prelude::{Deployment, Service};
use konverge::serde_json::json;
use konverge::{Settings, k8s_openapi};
use konverge_apiserver::{ApiServer, Options};
use webapp::{WebApp, WebAppSpec};

type Crd = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Polls until `look` finds something; the deadline is far beyond what it takes.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test]
async fn a_webapp_gets_its_children_and_keeps_them() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let client = Client::new(server, "default");
    Api::<Crd>::all(client.clone()).create(&PostParams::default(), &WebApp::crd()).await.unwrap();

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut settings = Settings { name: "webapp".into(), ..Settings::default() };
    settings.metrics.enabled = false;
    settings.health.enabled = false;
    let operator = webapp::operator().client(client.clone()).settings(settings);
    let running = tokio::spawn(operator.run_until(async move { drop(stopped.await) }));

    let apps: Api<WebApp> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let spec = WebAppSpec { image: "nginx:1".into(), replicas: 2 };
    apps.create(&PostParams::default(), &WebApp::new("shop", spec)).await.unwrap();

    eventually("the Service", async || services.get_opt("shop").await.unwrap()).await;
    let deployment = eventually("the Deployment", async || deployments.get_opt("shop").await.unwrap()).await;
    assert_eq!(deployment.inner().spec.replicas, Some(2));

    // A change of the object reaches its children.
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    apps.patch("shop", &PatchParams::default(), &patch).await.unwrap();
    let replicas = async |wanted: i32| {
        let deployment = deployments.get_opt("shop").await.unwrap()?;
        (deployment.inner().spec.replicas == Some(wanted)).then_some(())
    };
    eventually("5 replicas", async || replicas(5).await).await;

    // What others change is put back, what they delete comes back.
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    deployments.patch("shop", &PatchParams::default(), &patch).await.unwrap();
    eventually("the drift to be mended", async || replicas(5).await).await;
    let uid = services.get("shop").await.unwrap().inner().metadata.uid.clone();
    services.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("another Service", async || {
        let service = services.get_opt("shop").await.unwrap()?;
        (service.inner().metadata.uid != uid).then_some(())
    })
    .await;

    // Its children go with it.
    apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("the end", async || {
        let gone =
            apps.get_opt("shop").await.unwrap().is_none() && deployments.get_opt("shop").await.unwrap().is_none();
        (gone && services.get_opt("shop").await.unwrap().is_none()).then_some(())
    })
    .await;

    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
