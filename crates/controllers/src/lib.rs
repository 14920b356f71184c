//! The controllers of a control plane, and a simulator in place of kubelet and scheduler: what turns an API server into a
//! living cluster. Written with Konverge's own engine, over the Kubernetes protocol only.
//!
//! ```text
//! control_plane      the table of controllers, and their lifecycle; health: which of them fail
//! context            what one controller reads and writes with; the shared caches know every write at once
//! kinds              the kinds that a server has
//! controller_ref     adopts and releases objects by their controller reference
//! child_creator      creates children without runaway creation
//! revision_history   ControllerRevisions of StatefulSets and DaemonSets
//! meta, pods, claims, replicas, selected, scale, template, hash, quantity     nouns that controllers share
//! replicaset, deployment, daemonset, statefulset, job, cronjob                workloads
//! ttl                deletes finished Jobs
//! volumes            binds claims to volumes and provisions them; protection: storage in use is not deleted
//! endpointslice, endpoints, service     the addresses of the pods behind a Service
//! disruption         how many pods a PodDisruptionBudget lets go
//! resource_quota     what is used of ResourceQuotas
//! autoscaler         HorizontalPodAutoscalers
//! garbage_collector  deletes dependents of deleted owners
//! namespace          deletes the content of a terminating namespace
//! service_account, root_ca     objects that every namespace has
//! simulator          stands in for kubelet and scheduler: nodes and pods that run nothing
//! ```
//!
//! # Adding a controller
//!
//! 1. Write a file `widget.rs` with `pub(crate) fn start(manager: &Manager) -> Task`. It takes the `ControllerContext` of the
//!    controller's name, makes the `Controller` with `ctx.controller(target)`, adds further watches with `watch`, and returns
//!    `ctx.run_controller(controller, reconcile)`. Caches are shared: each kind is watched once.
//! 2. Write a pure planner, `widget/plan.rs`: observed objects and the time go in, actions come out. A planner never reads a
//!    cache, never asks the clock and never awaits; its tests are tables.
//! 3. The reconciler reads caches, calls the planner, and carries the plan out through the context. Caches know the
//!    context's writes at once, so there are no "expectations" as in client-go. Independent writes run in parallel
//!    (`ControllerContext::in_parallel`). A write that would change nothing is not sent.
//! 4. Add a row to `control_plane::TABLE`. A change that concerns many objects (an orphaned pod, a changed node) wakes a key
//!    of its own (see `controller_ref::orphans_key`): triggers read only the change, and the reconciler reads the caches.
//!
//! This crate never knows the API server of this project. It reads the clock and random numbers only through the context.

mod control_plane;
mod health;

mod context;
mod requests;

mod child_creator;
mod claims;
mod controller_ref;
mod hash;
mod kinds;
mod meta;
mod pods;
mod quantity;
mod replicas;
mod revision_history;
mod scale;
mod selected;
mod service;
mod template;

mod autoscaler;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod endpointslice;
mod garbage_collector;
mod job;
mod namespace;
mod per_namespace;
mod protection;
mod replicaset;
mod resource_quota;
mod root_ca;
mod service_account;
mod simulator;
mod statefulset;
mod ttl;
mod volumes;

pub use control_plane::{ControlPlane, Meters, Options, UnknownController};
pub use health::Health;
pub use simulator::{Rule, SimulationSettings};
