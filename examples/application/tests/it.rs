//! The operator against an API server in the same process. No kubelet is here: the tests say what Deployments do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

use std::time::Duration;

use application::{Application, Phase};
use konverge::kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use konverge::kube::core::ApiResource;
use konverge::kube::{Client, CustomResourceExt, Error};
use konverge::prelude::{ConfigMap, Deployment, Kind, Pod, Service};
use konverge::serde_json::{Value, json};
use konverge::{Metrics, Settings, k8s_openapi};
use konverge_apiserver::{ApiServer, Options};
use konverge_testkit::{Fake, NotAdmitted, Review};

type Crd = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
type Event = k8s_openapi::api::core::v1::Event;

/// An API server with the operator at work on it.
struct World {
    client: Client,
    metrics: Metrics,
    apps: Api<Application>,
    deployments: Api<Deployment>,
}

impl World {
    async fn new() -> Self {
        let server = ApiServer::open(Options::default()).await.unwrap();
        let client = Client::new(server, "default");
        Api::<Crd>::all(client.clone()).create(&PostParams::default(), &Application::crd()).await.unwrap();
        let metrics = Metrics::new();
        let mut settings = Settings { name: "application".into(), ..Settings::default() };
        settings.metrics.enabled = false;
        settings.health.enabled = false;
        settings.webhook.enabled = false;
        let operator = application::operator(&metrics).unwrap().client(client.clone()).settings(settings);
        // It ends with the test's runtime.
        tokio::spawn(operator.run_until(std::future::pending()));
        let (apps, deployments) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { client, metrics, apps, deployments }
    }

    async fn create(&self, name: &str, spec: Value) -> Result<DynamicObject, Error> {
        let object = json!({
            "apiVersion": "cloudnative.elide.dev/v1", "kind": "Application", "metadata": {"name": name}, "spec": spec,
        });
        let object: DynamicObject = konverge::serde_json::from_value(object).unwrap();
        self.raw().create(&PostParams::default(), &object).await
    }

    /// Applications as JSON: conditions are no part of the type.
    fn raw(&self) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client.clone(), &ApiResource::erase::<Application>(&()))
    }

    /// What a controller would say of a Deployment.
    async fn report(&self, name: &str, status: Value) {
        let generation = self.deployments.get(name).await.unwrap().inner().metadata.generation;
        let mut status = status;
        status["observedGeneration"] = json!(generation);
        let patch = Patch::Merge(json!({"status": status}));
        self.deployments.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn in_phase(&self, name: &str, phase: Phase) -> Value {
        let what = format!("{name} {phase:?}");
        eventually(&what, async || {
            let app = self.raw().get(name).await.unwrap();
            let ready = condition(&app.data, "Ready")?;
            let settled = condition(&app.data, "Progressing").is_some() || phase == Phase::Failed;
            let said =
                ready["status"] == if matches!(phase, Phase::Running | Phase::Succeeded) { "True" } else { "False" };
            (app.data["status"]["phase"] == json!(phase) && settled && said).then_some(app.data)
        })
        .await
    }
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind).cloned()
}

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
async fn specs_that_make_no_sense_are_refused() {
    let world = World::new().await;
    let good = json!({"replicas": 1, "image": "nginx:1"});
    for (field, value, expect) in [
        ("replicas", json!(101), "should be less than or equal to 100"),
        ("replicas", json!(-1), "should be greater than or equal to 0"),
        ("image", json!(""), "should be at least 1 chars long"),
        ("image", Value::Null, "spec.image: Required value"),
        ("strategy", json!("Now"), "Unsupported value: \"Now\""),
        ("port", json!(70000), "should be less than or equal to 65535"),
        ("config", json!({"a": 1}), "must be of type string"),
    ] {
        let mut spec = good.clone();
        spec[field] = value.clone();
        if value.is_null() {
            spec.as_object_mut().unwrap().remove(field);
        }
        let refused = world.create("odd", spec).await.expect_err("refused");
        let Error::Api(status) = refused else { panic!("{field} {value}: {refused}") };
        assert_eq!(status.code, 422, "{field} {value}: {}", status.message);
        assert!(status.message.contains(expect), "{field} {value}: {}", status.message);
    }
    // What nobody says is filled in, also where no webhook is called.
    let made = world.create("plain", json!({"image": "nginx:1"})).await.unwrap();
    assert_eq!(made.data["spec"], json!({"replicas": 1, "image": "nginx:1", "strategy": "RollingUpdate", "port": 80}));
}

