//! The fields of a Deployment that the controller reads, with the defaults of Kubernetes. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::int_or_percent::{IntOrPercent, RollingUpdate, Round, is_zero};
use crate::meta::{Condition, HasMeta, Meta};

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Deployment {
    pub metadata: Meta,
    pub spec: DeploymentSpec,
    pub status: DeploymentStatus,
}

/// The spec of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentSpec {
    pub replicas: Option<i32>,
    pub min_ready_seconds: i32,
    pub paused: bool,
    pub progress_deadline_seconds: Option<i32>,
    pub revision_history_limit: Option<i32>,
    pub selector: Value,
    pub template: Value,
    pub strategy: Strategy,
}

/// The update strategy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Strategy {
    #[serde(rename = "type")]
    pub type_: String,
    pub rolling_update: Option<RollingUpdate>,
}

/// The status of a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// What stands for "for ever" and "all of them".
const NO_LIMIT: i32 = i32::MAX;

/// What Kubernetes assumes of a Deployment without a value.
const PROGRESS_DEADLINE: i32 = 600;
const HISTORY: i32 = 10;
const QUARTER: &str = "25%";

impl HasMeta for Deployment {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Deployment {
    /// The desired number of replicas.
    pub(super) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether pods are replaced a few at a time.
    pub(super) fn is_rolling(&self) -> bool {
        self.spec.strategy.type_ != "Recreate"
    }

    /// How many pods more than asked for there may be.
    pub(super) fn max_surge(&self) -> i32 {
        if self.is_rolling() { self.fenceposts().0 } else { 0 }
    }

    /// How many pods fewer than asked for may be available.
    pub(super) fn max_unavailable(&self) -> i32 {
        if !self.is_rolling() || self.replicas() == 0 { 0 } else { self.fenceposts().1.min(self.replicas()) }
    }

    /// How long it may go without progress.
    pub(super) fn progress_deadline(&self) -> Option<i32> {
        Some(self.spec.progress_deadline_seconds.unwrap_or(PROGRESS_DEADLINE)).filter(|limit| *limit != NO_LIMIT)
    }

    /// How many old ReplicaSets are kept for a rollback.
    pub(super) fn history_limit(&self) -> Option<usize> {
        let limit = Some(self.spec.revision_history_limit.unwrap_or(HISTORY)).filter(|limit| *limit != NO_LIMIT)?;
        Some(usize::try_from(limit).unwrap_or_default())
    }

    /// Surge is rounded up and unavailability down; if both were zero, the update could not proceed.
    fn fenceposts(&self) -> (i32, i32) {
        let quarter = || IntOrPercent::Text(QUARTER.into());
        let limits = self.spec.strategy.rolling_update.clone().unwrap_or_default();
        let surge = limits.max_surge.unwrap_or_else(quarter).of(self.replicas(), Round::Up);
        let unavailable = limits.max_unavailable.unwrap_or_else(quarter).of(self.replicas(), Round::Down);
        if (surge, unavailable) == (0, 0) { (0, 1) } else { (surge, unavailable) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_of_a_rollout() {
        let check = |spec: Value, expect: (i32, i32)| {
            let deployment: Deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!((deployment.max_surge(), deployment.max_unavailable()), expect, "{spec}");
        };
        let rolling = |replicas: i32, surge: Value, unavailable: Value| json!({"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}});
        check(json!({}), (1, 0));
        check(json!({"replicas": 10}), (3, 2));
        check(rolling(10, json!(0), json!(0)), (0, 1));
        check(rolling(1, json!("0%"), json!("25%")), (0, 1));
        check(rolling(3, json!(1), json!(10)), (1, 3));
        check(rolling(0, json!("25%"), json!(1)), (0, 0));
        check(json!({"replicas": 5, "strategy": {"type": "Recreate"}}), (0, 0));
    }
}
