//! What is checked before a Fleet is stored.

use konverge::prelude::*;
use konverge_testkit::{Fake, Review, from_yaml};

use memcached_operator::kinds::{self, fleet::Fleet};

/// The object that users begin with.
fn sample() -> Result<Fleet> {
    from_yaml(include_str!("../config/samples/fleet_v1_fleet.yaml"))
}

#[tokio::test]
async fn a_label_is_filled_in() -> Result<()> {
    let controller = kinds::fleet();

    let admitted = Fake::new().admit(&controller, Review::create(sample()?)).await?;

    let labels = admitted.object.metadata.labels.unwrap_or_default();
    assert_eq!(labels["app.kubernetes.io/part-of"], "memcached-operator");
    Ok(())
}
