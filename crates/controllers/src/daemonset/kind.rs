//! The fields of a DaemonSet that the controller reads, with the defaults of Kubernetes. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::int_or_percent::{RollingUpdate, Round, is_zero};
use crate::meta::{HasMeta, Meta};

/// A DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSet {
    pub metadata: Meta,
    pub spec: DaemonSetSpec,
    pub status: DaemonSetStatus,
}

/// The spec of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetSpec {
    pub min_ready_seconds: i32,
    pub revision_history_limit: Option<i32>,
    pub selector: Value,
    pub template: Value,
    pub update_strategy: UpdateStrategy,
}

/// The update strategy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateStrategy {
    #[serde(rename = "type")]
    pub type_: String,
    pub rolling_update: RollingUpdate,
}

/// The status of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DaemonSetStatus {
    pub current_number_scheduled: i32,
    pub number_misscheduled: i32,
    pub desired_number_scheduled: i32,
    pub number_ready: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

impl HasMeta for DaemonSet {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl DaemonSet {
    /// Whether the strategy is a rolling update.
    pub(super) fn is_rolling(&self) -> bool {
        self.spec.update_strategy.type_ != "OnDelete"
    }

    /// Whether a node may have two pods while one takes the other's place.
    pub(super) fn surges(&self) -> bool {
        self.fenceposts(1).0 > 0
    }

    /// How many of so many nodes may have two pods, and how many none. If both were zero, the update could not proceed.
    pub(super) fn fenceposts(&self, nodes: i32) -> (i32, i32) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let rolling = &self.spec.update_strategy.rolling_update;
        let surge = rolling.max_surge.as_ref().map_or(0, |share| share.of(nodes, Round::Up));
        let unavailable = rolling.max_unavailable.as_ref().map_or(1, |share| share.of(nodes, Round::Up));
        if (surge, unavailable) == (0, 0) { (0, 1) } else { (surge, unavailable) }
    }
}
