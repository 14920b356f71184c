//! Runs the MyApp operator against the cluster of the current kubeconfig.

use konverge::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    myapp::operator().run().await
}
