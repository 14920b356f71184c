//! In come a few words a kind, out goes the whole object: every builder is a thin wrapper around the type that
//! Kubernetes publishes for its kind, and *is* that object: it is applied, read back, listed and deleted as it stands.
//!
//! ```text
//! wrapper          what every builder has: patch, inner, conversions; kind!: metadata and the API's names
//! words            Labels, Annotations, Selector
//! number           whole numbers of any type, and ports that are a number or a name
//! container        Container; probe Probe; limits Resources, SecurityContext; volume Volume, PersistentVolumeClaim
//! pods             what everything that runs pods can do: containers, volumes, placement
//! workload         Deployment, StatefulSet, DaemonSet; job Job, CronJob; pod Pod
//! config           ConfigMap, Secret; restart: pods that start anew when these change
//! service          Service; ingress Ingress; network_policy NetworkPolicy
//! autoscaler       HorizontalPodAutoscaler; disruption_budget PodDisruptionBudget
//! persistent_volume PersistentVolume; namespace Namespace, ResourceQuota; lease Lease
//! access           ServiceAccount, Role, ClusterRole and their bindings
//! ```
//!
//! Nothing here talks to the API, and nothing is checked that the API server checks.

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
