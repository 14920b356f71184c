//! Runs an instance of the Ticket operator against the cluster of the current kubeconfig. `docs/guide/raft.md` runs three of them on a
//! laptop.

use konverge::RaftConfig;
use konverge::prelude::*;

#[tokio::main]
async fn main() -> Result<()> {
    // Which member this is, the name of the Pod says when it starts: `tickets-0` is 0.
    let mut raft = RaftConfig::new("tickets").service_name("tickets-headless");
    if let Ok(directory) = std::env::var("DATA_DIR") {
        raft = raft.data_dir(directory);
    }
    tickets::operator(raft).run().await
}
