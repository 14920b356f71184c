//! Everything here compiles with `konverge` and `tokio` alone, and is accepted by an API server.

mod cluster;

mod builders;
mod crd;
mod derives;

// Word for word as the documentation has it, its line breaks too.
#[rustfmt::skip]
mod snippets;
