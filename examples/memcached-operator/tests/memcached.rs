//! Memcached: single reconciles with a fake client, and the whole operator with an API server in this process.

use konverge::k8s_openapi::api::apps::v1::Deployment as DeploymentObject;
use konverge::prelude::*;
use konverge_testkit::{Cluster, Fake, from_yaml};

use memcached_operator::kinds::{self, memcached::Memcached};
use memcached_operator::operator;

/// The name of the sample, and of its Deployment.
const SAMPLE: &str = "memcached-sample";

/// The object that users begin with.
fn sample() -> Result<Memcached> {
    from_yaml(include_str!("../config/samples/cache_v1_memcached.yaml"))
}

#[tokio::test]
async fn a_memcached_gets_a_deployment() -> Result<()> {
    let replicas = sample()?.spec.replicas;
    let (fake, controller) = (Fake::new().with(sample()?), kinds::memcached());

    fake.reconcile(&controller, SAMPLE).await?;

    let deployment: Deployment = fake.get(SAMPLE).await?;
    assert_eq!(deployment.inner().spec.replicas, Some(replicas));
    let conditions = fake.conditions::<Memcached>(SAMPLE).await?;
    assert!(!conditions.is_true(READY), "nothing runs yet");

    // What is so already is not written again.
    fake.forget_calls();
    fake.reconcile(&controller, SAMPLE).await?;
    assert!(fake.writes().is_empty(), "{}", fake.writes());
    Ok(())
}

#[tokio::test]
async fn the_status_follows_the_deployment() -> Result<()> {
    let cluster = Cluster::start().await?;
    for definition in operator().definitions() {
        cluster.create(definition).await?;
    }
    let running = cluster.run(operator());
    running.ready().await?;

    let replicas = cluster.create(sample()?).await?.spec.replicas;
    cluster.wait_until(SAMPLE, |_: &Deployment| true).await?;
    // Nothing runs pods here: the test says that they are ready.
    let report = |deployment: &mut DeploymentObject| {
        let status = deployment.status.get_or_insert_default();
        (status.replicas, status.ready_replicas) = (Some(replicas), Some(replicas));
    };
    cluster.edit(SAMPLE, report).await?;
    let is_ready = |object: &Memcached| {
        object.status.as_ref().is_some_and(|status| status.ready_replicas == replicas)
    };
    cluster.wait_until(SAMPLE, is_ready).await?;

    cluster.delete::<Memcached>(SAMPLE).await?;
    cluster.wait_gone::<Deployment>(SAMPLE).await?;
    running.stop().await
}
