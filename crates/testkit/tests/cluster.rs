//! The cluster: an operator runs beside the test, and the test waits for what it does.

use konverge::k8s_openapi::api::apps::v1::Deployment as RawDeployment;
use konverge::prelude::*;
use konverge::serde_json::json;
use konverge_testkit::{Cluster, Fake, Verb};

/// Counts what is ready.
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
    let container = Container::new("app").image("nginx:1");
    let replicas = ctx.resource().spec.replicas;
    let deployment = ctx.apply(Deployment::new(ctx.name()).replicas(replicas).container(container)).await?;
    ctx.set_status(SiteStatus { ready: deployment.ready_replicas() }).await?;
    Ok(Action::await_change())
}

fn operator() -> Operator<Site> {
    Operator::<Site>::new().reconcile(reconcile).with_finalizer()
}

fn replicas(wanted: i32) -> impl Fn(&Deployment) -> bool {
    move |deployment| deployment.inner().spec.replicas == Some(wanted)
}

#[tokio::test]
async fn an_operator_runs_and_the_test_waits_for_what_it_does() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Site>().await?;
    let running = cluster.run_unrestricted(operator());

    cluster.create(Site::new("web", SiteSpec { replicas: 2 })).await?;
    cluster.wait_until("web", replicas(2)).await?;
    cluster.edit("web", |site: &mut Site| site.spec.replicas = 3).await?;
    cluster.wait_until("web", replicas(3)).await?;

    // There is no kubelet: the test says what is ready. Only the status is written, and the operator sees it.
    let ready = |deployment: &mut RawDeployment| {
        let status = deployment.status.get_or_insert_default();
        (status.replicas, status.ready_replicas) = (Some(3), Some(3));
    };
    cluster.edit("web", ready).await?;
    let site: Site = cluster.wait_until("web", |site: &Site| site.status == Some(SiteStatus { ready: 3 })).await?;
    assert_eq!(site.spec.replicas, 3);

    cluster.delete::<Site>("web").await?;
    cluster.wait_gone::<Site>("web").await?;
    cluster.wait_gone::<Deployment>("web").await?;
    running.stop().await
}

/// The pauses between the attempts take no time here.
#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again() -> Result<()> {
    let fake = Fake::new().with(Site::new("web", SiteSpec { replicas: 2 }));
    fake.when::<Deployment>(Verb::Apply).times(2).fail(503);
    let running = fake.run_unrestricted(operator());
    fake.wait_until("web", |site: &Site| site.status.is_some()).await?;
    let applies = fake.writes().only(|call| call.verb == Verb::Apply).lines();
    let failed = "apply Deployment default/web → 503";
    assert_eq!(applies, [failed, failed, "apply Deployment default/web"]);
    running.stop().await
}

/// With paused time the deadline comes as soon as nothing else is left to happen.
#[tokio::test(start_paused = true)]
async fn a_wait_in_vain_shows_the_object_and_the_calls() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Site>().await?;
    let running = cluster.run_unrestricted(operator());
    cluster.create(Site::new("web", SiteSpec { replicas: 2 })).await?;
    let error = cluster.wait_until("web", replicas(7)).await.unwrap_err().to_string();
    for expect in ["Deployment default/web did not become", "\"replicas\": 2", "apply Deployment default/web"] {
        assert!(error.contains(expect), "{expect} is not in: {error}");
    }
    let error = cluster.wait_until("other", replicas(7)).await.unwrap_err().to_string();
    assert!(error.contains("Deployment default/other did not become"), "{error}");
    assert!(error.contains("it was not there"), "{error}");
    let error = cluster.wait_gone::<Site>("web").await.unwrap_err().to_string();
    assert!(error.contains("Site default/web is not gone"), "{error}");
    running.stop().await
}

/// Whatever a fake can start with can be created later, and comes back as what it was given as.
#[tokio::test]
async fn objects_are_created_from_types_and_from_json() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<Site>().await?;
    let typed: Site = cluster.create(Site::new("typed", SiteSpec { replicas: 1 })).await?;
    assert_eq!(typed.metadata.namespace.as_deref(), Some("default"));
    let container = Container::new("web").image("web:1");
    let built: Deployment = cluster.create(Deployment::new("built").replicas(3).container(container)).await?;
    assert!(replicas(3)(&built));
    let raw = cluster
        .create(json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "raw"},
            "spec": {"replicas": 2}, "status": {"ready": 2},
        }))
        .await?;
    assert!(raw["metadata"]["uid"].is_string(), "{raw}");
    assert_eq!(cluster.get::<Site>("raw").await?.status, Some(SiteStatus { ready: 2 }));
    // What the types would not let pass is for the server to judge.
    let wrong = json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "x"}, "spec": {}});
    let error = cluster.create(wrong).await.unwrap_err().to_string();
    assert!(error.contains("spec.replicas: Required value"), "{error}");
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Sight", "metadata": {"name": "x"}});
    let error = cluster.create(unknown).await.unwrap_err().to_string();
    assert!(error.contains("Sight"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_operator_that_cannot_start_says_so() -> Result<()> {
    let cluster = Cluster::start().await?;
    let running = cluster.run_unrestricted(Operator::<Site>::new());
    let error = running.stop().await.unwrap_err();
    assert!(error.to_string().contains("has no function"), "{error}");
    let error = cluster.wait_until("web", |_: &Site| true).await.unwrap_err();
    assert!(error.to_string().contains("cluster.install::<Site>()"), "{error}");
    Ok(())
}
