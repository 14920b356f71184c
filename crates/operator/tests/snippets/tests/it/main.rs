//! Everything here compiles with `konverge` and `tokio` alone, and is accepted by an API server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

mod cluster;

mod builders;
mod crd;
mod derives;
mod permissions;

// Word for word as the documentation has it, its line breaks too.
#[rustfmt::skip]
mod snippets;
#[rustfmt::skip]
mod webhooks;
