//! The fake client: what a test starts with, what one reconcile does, and what can be made to happen to it.

use konverge::k8s_openapi::api::apps::v1::{Deployment as RawDeployment, DeploymentStatus};
use konverge::kube::api::{Api, PostParams};
use konverge::prelude::*;
use konverge::serde_json::json;
use konverge::{Metrics, READY, WriteError};
use konverge_testkit::{Fake, Retry, Verb, retry};

/// Something with children, a status and a cleanup.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub struct SiteSpec {
    /// How many.
    pub replicas: i32,
}

/// Nothing in it is required, so that a condition can be set before anything else is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SiteStatus {
    /// How many of them are ready.
    pub ready: i32,
}

async fn reconcile(ctx: Context<Site>) -> Result<Action> {
    let replicas = ctx.resource().spec.replicas;
    if replicas < 0 {
        return Err(Error::permanent("less than nothing"));
    }
    let container = Container::new("app").image("nginx:1");
    let deployment = ctx.apply(Deployment::new(ctx.name()).replicas(replicas).container(container)).await?;
    if let Some(secret) = ctx.get::<Secret>("extra").await? {
        ctx.apply(ConfigMap::new(ctx.name()).data("from", secret.name())).await?;
    }
    ctx.set_status(SiteStatus { ready: deployment.ready_replicas() }).await?;
    ctx.event("Looked", "all is well").await?;
    Ok(Action::requeue(Duration::from_secs(60)))
}

async fn cleanup(ctx: Context<Site>) -> Result<()> {
    ctx.delete::<ConfigMap>("elsewhere").await
}

fn operator() -> Operator<Site> {
    Operator::<Site>::new().reconcile(reconcile).on_delete(cleanup)
}

fn site(replicas: i32) -> Site {
    Site::new("web", SiteSpec { replicas })
}

#[tokio::test]
async fn one_reconcile_does_what_the_operator_would() -> Result<()> {
    let fake = Fake::new().with(site(2));
    let action = fake.reconcile(&operator(), "web").await?;
    assert_eq!(action, Action::requeue(Duration::from_secs(60)));
    assert_eq!(
        fake.writes().lines(),
        ["patch Site default/web", "apply Deployment default/web", "patch Site/status default/web"]
    );
    assert_eq!(fake.events().await?, ["Normal Looked Site default/web: all is well"]);
    let finalizers = fake.get::<Site>("web").await?.metadata.finalizers.unwrap_or_default();
    assert_eq!(finalizers, ["example.com/site-finalizer"]);

    // The second time there is nothing left to do.
    fake.forget_calls();
    fake.reconcile(&operator(), "default/web").await?;
    assert_eq!(fake.writes().lines(), [""; 0]);
    assert!(fake.calls().iter().any(|call| call.is_about("Deployment")), "{}", fake.calls());
    Ok(())
}

#[tokio::test]
async fn what_is_there_at_the_start() -> Result<()> {
    let status = DeploymentStatus { ready_replicas: Some(2), replicas: Some(2), ..Default::default() };
    let deployment = Deployment::new("web").namespace("shop").container(Container::new("app").image("nginx:1"));
    let deployment = RawDeployment { status: Some(status), ..deployment.into_inner() };
    let mut site = site(2);
    site.metadata.namespace = Some("shop".into());
    let fake = Fake::new()
        .with(site)
        .with(deployment)
        .with(Secret::new("extra").namespace("shop"))
        .with(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}));
    fake.reconcile(&operator(), "shop/web").await?;
    assert_eq!(fake.get::<Site>("shop/web").await?.status, Some(SiteStatus { ready: 2 }));
    assert_eq!(fake.get::<ConfigMap>("shop/web").await?.inner().data.as_ref().unwrap()["from"], "extra");
    assert_eq!(fake.list::<Site>().await?.len(), 1);
    let namespace = fake.get::<konverge::k8s_openapi::api::core::v1::Namespace>("shop").await?;
    assert_eq!(namespace.metadata.labels.unwrap()["a"], "b");
    Ok(())
}

#[tokio::test]
async fn a_terminating_object_is_cleaned_up_and_goes() -> Result<()> {
    let leaving = json!({
        "apiVersion": "example.com/v1", "kind": "Site", "spec": {"replicas": 1},
        "metadata": {
            "name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/site-finalizer"],
        },
    });
    let fake = Fake::new().knows::<Site>().with(leaving).with(ConfigMap::new("elsewhere"));
    fake.when::<ConfigMap>(Verb::Delete).once().fail(500);

    // It stays as long as the cleanup fails.
    fake.reconcile(&operator(), "web").await.unwrap_err();
    assert!(fake.find::<Site>("web").await?.is_some());
    fake.reconcile(&operator(), "web").await?;
    assert!(fake.find::<Site>("web").await?.is_none());
    assert_eq!(
        fake.writes().lines(),
        ["delete ConfigMap default/elsewhere → 500", "delete ConfigMap default/elsewhere", "patch Site default/web"]
    );
    Ok(())
}

