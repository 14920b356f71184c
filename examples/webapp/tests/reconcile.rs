//! One reconcile at a time, with a fake client: what it writes, what it answers, what it makes of failures.

use konverge::prelude::*;
use konverge_testkit::{Fake, Retry, Verb, retry};
use webapp::{WebApp, WebAppSpec, operator};

fn shop() -> WebApp {
    WebApp::new("shop", WebAppSpec { image: "nginx:1".into(), replicas: 2 })
}

#[tokio::test]
async fn a_webapp_gets_its_children() -> Result<()> {
    let fake = Fake::new().with(shop());

    let action = fake.reconcile(&operator(), "shop").await?;

    assert_eq!(action, Action::requeue(Duration::from_secs(300)));
    assert_eq!(
        fake.writes().lines(),
        ["patch WebApp default/shop", "apply Deployment default/shop", "apply Service default/shop"]
    );
    assert_eq!(fake.get::<Deployment>("shop").await?.inner().spec.replicas, Some(2));

    // What is so already is not written again.
    fake.forget_calls();
    fake.reconcile(&operator(), "shop").await?;
    assert!(fake.writes().is_empty(), "{}", fake.writes());
    Ok(())
}

#[tokio::test]
async fn a_failed_write_is_tried_again_and_what_is_done_stays_done() -> Result<()> {
    let fake = Fake::new().with(shop());
    fake.when::<Service>(Verb::Apply).once().fail(503);

    let error = fake.reconcile(&operator(), "shop").await.unwrap_err();
    assert_eq!(retry(&error), Retry::Outage);

    fake.forget_calls();
    fake.reconcile(&operator(), "shop").await?;
    assert_eq!(fake.writes().lines(), ["apply Service default/shop"]);
    Ok(())
}
