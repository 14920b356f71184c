//! The API server as its clients see it. `client` drives it with the `kube` client, in process and over the network;
//! the rest sends raw requests to the service and holds the answers against what kube-apiserver 1.36 says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics where it is")]

mod cluster;
mod network;

mod client;

mod auditing;
mod authorizing;
mod errors;
mod listing;
mod watching;

mod admission;
mod assigning;
mod creating;
mod defaulting;
mod deleting;
mod patching;
mod updating;
mod workloads;

mod fencing;
mod fields;
mod flow_control;
mod gates;
mod limits;
mod negotiation;
mod offline;
mod overload;
mod protobuf;

mod certificates;
mod clashing;
mod converting;
mod definitions;
mod issuers;
mod namespaces;
mod node;
mod pods;
mod rbac;
mod reviewing;
mod rules;
mod versions;

mod bad_input;
mod history;
mod restarting;
