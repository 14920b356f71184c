//! Runs the operator against the cluster of the current kubeconfig.

use konverge::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    memcached_operator::operator().run().await
}
