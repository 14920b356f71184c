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
//! config           ConfigMap, Secret
//! service          Service; ingress Ingress; network_policy NetworkPolicy
//! access           ServiceAccount, Role, ClusterRole and their bindings
//! ```
//!
//! Nothing here talks to the API, and nothing is checked that the API server checks.

mod wrapper;

mod access;
mod config;
mod container;
mod ingress;
mod job;
mod limits;
mod network_policy;
mod number;
mod pod;
mod pods;
mod probe;
mod service;
mod volume;
mod words;
mod workload;

pub use access::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, ServiceAccount};
pub use config::{ConfigMap, Secret};
pub use container::Container;
pub use ingress::{Ingress, IngressRule};
pub use job::{CronJob, Job};
pub use limits::{Resources, SecurityContext};
pub use network_policy::{NetworkPolicy, NetworkPolicyEgress, NetworkPolicyIngress};
pub use number::{Count, NumberOrText};
pub use pod::Pod;
pub use probe::Probe;
pub use service::Service;
pub use volume::{PersistentVolumeClaim, Volume};
pub use words::{Annotations, Labels, Selector};
pub use workload::{DaemonSet, Deployment, StatefulSet};
