//! Runs an instance of the Ticket operator against the cluster of the current kubeconfig. `docs/guide/raft.md` runs three of them on a
//! laptop.

use konverge::prelude::*;
use konverge::{RaftConfig, RaftNodeManager};

#[tokio::main]
async fn main() -> Result<()> {
    // The number at the end of the name of the Pod: `tickets-0` is 0.
    let node_id = RaftNodeManager::node_id_from_hostname()?;
    let mut raft = RaftConfig::new("tickets").node_id(node_id).service_name("tickets-headless");
    if let Ok(directory) = std::env::var("DATA_DIR") {
        raft = raft.data_dir(directory);
    }
    tickets::operator(raft).run().await
}
