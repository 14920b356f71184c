//! Everything an operator is written with: `use konverge::prelude::*;`.

pub use std::sync::Arc;
pub use std::time::Duration;

pub use kube::CustomResourceExt;
pub use kube::core::{DynamicObject, ListMerge, MapMerge, Reason, Rule, StructMerge};

pub use crate::api_kind::ApiKind;
pub use crate::builders::{
    Annotations, ClusterRole, ClusterRoleBinding, ConfigMap, Container, CronJob, DaemonSet, Deployment,
    HorizontalPodAutoscaler, Ingress, IngressRule, Job, Labels, Lease, Namespace, NetworkPolicy, NetworkPolicyEgress,
    NetworkPolicyIngress, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, PolicyRule, Probe,
    ResourceQuota, Resources, Role, RoleBinding, Secret, SecurityContext, Selector, Service, ServiceAccount,
    StatefulSet, Volume,
};
pub use crate::children::Children;
pub use crate::context::Context;
pub use crate::controller::{Controller, key_channel};
pub use crate::derives::{CustomResource, Deserialize, JsonSchema, Serialize};
pub use crate::kind::{Kind, Scope};
pub use crate::operator::{BackgroundTask, Operator};
pub use crate::predicate::Predicate;
pub use crate::watch::Watch;
pub use crate::webhook::{Admission, Denied, Webhook};
pub use crate::{
    Action, Condition, ConditionStatus, DEGRADED, Error, EventLog, FieldErrors, HistoryFilter, Metrics, ObjectKey,
    PROGRESSING, Patch, READY, Result, Settings, Severity,
};
