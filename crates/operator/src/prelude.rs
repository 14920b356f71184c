//! Everything an operator is written with: `use konverge::prelude::*;`.

pub use std::time::Duration;

pub use kube::CustomResourceExt;
pub use kube::core::{ListMerge, MapMerge, Reason, Rule, StructMerge};

pub use crate::builders::{
    Annotations, ClusterRole, ClusterRoleBinding, ConfigMap, Container, CronJob, DaemonSet, Deployment, Ingress,
    IngressRule, Job, Labels, NetworkPolicy, NetworkPolicyEgress, NetworkPolicyIngress, PersistentVolumeClaim, Pod,
    PolicyRule, Probe, Resources, Role, RoleBinding, Secret, SecurityContext, Selector, Service, ServiceAccount,
    StatefulSet, Volume,
};
pub use crate::children::Children;
pub use crate::context::Context;
pub use crate::derives::{CustomResource, Deserialize, JsonSchema, Serialize};
pub use crate::kind::Kind;
pub use crate::operator::Operator;
pub use crate::watching::Watch;
pub use crate::{Action, Condition, ConditionStatus, Error, FieldErrors, ObjectKey, Predicate, Result, Severity};
