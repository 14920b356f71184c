//! What is missing is named, with what to do about it: kinds that the server does not serve, and objects.

use std::sync::{Arc, LazyLock};

use konverge::kube::core::DynamicObject;
use konverge::prelude::*;
use konverge::serde_json::{Value, json};
use konverge::tracing::Dispatch;
use konverge::{BackgroundTask, Health, WriteError};
use konverge_testkit::{Cluster, Fake, Retry, retry};
use tokio::time::Instant;

/// A shop that asks for nothing.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
pub struct ShopSpec {}

fn shop() -> Shop {
    Shop::new("s", ShopSpec {})
}

/// A CRD as others bring it: without a Rust type.
fn certificate_definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"plural": "certificates", "kind": "Certificate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn certificates() -> ApiKind {
    ApiKind::new("example.org/v1", "Certificate", "certificates", Scope::Namespaced)
}

/// Applies a child of a kind that has no Rust type.
async fn certify(ctx: Context<Shop>) -> Result<Action> {
    let certificate = DynamicObject::new(ctx.name(), certificates().resource()).data(json!({"spec": {"host": "s"}}));
    ctx.dynamic(&certificates()).apply(certificate).await?;
    Ok(Action::await_change())
}

#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The log of this thread, for as long as the guard lives.
    fn start() -> (Self, konverge::tracing::subscriber::DefaultGuard) {
        // With one subscriber only, whatever another test logs first would be switched off for all threads.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&SECOND);
        let log = Self::default();
        let writes = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writes.clone()).finish();
        (log, konverge::tracing::subscriber::set_default(subscriber))
    }

    fn lines_with(&self, text: &str) -> Vec<String> {
        let all = self.0.lock().clone();
        String::from_utf8_lossy(&all).lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

/// A test does not wait for a CRD that nobody installs.
#[tokio::test(start_paused = true)]
async fn a_child_of_a_kind_without_a_crd_is_an_error_at_once() -> Result<()> {
    let operator = Operator::<Shop>::new().reconcile(certify);
    let began = Instant::now();
    let error = Fake::new().with(shop()).reconcile(&operator, "s").await.unwrap_err();
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    for part in ["Certificate of example.org/v1", "certificates.example.org", "Fake::new().knows::<Certificate>()"] {
        assert!(format!("{error:#}").contains(part), "{part}: {error:#}");
    }
    // A running operator would try again, because somebody may install the kind.
    assert_eq!((error.get_reason(), retry(&error)), ("NotServed", Retry::Backoff));
    let own = Fake::new().reconcile(&operator, "s").await.unwrap_err();
    assert!(format!("{own:#}").contains("install::<Shop>()"), "{own:#}");
    assert_eq!((own.get_reason(), retry(&own)), ("NotServed", Retry::Backoff));
    // The order does not matter: kinds are installed before objects.
    let certificate = json!({"apiVersion": "example.org/v1", "kind": "Certificate", "metadata": {"name": "other"}});
    let fake = Fake::new().with(shop()).with(certificate).with(certificate_definition());
    fake.reconcile(&operator, "s").await?;
    assert_eq!(fake.writes().lines(), ["apply Certificate default/s"]);
    Ok(())
}

/// The probe and the log say what a controller and a background task wait for.
#[tokio::test(start_paused = true)]
async fn a_controller_that_waits_for_its_kind_says_so() -> Result<()> {
    let (log, _logging) = Log::start();
    let cluster = Cluster::start().await?;
    let health = Health::new();
    let operator = Operator::<Shop>::new()
        .reconcile(async |_: Context<Shop>| Ok(Action::await_change()))
        .health(health.clone())
        .background("prices", async |task: BackgroundTask| {
            task.stopped().await;
            Ok(())
        });
    let running = cluster.run_unrestricted(operator);
    tokio::time::sleep(Duration::from_secs(80)).await;
    let why = "Shop of example.com/v1: the server does not serve Shop of example.com/v1: there is no kind of the group \
               example.com; install the CustomResourceDefinition shops.example.com";
    assert_eq!(health.failing_readiness(), [("shop.example.com".to_owned(), format!("waiting for {why}"))]);
    let waiting = log.lines_with("waiting until the kind is served");
    assert_eq!(waiting.len(), 2, "once, and again after a minute: {waiting:#?}");
    assert!(waiting.iter().all(|line| line.contains("controllers=\"shop.example.com\"")), "{waiting:#?}");
    let tasks = log.lines_with("a background task has not started");
    assert_eq!(tasks.len(), 2, "{tasks:#?}");
    assert!(tasks.iter().all(|line| line.contains("task=\"prices\"") && line.contains(why)), "{tasks:#?}");

    cluster.install::<Shop>().await?;
    while !health.is_ready() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.stop().await?;
    assert_eq!(log.lines_with("a background task starts").len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn background_tasks_that_are_cut_off_are_named() -> Result<()> {
    let (log, _logging) = Log::start();
    let fake = Fake::new().with(shop());
    let operator = Operator::<Shop>::new()
        .reconcile(async |_: Context<Shop>| Ok(Action::await_change()))
        .background("brief", async |_: BackgroundTask| Ok(()))
        .background("deaf", async |_: BackgroundTask| std::future::pending().await);
    let running = fake.run_unrestricted(operator);
    while log.lines_with("a background task starts").len() < 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.stop().await?;
    let cut = log.lines_with("cutting off background tasks");
    assert_eq!(cut.len(), 1, "{cut:#?}");
    assert!(cut[0].contains("tasks=\"deaf\""), "{cut:#?}");
    Ok(())
}

#[tokio::test]
async fn a_failed_patch_names_its_object() -> Result<()> {
    async fn patch(ctx: Context<Shop>) -> Result<Action> {
        let patch = match ctx.name() {
            "s" => Patch::Json(json!([{"op": "add", "path": "/data", "value": {}}])),
            _ => Patch::Merge { patch: json!({"data": {}}), resource_version: String::new() },
        };
        ctx.patch::<ConfigMap>("prices", patch).await?;
        Ok(Action::await_change())
    }
    let operator = Operator::<Shop>::new().reconcile(patch);
    let fake = Fake::new().with(shop()).with(Shop::new("t", ShopSpec {}));
    for name in ["s", "t"] {
        let error = fake.reconcile(&operator, name).await.unwrap_err();
        assert!(format!("{error:#}").contains("cannot patch ConfigMap default/prices: "), "{error:#}");
        assert!(error.find::<WriteError>().is_some(), "{error:?}");
    }
    Ok(())
}

/// A kind that is not served has one reason, whoever finds out: a cache, a write, a read or discovery.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_has_one_reason() -> Result<()> {
    async fn delete(ctx: Context<Shop>) -> Result<Action> {
        ctx.dynamic(&certificates()).delete("c").await?;
        Ok(Action::await_change())
    }
    async fn list(ctx: Context<Shop>) -> Result<Action> {
        ctx.dynamic(&certificates()).list().await?;
        Ok(Action::await_change())
    }
    async fn patch(ctx: Context<Shop>) -> Result<Action> {
        ctx.dynamic(&certificates()).patch("c", Patch::Json(json!([]))).await?;
        Ok(Action::await_change())
    }
    async fn discover(ctx: Context<Shop>) -> Result<Action> {
        ApiKind::discover(&ctx.client(), "example.org/v1", "Certificate").await?;
        Ok(Action::await_change())
    }
    for (at, operator) in [
        Operator::<Shop>::new().reconcile(certify),
        Operator::<Shop>::new().reconcile(delete),
        Operator::<Shop>::new().reconcile(list),
        Operator::<Shop>::new().reconcile(patch),
        Operator::<Shop>::new().reconcile(discover),
    ]
    .into_iter()
    .enumerate()
    {
        let error = Fake::new().with(shop()).reconcile(&operator, "s").await.unwrap_err();
        assert_eq!((error.get_reason(), retry(&error)), ("NotServed", Retry::Backoff), "{at}: {error:#}");
    }
    Ok(())
}
