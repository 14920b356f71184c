//! How long things take, all of it from one number. Plain values.

use std::time::Duration;

/// The times of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// How long followers wait for their leader, and grant nobody a vote.
    pub election: Duration,
    /// How long a leader leads after it sent what a quorum acknowledged: shorter, by how much clocks may differ.
    pub lease: Duration,
    /// How often a leader sends something, and how long an answer to it may take.
    pub heartbeat: Duration,
    /// Members do not all begin an election at the same moment: up to this much later.
    pub jitter: Duration,
    /// How often a member without a leader looks for a cluster, and a leader for members.
    pub search: Duration,
}

impl Timing {
    pub(crate) fn of(election: Duration) -> Self {
        Self {
            election,
            lease: election * 2 / 3,
            heartbeat: election / 5,
            jitter: election / 4,
            search: (election * 2).clamp(Duration::from_millis(200), Duration::from_secs(2)),
        }
    }
}