#[tokio::test]
async fn an_application_has_children_that_are_kept() {
    let world = World::new().await;
    let (configs, services) = (
        Api::<ConfigMap>::default_namespaced(world.client.clone()),
        Api::<Service>::default_namespaced(world.client.clone()),
    );
    let spec = json!({
        "replicas": 3, "image": "nginx:1", "strategy": "Recreate", "port": 8080, "config": {"GREETING": "hello"},
        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "512Mi"}},
    });
    world.create("shop", spec).await.unwrap();
    let service = eventually("the Service", async || services.get_opt("shop").await.unwrap()).await;
    let target = &service.inner().spec.as_ref().unwrap().ports.as_ref().unwrap()[0].target_port;
    assert_eq!(json!(target), json!(8080));
    assert_eq!(configs.get("shop-config").await.unwrap().get("GREETING"), Some("hello"));
    let deployment = json!(world.deployments.get("shop").await.unwrap());
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    assert_eq!(container["securityContext"], json!({"allowPrivilegeEscalation": false}));
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/managed-by"], "application");
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], "shop-config");
    assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"memory": "512Mi"}}));
    let config = |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"].clone();
    let before = config(&deployment);

    // What others change is put back, what they delete comes back.
    let patch = Patch::Merge(json!({"spec": {"replicas": 1}}));
    world.deployments.patch("shop", &PatchParams::default(), &patch).await.unwrap();
    eventually("the drift to be mended", async || {
        (world.deployments.get("shop").await.unwrap().desired_replicas() == 3).then_some(())
    })
    .await;
    configs.delete("shop-config", &DeleteParams::default()).await.unwrap();
    eventually("another ConfigMap", async || configs.get_opt("shop-config").await.unwrap()).await;

    // Another config is another version of the pods.
    let patch = Patch::Merge(json!({"spec": {"config": {"GREETING": "goodbye"}}}));
    world.apps.patch("shop", &PatchParams::default(), &patch).await.unwrap();
    eventually("the new config", async || {
        let deployment = json!(world.deployments.get("shop").await.unwrap());
        (config(&deployment) != before).then_some(())
    })
    .await;
    assert_eq!(configs.get("shop-config").await.unwrap().get("GREETING"), Some("goodbye"));

    // Its children go with it, and so do its numbers.
    assert!(world.metrics.page().contains("application_ready_replicas{namespace=\"default\",name=\"shop\"} 0"));
    world.apps.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("the end", async || {
        let gone = world.apps.get_opt("shop").await.unwrap().is_none()
            && world.deployments.get_opt("shop").await.unwrap().is_none()
            && services.get_opt("shop").await.unwrap().is_none();
        (gone && configs.get_opt("shop-config").await.unwrap().is_none()).then_some(())
    })
    .await;
    assert!(!world.metrics.page().contains("name=\"shop\""));
}