#[tokio::test]
async fn an_error_that_no_retry_mends_is_shown() -> Result<()> {
    let fake = Fake::new().with(site(-1));
    let error = fake.reconcile(&operator(), "web").await.unwrap_err();
    assert_eq!(retry(&error), Retry::UntilChanged);
    assert_eq!(fake.events().await?, ["Warning Failed Site default/web: less than nothing"]);
    let ready = fake.conditions::<Site>("web").await?;
    let ready = ready.get(READY).expect("it is not ready, and says so");
    assert_eq!((&ready["status"], &ready["message"]), (&json!("False"), &json!("reconcile failed: less than nothing")));
    Ok(())
}

/// Whoever can grant a right finds out on the object which one; it is tried again without anybody asking for it.
#[tokio::test]
async fn a_missing_rule_is_named_on_the_object() -> Result<()> {
    let fake = Fake::new().with(site(1));
    fake.when::<Deployment>(Verb::Apply).fail(403);
    let error = fake.reconcile(&operator(), "web").await.unwrap_err();
    assert_eq!(retry(&error), Retry::Backoff);
    let rule = r#"verbs: ["patch"], apiGroups: ["apps"], resources: ["deployments"], in namespace default"#;
    assert!(error.to_string().starts_with(&format!("an RBAC rule is missing: {rule}")), "{error}");
    assert_eq!(fake.events().await?, [format!("Warning Forbidden Site default/web: {error}")]);
    Ok(())
}

/// Only a change of the object mends it: it is left alone until then, and says why.
#[tokio::test]
async fn an_object_that_does_not_read_as_its_type_says_where() -> Result<()> {
    let mut definition = konverge::serde_json::to_value(Site::crd())?;
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let poison = json!({
        "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "web"}, "spec": {"replicas": "three"},
    });
    let fake = Fake::new().with(definition).with(poison);
    let error = fake.reconcile(&operator(), "web").await.unwrap_err();
    assert_eq!(retry(&error), Retry::UntilChanged);
    assert!(error.to_string().contains("expected i32"), "{error}");
    assert_eq!(fake.events().await?, [format!("Warning Failed Site default/web: {error}")]);
    Ok(())
}

/// An error of one's own that wraps another: both are shown.
#[tokio::test]
async fn what_is_behind_an_error_is_shown_too() -> Result<()> {
    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the size cannot be used")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    async fn reconcile(_: Context<Site>) -> Result<Action> {
        "x".parse::<u32>().map(|_| Action::await_change()).map_err(|error| Error::permanent(Outer(error)))
    }
    let fake = Fake::new().with(site(1));
    fake.reconcile(&Operator::<Site>::new().reconcile(reconcile), "web").await.unwrap_err();
    let message = "the size cannot be used: invalid digit found in string";
    assert_eq!(fake.events().await?, [format!("Warning Failed Site default/web: {message}")]);
    let conditions = fake.conditions::<Site>("web").await?;
    assert_eq!(
        conditions.get(READY).map(|ready| &ready["message"]),
        Some(&json!(format!("reconcile failed: {message}")))
    );
    Ok(())
}

