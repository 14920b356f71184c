//! The last stages of an operator against an API server in the same process: what they send, and what they do when it
//! goes wrong.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

mod apply;
mod cluster;
mod events;
mod finalizer;
mod gate;
mod refusal;
mod set;
mod status;
