//! Which instance of an operator leads.
//!
//! ```text
//! term        a period in which one instance leads, with a number that only grows
//! leadership  the current term for everybody who asks; the seat is where an election says it
//! lease       the election by a Lease: `lease/candidate` decides, purely; `lease/timing` is how long things take, `lease/spread` is
//!             several elections in one process
//! shards      several replicas that divide the objects: a term for each shard; `shards/replica` decides, `shards/balance` who takes
//!             and who gives up, `shards/claim` that all divide alike, `shards/view` what is known of the others, `shards/leases` how it is
//!             written
//! clock       the time by which terms end
//! ```
//!
//! A term ends at a deadline of this process's own clock unless its election extends it, so an instance that hangs, sleeps or is cut
//! off stops by itself. This crate never knows what the leader does; the engine asks it before each write.

mod clock;
mod leadership;
mod lease;
#[cfg(test)]
mod random;
mod shards;
mod term;

pub use clock::now;
pub use leadership::{Leadership, Seat, Standing};
pub use lease::{LeaseElection, LeaseSpread, LeaseTiming};
pub use shards::{HeldShard, ShardElection, ShardSeats, ShardWork, Shards, ShardsStatus};
pub use term::Term;