/// Kinds of the core group have no group to name things after.
#[tokio::test]
async fn a_core_kind_is_reconciled_like_any_other() -> Result<()> {
    async fn copy(ctx: Context<Secret>) -> Result<Action> {
        ctx.apply(ConfigMap::new(ctx.name())).await?;
        Ok(Action::await_change())
    }
    let operator = || Operator::<Secret>::new().reconcile(copy).with_finalizer();
    let fake = Fake::new().with(Secret::new("web"));
    fake.reconcile(&operator(), "web").await?;
    assert_eq!(fake.writes().lines(), ["patch Secret default/web", "apply ConfigMap default/web"]);

    let metrics = Metrics::new();
    let running = fake.run_unrestricted(operator().metrics(metrics.clone()));
    fake.delete::<ConfigMap>("web").await?;
    fake.wait_until("web", |_: &ConfigMap| true).await?;
    running.stop().await?;
    assert!(metrics.page().contains(r#"controller_runtime_reconcile_errors_total{controller="secret"} 0"#));
    Ok(())
}

/// What happens to the apply of the Deployment, and how the operator sees it.
#[tokio::test]
async fn reactions() -> Result<()> {
    type Script = fn(&Fake);
    let cases: [(Script, &str, Option<Retry>); 9] = [
        (|fake| fake.when::<Deployment>(Verb::Apply).once().fail(503), "→ 503", Some(Retry::Outage)),
        (|fake| fake.when::<Deployment>(Verb::Apply).named("web").conflict(), "→ 409", Some(Retry::Fresh)),
        (|fake| fake.when::<Deployment>(Verb::Apply).fail(422), "→ 422", Some(Retry::Backoff)),
        (|fake| fake.when::<Deployment>(Verb::Apply).fail_with(403, "not you"), "→ 403", Some(Retry::Backoff)),
        (
            |fake| fake.when::<Deployment>(Verb::WRITES).throttle(Duration::from_secs(7)),
            "→ 429",
            Some(Retry::Hold(Duration::from_secs(7))),
        ),
        (|fake| fake.whenever(Verb::Apply).unreachable(), "→ no answer", Some(Retry::Outage)),
        (|fake| fake.when::<Deployment>(Verb::Apply).lose_answer(), "→ no answer", Some(Retry::Outage)),
        (|fake| fake.when::<Deployment>(Verb::Apply).named("another").fail(503), "", None),
        (|fake| fake.when::<Deployment>(Verb::Apply).status().fail(503), "", None),
    ];
    for (script, expect, verdict) in cases {
        let fake = Fake::new().with(site(1));
        script(&fake);
        let reconciled = fake.reconcile(&operator(), "web").await;
        assert_eq!(reconciled.as_ref().err().map(retry), verdict, "{reconciled:?}");
        let apply = fake.writes().only(|call| call.is_about("Deployment")).lines();
        assert_eq!(apply, [format!("apply Deployment default/web {expect}").trim()]);
    }
    Ok(())
}

#[tokio::test]
async fn a_lost_answer_leaves_the_object_behind_and_an_unreachable_server_does_not() -> Result<()> {
    for lost in [true, false] {
        let fake = Fake::new().with(site(1));
        let when = fake.when::<Deployment>(Verb::Apply).once();
        if lost {
            when.lose_answer()
        } else {
            when.unreachable()
        }
        let error = fake.reconcile(&operator(), "web").await.unwrap_err();
        let unknown = matches!(error.find(), Some(WriteError::Unknown { .. }));
        assert_eq!((unknown, fake.find::<Deployment>("web").await?.is_some()), (lost, lost));
        // Either way, the next reconcile brings it to its end.
        fake.reconcile(&operator(), "web").await?;
        assert!(fake.find::<Deployment>("web").await?.is_some());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_calls_take_no_time_when_time_is_paused() -> Result<()> {
    let fake = Fake::new().with(site(1));
    fake.when::<Deployment>(Verb::Apply).once().delay(Duration::from_secs(20));
    fake.when::<Site>(Verb::Patch).status().delay(Duration::from_secs(5));
    let began = tokio::time::Instant::now();
    fake.reconcile(&operator(), "web").await?;
    assert!(began.elapsed() >= Duration::from_secs(25));

    // Longer than the client waits, and as often as it asks.
    let fake = Fake::new().with(site(1));
    fake.when::<Deployment>(Verb::Apply).delay(Duration::from_secs(3600));
    let error = fake.reconcile(&operator(), "web").await.unwrap_err();
    assert!(matches!(error.find(), Some(WriteError::Unknown { .. })), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn clear_words_for_what_is_not_there() -> Result<()> {
    let operator = operator();
    let fake = Fake::new();
    let error = fake.reconcile(&operator, "web").await.unwrap_err();
    for part in [
        "the server does not serve Site of example.com/v1: there is no kind of the group example.com; ",
        "install the CustomResourceDefinition sites.example.com; ",
        "Fake::new().knows::<Site>()",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = fake.get::<Site>("web").await.unwrap_err();
    assert!(error.to_string().starts_with("the server does not serve Site of example.com/v1; "), "{error}");
    assert!(error.to_string().contains("Fake::new().knows::<Site>()"), "{error}");

    let fake = Fake::new().knows::<Site>();
    let error = fake.reconcile(&operator, "wbe").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no Site default/wbe that could be reconciled");
    assert_eq!(fake.get::<Site>("wbe").await.unwrap_err().to_string(), "there is no Site default/wbe");
    assert_eq!(fake.delete::<Site>("wbe").await.unwrap_err().to_string(), "there is no Site default/wbe");
    let error = fake.reconcile(&Operator::<Site>::new(), "web").await.unwrap_err();
    assert!(error.to_string().contains("has no function"), "{error}");

    // What the server does not take is said by whoever asks first.
    let fake = Fake::new().with(ConfigMap::new("Not A Name"));
    let error = fake.get::<ConfigMap>("x").await.unwrap_err();
    assert!(error.to_string().contains("ConfigMap \"Not A Name\" is invalid"), "{error}");
    let configs: Api<ConfigMap> = Api::default_namespaced(fake.client());
    let error = configs.create(&PostParams::default(), &ConfigMap::new("fine")).await.unwrap_err();
    assert!(error.to_string().contains("is invalid"), "{error}");
    Ok(())
}

#[tokio::test]
#[should_panic(expected = "use create")]
async fn it_is_too_late_for_seeds_once_it_runs() {
    let fake = Fake::new();
    fake.list::<ConfigMap>().await.unwrap();
    let _ = fake.with(ConfigMap::new("late"));
}
