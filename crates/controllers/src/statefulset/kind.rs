//! The fields of a StatefulSet that the controller reads, with the defaults of Kubernetes. Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::int_or_percent::{IntOrPercent, Round, is_zero};
use crate::meta::{HasMeta, Meta};

/// A StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StatefulSet {
    pub metadata: Meta,
    pub spec: StatefulSetSpec,
    pub status: StatefulSetStatus,
}

/// The spec of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetSpec {
    pub replicas: Option<i32>,
    pub min_ready_seconds: i32,
    pub ordinals: Ordinals,
    pub persistent_volume_claim_retention_policy: Retention,
    pub pod_management_policy: String,
    pub revision_history_limit: Option<i32>,
    pub selector: Value,
    pub service_name: String,
    pub template: Value,
    pub update_strategy: UpdateStrategy,
    pub volume_claim_templates: Vec<Value>,
}

/// Where counting begins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Ordinals {
    pub start: i64,
}

/// When claims go.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Retention {
    pub when_deleted: String,
    pub when_scaled: String,
}

/// The update strategy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct UpdateStrategy {
    #[serde(rename = "type")]
    pub type_: String,
    pub rolling_update: Option<RollingUpdate>,
}

/// Which pods are updated, and how many at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RollingUpdate {
    pub partition: i64,
    pub max_unavailable: Option<IntOrPercent>,
}

/// The status of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatefulSetStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    pub available_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    pub collision_count: i32,
}

impl HasMeta for StatefulSet {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl StatefulSet {
    /// The desired number of replicas.
    pub(super) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether its pods come and go one after the other.
    pub(super) fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy != "Parallel"
    }

    /// Whether the strategy is a rolling update.
    pub(super) fn is_rolling(&self) -> bool {
        self.spec.update_strategy.type_ != "OnDelete"
    }

    /// Below which ordinal pods are left as they are.
    pub(super) fn partition(&self) -> i64 {
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        self.first() + rolling.map_or(0, |rolling| rolling.partition)
    }

    /// How many pods may be missing while others are replaced; nothing if it does not say.
    pub(super) fn max_unavailable(&self) -> Option<usize> {
        let share = self.spec.update_strategy.rolling_update.as_ref()?.max_unavailable.as_ref()?;
        Some(usize::try_from(share.of(self.replicas(), Round::Down)).unwrap_or_default().max(1))
    }

    /// The first ordinal.
    pub(super) fn first(&self) -> i64 {
        self.spec.ordinals.start
    }

    /// The ordinals of its replicas.
    pub(super) fn ordinals(&self) -> std::ops::Range<i64> {
        self.first()..self.first() + i64::from(self.replicas())
    }

    /// The ordinal of a pod of this name, if it is one of this StatefulSet.
    pub(super) fn ordinal(&self, pod: &str) -> Option<i64> {
        let digits = pod.strip_prefix(self.metadata.name.as_str())?.strip_prefix('-')?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    }
}
