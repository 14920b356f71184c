//! The fields of pods and nodes that the simulator reads. In: JSON. Out: typed values. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::Value;

use crate::meta::{Meta, StringMap};

/// The label of simulated nodes.
pub(crate) const SIMULATED: &str = "konverge.dev/simulated";

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    /// Untyped, so that fields of other writers are kept.
    pub status: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub scheduler_name: String,
    pub scheduling_gates: Vec<Value>,
    pub restart_policy: RestartPolicy,
    pub host_network: bool,
    pub node_selector: StringMap,
    pub affinity: Affinity,
    pub tolerations: Vec<Toleration>,
    pub readiness_gates: Vec<ReadinessGate>,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    pub name: String,
    pub image: String,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub resources: Value,
    pub resize_policy: Vec<ResizePolicy>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResizePolicy {
    pub resource_name: String,
    pub restart_policy: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReadinessGate {
    pub condition_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Affinity {
    pub node_affinity: NodeAffinity,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeAffinity {
    pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSelector {
    pub node_selector_terms: Vec<Term>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Term {
    pub match_expressions: Vec<Requirement>,
    pub match_fields: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Requirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub time_added: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub allocatable: BTreeMap<String, Value>,
    pub addresses: Vec<Address>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    #[serde(rename = "type")]
    pub type_: String,
    pub address: String,
}

impl Pod {
    /// The phase; empty if the status has none.
    pub(super) fn phase(&self) -> &str {
        self.status["phase"].as_str().unwrap_or_default()
    }

    /// Whether the phase is `Succeeded` or `Failed`.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether the simulator has to schedule the pod: it names no other scheduler and has no scheduling gate.
    pub(super) fn needs_scheduling(&self) -> bool {
        matches!(self.spec.scheduler_name.as_str(), "" | "default-scheduler") && self.spec.scheduling_gates.is_empty()
    }
}

impl Container {
    /// Whether it is a sidecar: an init container that keeps running.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Node {
    /// Whether the node is simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        self.metadata.labels.get(SIMULATED).is_some_and(|value| value == "true")
    }

    /// The node's internal IP.
    pub(crate) fn address(&self) -> &str {
        let internal = self.status.addresses.iter().find(|address| address.type_ == "InternalIP");
        internal.map(|address| address.address.as_str()).unwrap_or_default()
    }

    /// How many pods the node may have; unlimited if it does not say.
    pub(crate) fn pod_capacity(&self) -> usize {
        let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
        self.status.allocatable.get("pods").and_then(|pods| text(pods).parse().ok()).unwrap_or(usize::MAX)
    }
}

impl Toleration {
    /// Whether it tolerates a taint.
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "Exists" => true,
                _ => !self.key.is_empty() && self.value == taint.value,
            }
    }
}
