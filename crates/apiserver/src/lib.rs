//! A Kubernetes API server in one process: a tower service over a revisioned store.
//!
//! ```text
//!            ┌ get, list ─ read ───────────────┐
//! request ─▶ service ─▶ kinds ─▶ change/delete ─▶ store ─▶ watch ─▶ every reader
//!            └ documents (discovery, OpenAPI)  │          (each at its own pace)
//!                                              └ crd: new rows for kinds
//! ```
//!
//! Kinds are data: built-in ones come from a generated table, a CRD adds rows to it, and no code knows a kind by
//! name but for namespaces, CRDs, what pods, jobs and services are given (`assign`) and the three endpoints of pods that do
//! more than keep what is sent. This crate never knows the operator side: they meet over HTTP only.

mod handler;
mod server;
mod service;
mod work;

mod authorize;
mod context;
mod user;

mod body;
mod decode;
mod negotiate;
mod request;

mod behaviour;
mod builtin;
mod kinds;
mod resource;
mod tenure;

mod assign;
mod change;
mod collect;
mod conditions;
mod crd;
mod defaults;
mod delete;
mod expire;
mod fold;
mod health;
mod messages;
mod meta;
mod namespace;
mod part;
mod patch;
mod pod;
mod scale;
mod tasks;
mod turns;
mod workload;

mod conversion;
mod filter;
mod lines;
mod read;
mod record;
mod watch;

mod digest;
mod discovery;
mod documents;
mod env;
mod json_path;
mod openapi;
mod partial;
mod render;
mod response;
mod table;

#[cfg(test)]
mod interrupted;

pub use authorize::{AlwaysAllow, Attributes, Authorizer, Decision, ResourceAttributes};
pub use body::Body;
pub use env::{Environment, System};
pub use server::{ApiServer, Collector, OpenError, Options, Storage, Versions};
pub use user::UserInfo;
pub use work::RequestLimits;
