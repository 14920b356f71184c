//! Runs the Application operator against the cluster of the current kubeconfig.

use konverge::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    application::operator(&konverge::Metrics::new())?.run().await
}
