//! The operator as a whole: its status follows a Deployment that changes.

use konverge::k8s_openapi::api::apps::v1::Deployment as RawDeployment;
use konverge::prelude::*;
use konverge_testkit::Cluster;
use myapp::{MyApp, MyAppSpec, operator};

fn phase(wanted: &str) -> impl Fn(&MyApp) -> bool {
    move |app| app.status.as_ref().is_some_and(|status| status.phase == wanted)
}

#[tokio::test]
async fn the_status_follows_the_deployment() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<MyApp>().await?;
    let running = cluster.run(operator());

    cluster.create(MyApp::new("shop", MyAppSpec { replicas: 2, image: "nginx:1".into(), port: 80 })).await?;
    cluster.wait_until("shop", phase("Pending")).await?;

    // Nothing runs pods here: the test says that the replicas are ready, and that they are not any more.
    for (ready, expect) in [(2, "Running"), (1, "Pending")] {
        let report = |deployment: &mut RawDeployment| {
            let status = deployment.status.get_or_insert_default();
            (status.replicas, status.ready_replicas) = (Some(2), Some(ready));
        };
        cluster.edit("shop", report).await?;
        cluster.wait_until("shop", phase(expect)).await?;
    }
    running.stop().await
}
