//! Runs the WebApp operator against the cluster of the current kubeconfig.

use konverge::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    webapp::operator().run().await
}