#[tokio::test]
async fn the_status_follows_the_deployment() {
    let world = World::new().await;
    world.create("shop", json!({"replicas": 2, "image": "nginx:1"})).await.unwrap();
    let app = world.in_phase("shop", Phase::Pending).await;
    assert_eq!(condition(&app, "Ready").unwrap()["reason"], "ReplicasNotReady");
    assert_eq!(condition(&app, "Progressing").unwrap()["status"], "True");

    let all = json!({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    world.report("shop", all).await;
    let app = world.in_phase("shop", Phase::Running).await;
    let ready = condition(&app, "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("ReconciliationSucceeded")));
    eventually("the rollout to end", async || {
        let app = world.raw().get("shop").await.unwrap();
        (condition(&app.data, "Progressing")?["status"] == "False").then_some(())
    })
    .await;
    let status = world.apps.get("shop").await.unwrap().status.unwrap();
    assert_eq!((status.observed_generation, status.replicas, status.ready_replicas), (1, 2, 2));

    let late =
        json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too late"});
    world.report("shop", json!({"conditions": [late]})).await;
    let app = world.in_phase("shop", Phase::Failed).await;
    assert_eq!(condition(&app, "Ready").unwrap()["message"], "too late");

    // Scaled to nothing, through the scale endpoint that its CRD declares.
    let scale = Patch::Merge(json!({"spec": {"replicas": 0}}));
    world.apps.patch_scale("shop", &PatchParams::default(), &scale).await.unwrap();
    let none =
        json!({"replicas": 0, "readyReplicas": 0, "updatedReplicas": 0, "availableReplicas": 0, "conditions": []});
    eventually("no replicas wanted", async || {
        (world.deployments.get("shop").await.unwrap().desired_replicas() == 0).then_some(())
    })
    .await;
    world.report("shop", none).await;
    world.in_phase("shop", Phase::Succeeded).await;

    // Each of it was an event, and counted.
    let events: Api<Event> = Api::default_namespaced(world.client.clone());
    eventually("four events", async || {
        let all = events.list(&ListParams::default()).await.unwrap();
        let seen: Vec<String> = all.items.into_iter().filter_map(|event| event.reason).collect();
        ["Pending", "Running", "Failed", "Succeeded"]
            .iter()
            .all(|reason| seen.iter().any(|one| one == reason))
            .then_some(())
    })
    .await;
    let page = world.metrics.page();
    for phase in ["Pending", "Running", "Failed", "Succeeded"] {
        assert!(page.contains(&format!("application_phase_changes_total{{phase=\"{phase}\"}} 1")), "{phase}: {page}");
    }
}

/// The fields that the webhooks of the operator refuse, or the warnings and the object.
async fn admit<T: Kind>(review: Review<T>) -> Result<(Vec<String>, T), Vec<String>> {
    let operator = application::operator(&Metrics::new()).unwrap();
    match Fake::new().admit(&operator, review).await {
        Ok(admitted) => Ok((admitted.warnings, admitted.object)),
        Err(error) => Err(error.find::<NotAdmitted>().unwrap().fields.iter().map(|(field, _)| field.clone()).collect()),
    }
}

#[tokio::test]
async fn webhooks_refuse_every_field_at_once_and_fill_in_the_rest() {
    let app = |spec: Value| {
        let object = json!({"metadata": {"name": "shop", "labels": {"app.kubernetes.io/name": "mine"}}, "spec": spec});
        konverge::serde_json::from_value::<Application>(object).unwrap()
    };
    let refused = admit(Review::create(app(json!({"replicas": 101, "image": "quay.io/a"})))).await.unwrap_err();
    assert_eq!(refused, ["spec.replicas", "spec.image"]);
    let limits = json!({"limits": {"memory": "1Gi"}});
    let (warnings, made) = admit(Review::create(app(json!({"image": "nginx", "resources": limits})))).await.unwrap();
    assert_eq!((warnings.len(), made.spec.replicas), (0, Some(1)));
    let labels = made.metadata.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/name"], "mine");
    assert_eq!(labels["app.kubernetes.io/instance"], "shop");
    let (warnings, _) = admit(Review::create(app(json!({"image": "nginx", "replicas": 0})))).await.unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn pods_of_applications_stay_in_their_sandbox() {
    let good = json!({"containers": [{"name": "app", "image": "nginx"}]});
    for (pointer, value, expect) in [
        ("/hostNetwork", json!(true), "spec.hostNetwork"),
        ("/hostPID", json!(true), "spec.hostPID"),
        ("/volumes", json!([{"name": "v", "hostPath": {"path": "/etc"}}]), "spec.volumes[0].hostPath"),
        ("/initContainers", json!([{"name": "i", "image": "ubuntu"}]), "spec.initContainers[0].image"),
        ("/containers/0/image", json!("ghcr.io/a/b"), "spec.containers[0].image"),
        ("/containers/0/securityContext", json!({"privileged": true}), "spec.containers[0].securityContext.privileged"),
        (
            "/containers/0/securityContext",
            json!({"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_ADMIN"]}}),
            "spec.containers[0].securityContext.capabilities.add[1]",
        ),
    ] {
        let mut spec = good.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[field] = value;
        let labels = json!({"app.kubernetes.io/managed-by": "application"});
        let mut pod = json!({"metadata": {"name": "p", "labels": labels}, "spec": spec});
        let parse = |pod: &Value| konverge::serde_json::from_value::<Pod>(pod.clone()).unwrap();
        let refused = admit(Review::create(parse(&pod))).await.map(|_| ());
        assert_eq!(refused, Err(vec![expect.to_owned()]), "{pointer}");
        pod["metadata"]["labels"] = json!({});
        assert!(admit(Review::create(parse(&pod))).await.is_ok(), "it is not of an Application: {pointer}");
        pod = json!({"metadata": {"name": "p", "labels": labels}, "spec": good});
        assert!(admit(Review::create(parse(&pod))).await.is_ok());
    }
}
