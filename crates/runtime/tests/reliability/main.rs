//! The engine as a whole, against an API server in the same process on its bad days: what it promises, by name, and how
//! it holds when everything around it fails. Where `KONVERGE_FULL` is set, each is tried as often as the promise says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

#[allow(dead_code, reason = "each program of tests uses a part of it")]
#[path = "../cache/faults.rs"]
mod faults;
mod half_open;
mod invariants;
mod isolation;
mod liveness;
mod operator;
mod shutdown;
mod staleness;
mod storm;
