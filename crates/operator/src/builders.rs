//! Builders for the kinds that operators apply most. A builder is a thin wrapper around the type that Kubernetes publishes for
//! its kind, and *is* that object: it is applied, read back, listed and deleted as it stands.
//!
//! ```text
//! wrapper          what every builder has: patch, inner, conversions; kind!: metadata and the API's names
//! words            Labels, Annotations, Selector
//! number           whole numbers of any type, and ports that are a number or a name
//! container        Container; probe Probe; limits Resources, SecurityContext; volume Volume, PersistentVolumeClaim
//! pods             what all kinds that run pods have: containers, volumes, placement
//! workload         Deployment, StatefulSet, DaemonSet; job Job, CronJob; pod Pod
//! config           ConfigMap, Secret; restart: pods that restart when these change
//! service          Service; ingress Ingress; network_policy NetworkPolicy
//! autoscaler       HorizontalPodAutoscaler; disruption_budget PodDisruptionBudget
//! persistent_volume PersistentVolume; namespace Namespace, ResourceQuota; lease Lease
//! access           ServiceAccount, Role, ClusterRole and their bindings
//! ```
//!
//! # Rules
//!
//! - `new` takes the name and what the API server refuses an object without, unless a method of the builder has to say it
//!   (`CronJob::schedule`). All else is optional and has a method of its own.
//! - A method that is called again changes what the first call said. Lists are merged by the key that the API merges them by:
//!   a container by its name, a port by number and protocol.
//! - Methods that read begin with `get_`, `is_` or `has_`, or are a noun of the status (`ready_replicas`).
//! - The escape hatch is the same everywhere: `patch` changes any field of the published type, `inner` reads it, and kinds
//!   with a spec have `spec` and `get_spec` as a shortcut, whether or not the published type requires a spec.
//!
//! ```
//! use konverge::prelude::*;
//! let web = Service::new("web").port(80, 8080).spec(|spec| spec.session_affinity = Some("ClientIP".into()));
//! assert_eq!(web.get_spec().and_then(|spec| spec.session_affinity.as_deref()), Some("ClientIP"));
//! let db = StatefulSet::new("db").patch(|db| db.metadata.finalizers = Some(vec!["example.com/keep".into()]));
//! assert_eq!(db.get_spec().and_then(|spec| spec.selector.match_labels.as_ref()).map(|labels| labels["app"].as_str()), Some("db"));
//! ```
//!
//! Builders never talk to the API, and never check what the API server checks.

mod wrapper;

mod access;
mod autoscaler;
mod config;
mod container;
mod disruption_budget;
mod ingress;
mod job;
mod lease;
mod limits;
mod namespace;
mod network_policy;
mod number;
mod persistent_volume;
mod pod;
mod pods;
mod probe;
mod restart;
mod service;
mod volume;
mod words;
mod workload;

pub use access::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, ServiceAccount};
pub use autoscaler::HorizontalPodAutoscaler;
pub use config::{ConfigMap, Secret};
pub use container::Container;
pub use disruption_budget::PodDisruptionBudget;
pub use ingress::{Ingress, IngressRule};
pub use job::{CronJob, Job};
pub use lease::Lease;
pub use limits::{Resources, SecurityContext};
pub use namespace::{Namespace, ResourceQuota};
pub use network_policy::{NetworkPolicy, NetworkPolicyEgress, NetworkPolicyIngress};
pub use number::{Count, NumberOrText};
pub use persistent_volume::PersistentVolume;
pub use pod::Pod;
pub use probe::Probe;
pub use restart::ConfigData;
pub use service::Service;
pub use volume::{PersistentVolumeClaim, Volume};
pub use words::{Annotations, Labels, Selector};
pub use workload::{DaemonSet, Deployment, StatefulSet};
