//! An operator in a test may do what it declares, and nothing else.

use konverge::prelude::*;
use konverge::{Rules, Settings};
use konverge_testkit::Cluster;

/// Has one child.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Parent", namespaced)]
pub struct ParentSpec {
    /// What the child says.
    pub text: String,
}

async fn reconcile(ctx: Context<Parent>) -> Result<Action> {
    ctx.apply(ConfigMap::new(ctx.name()).data("text", &ctx.resource().spec.text)).await?;
    Ok(Action::await_change())
}

async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    cluster.install::<Parent>().await?;
    Ok(cluster)
}

fn parent() -> Parent {
    Parent::new("p", ParentSpec { text: "hi".into() })
}

#[tokio::test]
async fn what_is_used_and_what_is_not_is_told() -> Result<()> {
    let cluster = cluster().await?;
    let operator = Operator::<Parent>::new()
        .reconcile(reconcile)
        .owns::<ConfigMap>()
        .needs::<ConfigMap>(["deletecollection"])
        .owns::<Service>()
        .needs::<Secret>(["get"]);
    let running = cluster.run(operator);
    cluster.create(parent()).await?;
    cluster.wait_until::<ConfigMap>("p", |_| true).await?;
    running.stop().await?;
    let permissions = cluster.permissions();
    let configmaps = |verbs: &[&str]| Rules::new().allow::<ConfigMap>(verbs);
    assert!(permissions.lacking.is_empty(), "{permissions}");
    // An apply that creates an object needs both rights.
    assert!(configmaps(&["list", "watch", "create", "patch"]).without(&permissions.used).is_empty(), "{permissions}");
    // No Service is written; and what is declared by hand counts verb by verb.
    let in_vain = configmaps(&["deletecollection"]).allow::<Secret>(["get"]);
    assert_eq!(permissions.unused, in_vain.allow::<Service>(["create", "patch", "delete"]), "{permissions}");
    assert!(!permissions.are_least());
    Ok(())
}

/// An operator that declares its children needs no deletion, no event and no status in a test to have the least rights.
#[tokio::test]
async fn what_a_declaration_brings_is_not_too_much() -> Result<()> {
    let cluster = cluster().await?;
    let running = cluster.run(Operator::<Parent>::new().reconcile(reconcile).owns::<ConfigMap>().with_finalizer());
    cluster.create(parent()).await?;
    cluster.wait_until::<ConfigMap>("p", |_| true).await?;
    running.stop().await?;
    let permissions = cluster.permissions();
    assert!(permissions.are_least(), "{permissions}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_not_declared_is_denied_and_named() -> Result<()> {
    let cluster = cluster().await?;
    // It may read its children, but not write them.
    let running =
        cluster.run(Operator::<Parent>::new().reconcile(reconcile).needs::<ConfigMap>(["get", "list", "watch"]));
    cluster.create(parent()).await?;
    let error = cluster.wait_until::<ConfigMap>("p", |_| true).await.unwrap_err().to_string();
    assert!(error.contains("needed and not declared: patch configmaps"), "{error}");
    assert!(error.contains(".owns::<Kind>()"), "{error}");
    assert!(cluster.events().await?.iter().any(|event| event.contains("patch") && event.contains("configmaps")));
    drop(running);
    // The test itself may do everything, and so may an operator that is run without limits.
    let running = cluster.run_unrestricted(Operator::<Parent>::new().reconcile(reconcile));
    cluster.wait_until::<ConfigMap>("p", |_| true).await?;
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn rules_end_with_the_namespaces_that_are_watched() -> Result<()> {
    async fn read_abroad(ctx: Context<Parent>) -> Result<Action> {
        ctx.within("kube-system").get::<ConfigMap>("extension-apiserver-authentication").await?;
        reconcile(ctx).await
    }
    let cluster = cluster().await?;
    let settings = Settings { namespaces: vec!["default".into()], ..Settings::default() };
    let operator = Operator::<Parent>::new().reconcile(read_abroad).owns::<ConfigMap>().across_namespaces();
    let running = cluster.run(operator.settings(settings));
    cluster.create(parent()).await?;
    let error = cluster.wait_until::<ConfigMap>("p", |_| true).await.unwrap_err().to_string();
    assert!(error.contains("the operator was denied what it does not declare"), "{error}");
    running.stop().await
}
