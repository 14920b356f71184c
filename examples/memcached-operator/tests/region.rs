//! Region: its sample is valid.

use konverge::prelude::*;
use konverge_testkit::{Cluster, from_yaml};

use memcached_operator::kinds::region::Region;
use memcached_operator::operator;

/// The object that users begin with.
fn sample() -> Result<Region> {
    from_yaml(include_str!("../config/samples/fleet_v1_region.yaml"))
}

#[tokio::test]
async fn the_sample_is_valid() -> Result<()> {
    let cluster = Cluster::start().await?;
    for definition in operator().definitions() {
        cluster.create(definition).await?;
    }
    let running = cluster.run(operator());
    running.ready().await?;

    cluster.create(sample()?).await?;
    running.stop().await
}
