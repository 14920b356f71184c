//! Status, conditions, events and bad specs, one reconcile at a time.

use konverge::k8s_openapi::api::apps::v1::{Deployment as RawDeployment, DeploymentStatus};
use konverge::prelude::*;
use konverge::{PROGRESSING, READY};
use konverge_testkit::{Fake, Retry, retry};
use myapp::{MyApp, MyAppSpec, MyAppStatus, operator};

fn app(replicas: i32, port: i32) -> MyApp {
    MyApp::new("shop", MyAppSpec { replicas, image: "nginx:1".into(), port })
}

/// A Deployment that has this many ready replicas.
fn ready(replicas: i32) -> RawDeployment {
    let deployment = Deployment::new("shop").replicas(2).container(Container::new("app").image("nginx:1"));
    let status = DeploymentStatus { replicas: Some(2), ready_replicas: Some(replicas), ..DeploymentStatus::default() };
    RawDeployment { status: Some(status), ..deployment.into_inner() }
}

#[tokio::test]
async fn the_status_says_what_the_deployment_says() -> Result<()> {
    for (replicas, phase, events) in [
        (0, "Pending", vec![]),
        (1, "Pending", vec![]),
        (2, "Running", vec!["Normal Running MyApp default/shop: all replicas are ready"]),
    ] {
        let fake = Fake::new().with(app(2, 80)).with(ready(replicas));
        fake.reconcile(&operator(), "shop").await?;
        let expect = MyAppStatus { phase: phase.into(), ready_replicas: replicas };
        assert_eq!(fake.get::<MyApp>("shop").await?.status, Some(expect));
        // Whoever watches sees the phase and the conditions change together.
        let statuses = fake.writes().only(|call| call.subresource.as_deref() == Some("status"));
        assert_eq!(statuses.lines(), ["patch MyApp/status default/shop"]);
        let conditions = fake.conditions::<MyApp>("shop").await?;
        let running = phase == "Running";
        assert_eq!((conditions.is_true(READY), conditions.is_true(PROGRESSING)), (running, !running));
        assert_eq!(fake.events().await?, events, "{replicas} ready");
    }
    Ok(())
}

#[tokio::test]
async fn a_bad_spec_is_explained_and_not_tried_again() -> Result<()> {
    for (bad, why) in [
        (app(0, 80), "spec.replicas: must be greater than 0"),
        (app(2, 0), "spec.port: must be between 1 and 65535"),
        (app(2, 70_000), "spec.port: must be between 1 and 65535"),
    ] {
        let fake = Fake::new().with(bad);
        let error = fake.reconcile(&operator(), "shop").await.unwrap_err();
        assert_eq!(retry(&error), Retry::UntilChanged);
        let events = fake.events().await?;
        assert!(events[0].starts_with("Warning Invalid MyApp default/shop: ") && events[0].contains(why), "{events:?}");
        // The only write is the condition that says so.
        assert_eq!(fake.writes().lines(), ["patch MyApp/status default/shop"]);
        let conditions = fake.conditions::<MyApp>("shop").await?;
        assert_eq!(conditions.get(READY).expect("a condition")["reason"], "Invalid");
    }
    Ok(())
}
