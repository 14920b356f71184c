//! The versions of Memcached: objects survive the way to every other version and back.

use konverge::prelude::*;

use memcached_operator::kinds;

#[tokio::test]
async fn objects_survive_conversions() -> Result<()> {
    konverge_testkit::round_trips(&kinds::memcached()).await.map(drop)
}
