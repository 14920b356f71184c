//! The operator as a whole, in a cluster that is in the same process: it follows changes and mends what others break.

use konverge::prelude::*;
use konverge_testkit::Cluster;
use webapp::{WebApp, WebAppSpec, operator};

fn replicas(wanted: i32) -> impl Fn(&Deployment) -> bool {
    move |deployment| deployment.inner().spec.replicas == Some(wanted)
}

#[tokio::test]
async fn a_webapp_gets_its_children_and_keeps_them() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install::<WebApp>().await?;
    let running = cluster.run(operator());

    cluster.create(WebApp::new("shop", WebAppSpec { image: "nginx:1".into(), replicas: 2 })).await?;
    cluster.wait_until("shop", replicas(2)).await?;
    let service: Service = cluster.wait_until("shop", |_| true).await?;

    // A change of the object reaches its children.
    cluster.edit("shop", |app: &mut WebApp| app.spec.replicas = 5).await?;
    cluster.wait_until("shop", replicas(5)).await?;

    // What others change is put back, what they delete comes back.
    cluster.edit("shop", |deployment: &mut Deployment| *deployment = deployment.clone().replicas(1)).await?;
    cluster.wait_until("shop", replicas(5)).await?;
    cluster.delete::<Service>("shop").await?;
    let another = |new: &Service| new.inner().metadata.uid != service.inner().metadata.uid;
    cluster.wait_until("shop", another).await?;

    // Its children go with it.
    cluster.delete::<WebApp>("shop").await?;
    cluster.wait_gone::<WebApp>("shop").await?;
    cluster.wait_gone::<Deployment>("shop").await?;
    cluster.wait_gone::<Service>("shop").await?;
    running.stop().await
}
