//! The ordinary `kubectl` against the `konverge` binary: what a person types, what a person sees, and what is then kept.
//! Every scenario has a server, a home and a cache of its own, so they run side by side. Expected texts are those of a
//! real cluster. Without `kubectl` on the PATH the scenarios say that they were skipped; with `CI=true` they fail.

mod cluster;
mod expect;
mod fixtures;
mod kubectl;

mod apply;
mod apply_server_side;
mod cascade;
mod crd;
mod create;
mod delete;
mod discovery;
mod edit;
mod generators;
mod get;
mod living;
mod metadata;
mod patch;
mod pods;
mod replace;
mod rollout;
mod scale;
mod subresource;
mod tls;
mod validation;
mod wait;
mod watch;
