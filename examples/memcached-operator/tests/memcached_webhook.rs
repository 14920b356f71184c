//! What is checked before a Memcached is stored.

use konverge::prelude::*;
use konverge_testkit::{Fake, NotAdmitted, Review, from_yaml};

use memcached_operator::kinds::{self, memcached::Memcached};

/// The object that users begin with.
fn sample() -> Result<Memcached> {
    from_yaml(include_str!("../config/samples/cache_v1_memcached.yaml"))
}

#[tokio::test]
async fn a_label_is_filled_in() -> Result<()> {
    let controller = kinds::memcached();

    let admitted = Fake::new().admit(&controller, Review::create(sample()?)).await?;

    let labels = admitted.object.metadata.labels.unwrap_or_default();
    assert_eq!(labels["app.kubernetes.io/part-of"], "memcached-operator");
    Ok(())
}

#[tokio::test]
async fn a_name_that_is_too_long_is_refused() -> Result<()> {
    let (controller, mut object) = (kinds::memcached(), sample()?);
    Fake::new().admit(&controller, Review::create(object.clone())).await?;
    object.metadata.name = Some("x".repeat(64));

    let refused = Fake::new().admit(&controller, Review::create(object)).await.unwrap_err();

    let denied = refused.find::<NotAdmitted>().expect("the webhook refuses it");
    assert_eq!((denied.code, denied.fields[0].0.as_str()), (422, "metadata.name"));
    Ok(())
}
