//! The controllers of a control plane, and a simulator in place of kubelet and scheduler: what turns an API server into a
//! living cluster. Written with Konverge's own engine, over the Kubernetes protocol only.
//!
//! ```text
//! plane        the table of controllers by the names of kube-controller-manager, and their life
//! desk         what a controller reads and writes with; every write is known to the caches at once
//! kinds        the kinds a server has
//! guard        nothing is created that would not count, or for an owner that is gone
//! meta, pods, claims, replicas, adopt, selected, scale, template, hash, history, quantity     the nouns controllers share
//! replicaset   so many pods
//! deployment   from one template to the next
//! daemonset    one pod on each node
//! statefulset  pods with a name and claims of their own
//! job, ttl     pods that run to their end, and what becomes of it
//! cronjob      Jobs by the clock
//! volumes      who asks for storage gets some; protection: what is in use stays
//! endpointslice, endpoints, service     where the pods behind a Service are
//! disruption   how many pods may go
//! autoscaler   as many pods as there is work for
//! collect      what goes when its owner goes
//! namespace    what goes with its namespace
//! service_account, root_ca     what every namespace has
//! simulate     nodes and pods that run nothing: scheduled, started, ready, ended, as rules and annotations say
//! ```
//!
//! # Adding a controller
//!
//! 1. One file `widget.rs` with `pub(crate) fn start(plane: &Plane) -> Task`: take a `Desk` under the
//!    controller's name, make its `Controller` with `desk.controller(target)`, `watch` what else concerns it, and hand
//!    `desk.work(controller, reconcile)` back. Caches are shared: each kind is watched once, whoever asks for it.
//! 2. A pure planner, `widget/plan.rs`: what is there and the time → what to do. It never reads a cache, never asks the
//!    clock and never awaits; its tests are tables.
//! 3. The reconciler reads caches, asks the planner, carries the plan out through the desk. Reads see the desk's own
//!    writes, so there are no "expectations": after a write the next look at the cache has it. Independent writes run at
//!    the same time (`Desk::together`). Nothing is written that is so already.
//! 4. One row in `plane::TABLE`. A wakeup that concerns many objects (an orphaned pod, a changed node) is a key of its
//!    own (see `adopt::strays`): triggers look at the change only, and the reconciler looks at the caches.
//!
//! This crate never knows the API server of this project, and never reads the clock or the dice but through the desk.

mod health;
mod plane;

mod desk;
mod requests;

mod adopt;
mod claims;
mod guard;
mod hash;
mod history;
mod kinds;
mod meta;
mod pods;
mod quantity;
mod replicas;
mod scale;
mod selected;
mod service;
mod template;

mod autoscaler;
mod collect;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod endpointslice;
mod job;
mod namespace;
mod per_namespace;
mod protection;
mod replicaset;
mod root_ca;
mod service_account;
mod simulate;
mod statefulset;
mod ttl;
mod volumes;

pub use health::Health;
pub use plane::{ControlPlane, Meters, Options, UnknownController};
pub use simulate::{Rule, SimulationSettings};
