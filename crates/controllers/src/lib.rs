//! The controllers of a control plane, and a simulator in place of kubelet and scheduler: what turns an API server into a
//! living cluster. Written with Konverge's own engine, over the Kubernetes protocol only.
//!
//! ```text
//! control_plane      the table of controllers, and their lifecycle; health: which of them fail
//! context            what one controller reads and writes with; the shared caches know every write at once
//! discovery          the kinds that a server has
//! controller_ref     adopts and releases objects by their controller reference
//! child_creator      creates children without runaway creation
//! revision_history   ControllerRevisions of StatefulSets and DaemonSets
//! meta, pods, persistent_volume_claims, scale, template, hash, quantity, int_or_percent   what controllers share
//! selector_wakeups   wakes the objects that select a changed pod by its labels
//! requests           deletes with all options; per_namespace: one object in every namespace
//! replicaset, deployment, daemonset, statefulset, job, cronjob                workloads
//! ttl_after_finished deletes finished Jobs
//! persistent_volumes binds claims to volumes and provisions them
//! storage_protection keeps claims and volumes that are in use
//! endpointslice, endpoints, service     the addresses of the pods behind a Service
//! disruption         how many pods a PodDisruptionBudget allows to disrupt
//! resource_quota     what is used of ResourceQuotas
//! autoscaler         HorizontalPodAutoscalers
//! garbage_collector  deletes dependents of deleted owners
//! namespace          deletes the content of a terminating namespace
//! service_account, root_ca     objects that every namespace has
//! certificates       approves requests of kubelets, and signs what is approved
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
mod controller_ref;
mod discovery;
mod hash;
mod int_or_percent;
mod meta;
mod persistent_volume_claims;
mod pods;
mod quantity;
mod revision_history;
mod scale;
mod selector_wakeups;
mod service;
mod template;

mod autoscaler;
mod certificates;
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
mod persistent_volumes;
mod replicaset;
mod resource_quota;
mod root_ca;
mod service_account;
mod simulator;
mod statefulset;
mod storage_protection;
mod ttl_after_finished;

pub use certificates::{CertificateSigner, RequestedCertificate};
pub use control_plane::{ControlPlane, Meters, Options, UnknownController};
pub use health::Health;
pub use simulator::{Rule, SimulationSettings};
