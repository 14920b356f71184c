//! Leadership by Raft, and a small state that all instances of an operator share.
//!
//! ```text
//! config, peers   where this member and the others are
//! member          what a member is: one incarnation of an instance
//! joining         founds or joins a cluster; pure decision, thin task
//! roster          changes the members, one at a time; pure decision, thin task
//! election        when this member begins an election, and whether it would win
//! lease           how long a leader leads: what a quorum acknowledged, from when it was sent
//! campaign        tells a `Seat` who leads, in terms whose numbers the log decides
//! state           the replicated keys and values, pure; `replicated` is what programs call
//! storage         log, vote and snapshot, in memory or in a file
//! node            one member: answers others, and holds all of this together
//! network, wire, transport, grpc   what members say to each other, and how it gets there
//! manager         a member that runs, from start to shutdown
//! ```
//!
//! The consensus itself is openraft's. Elections are begun here, because a leader's lease depends on when they are not: every vote and
//! every acknowledgement passes `node`. This crate never knows what the leader does.

mod campaign;
mod config;
mod election;
mod grpc;
mod joining;
mod lease;
mod manager;
mod member;
mod network;
mod node;
mod peers;
mod random;
mod replicated;
mod roster;
#[cfg(test)]
mod simulation;
mod state;
mod status;
mod storage;
mod timing;
mod transport;
mod wire;

pub use config::{RaftConfig, RaftDeployment, RaftStartError};
pub use grpc::MemberCertificates;
pub use manager::RaftNodeManager;
pub use replicated::{Replicated, ReplicatedError, ReplicatedWatch, WatchEvent};
pub use state::{Change, Versioned};
pub use status::RaftStatus;
