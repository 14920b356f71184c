//! Watch, cache and trigger against the API server in process, with faults in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

#[allow(dead_code, reason = "each program of tests uses a part of it")]
mod faults;
mod figures;
mod kinds;
mod relist;
mod sharing;
mod stale;
mod trouble;
