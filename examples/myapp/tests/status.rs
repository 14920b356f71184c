//! Status, conditions, events and bad specs, against an API server in the same process.

use std::time::Duration;

use konverge::kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use konverge::kube::core::{ApiResource, DynamicObject};
use konverge::kube::{Client, CustomResourceExt};
use konverge::prelude::Deployment;
use konverge::serde_json::json;
use konverge::{Settings, k8s_openapi};
use konverge_apiserver::{ApiServer, Options};
use myapp::{MyApp, MyAppSpec};

type Crd = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
type Event = k8s_openapi::api::core::v1::Event;

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
async fn the_status_follows_the_deployment_and_bad_specs_are_explained() {
    let server = ApiServer::open(Options::default()).await.unwrap();
    let client = Client::new(server, "default");
    Api::<Crd>::all(client.clone()).create(&PostParams::default(), &MyApp::crd()).await.unwrap();
    let mut settings = Settings { name: "myapp".into(), ..Settings::default() };
    settings.metrics.enabled = false;
    settings.health.enabled = false;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let operator = myapp::operator().client(client.clone()).settings(settings);
    let running = tokio::spawn(operator.run_until(async move { drop(stopped.await) }));

    let apps: Api<MyApp> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let spec = |replicas| MyAppSpec { replicas, image: "nginx:1".into(), port: 80 };
    apps.create(&PostParams::default(), &MyApp::new("shop", spec(2))).await.unwrap();
    let phase = async |wanted: &str| {
        let app = apps.get("shop").await.unwrap();
        (app.status.as_ref()?.phase == wanted).then_some(app)
    };
    eventually("Pending", async || phase("Pending").await).await;

    // No kubelet is here: the test says that the replicas are ready.
    let ready = Patch::Merge(json!({"status": {"replicas": 2, "readyReplicas": 2}}));
    deployments.patch_status("shop", &PatchParams::default(), &ready).await.unwrap();
    eventually("Running", async || phase("Running").await).await;
    let raw: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &ApiResource::erase::<MyApp>(&()));
    eventually("Ready", async || {
        let app = raw.get("shop").await.unwrap();
        let conditions = app.data["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|one| one["type"] == "Ready" && one["status"] == "True")
    })
    .await;

    // A spec that makes no sense ends in a condition and an event, and is not tried again and again.
    apps.create(&PostParams::default(), &MyApp::new("odd", spec(0))).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let event = eventually("the warning", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().find(|event| event.involved_object.name.as_deref() == Some("odd"))
    })
    .await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.unwrap_or_default();
    assert!(message.contains("spec.replicas: must be greater than 0"), "{message}");
    assert!(deployments.get_opt("odd").await.unwrap().is_none());

    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
