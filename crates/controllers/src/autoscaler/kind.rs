//! The fields of a HorizontalPodAutoscaler that the controller reads, with the defaults of Kubernetes. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{Condition, HasMeta, Meta};
use crate::scale::ScaleTarget;

/// A HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Autoscaler {
    pub metadata: Meta,
    pub spec: AutoscalerSpec,
    pub status: AutoscalerStatus,
}

/// The spec of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerSpec {
    pub scale_target_ref: ScaleTarget,
    pub min_replicas: Option<i32>,
    pub max_replicas: i32,
    pub metrics: Vec<Metric>,
    pub behavior: Option<Behavior>,
}

/// What to look at.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metric {
    #[serde(rename = "type")]
    pub type_: String,
    pub resource: Option<Resource>,
    pub container_resource: Option<Resource>,
    pub pods: Option<Named>,
    pub object: Option<Named>,
    pub external: Option<Named>,
}

/// What pods or one of their containers use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Resource {
    pub name: String,
    pub container: String,
    pub target: Goal,
}

/// Something that has a name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Named {
    /// As it is, for the status: its name, and whom it selects.
    pub metric: Value,
    pub described_object: Value,
    pub target: Goal,
}

/// What it should be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Goal {
    pub average_utilization: Option<i64>,
    pub average_value: Option<Value>,
    pub value: Option<Value>,
}

/// How fast it may go up and down.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Behavior {
    pub scale_up: Option<Rules>,
    pub scale_down: Option<Rules>,
}

/// How fast it may go one way.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rules {
    pub stabilization_window_seconds: Option<i64>,
    pub select_policy: Option<String>,
    pub policies: Option<Vec<Policy>>,
    pub tolerance: Option<Value>,
}

/// So many in so many seconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Policy {
    #[serde(rename = "type")]
    pub type_: String,
    pub value: i32,
    pub period_seconds: i64,
}

/// The status of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoscalerStatus {
    pub conditions: Vec<Condition>,
    pub current_metrics: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    pub desired_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
}

impl HasMeta for Autoscaler {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Autoscaler {
    /// The fewest replicas.
    pub(super) fn min(&self) -> i32 {
        self.spec.min_replicas.unwrap_or(1)
    }

    /// What it looks at: how much of the cpu they asked for pods use, if it does not say.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        if !self.spec.metrics.is_empty() {
            return self.spec.metrics.clone();
        }
        let target = Goal { average_utilization: Some(80), ..Goal::default() };
        let resource = Resource { name: "cpu".into(), target, ..Resource::default() };
        vec![Metric { type_: "Resource".into(), resource: Some(resource), ..Metric::default() }]
    }
}
