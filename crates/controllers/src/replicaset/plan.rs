//! Plans the next step of a ReplicaSet. In: the ReplicaSet, its pods, the time. Out: how many pods to create or which to delete,
//! the status, and when to reconcile again. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use konverge_runtime::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ranking::{Ranked, by_deletion_order};
pub(crate) use crate::int_or_percent::is_zero;
use crate::meta::{Condition, Meta, StringMap, condition, set_condition};
use crate::pods::{Pod, next_available};

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 500;

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A ReplicaSet, with the fields that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSet {
    pub metadata: Meta,
    pub spec: ReplicaSetSpec,
    pub status: ReplicaSetStatus,
}

/// The spec of a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetSpec {
    pub replicas: Option<i32>,
    pub min_ready_seconds: i32,
    pub selector: Value,
    pub template: Value,
}

/// The status of a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReplicaSetStatus {
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// There are as many pods as there should be.
    Nothing,
    /// Create this many pods.
    Create(usize),
    /// Delete these pods.
    Delete(Vec<Arc<Pod>>),
}

/// Why pods could not be created or deleted.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The reason of the condition and the event.
    pub reason: &'static str,
    /// The error.
    pub error: Error,
}

impl ReplicaSet {
    /// The desired number of replicas.
    pub(crate) fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }
}

/// The next step of a ReplicaSet with these pods. `on_node` returns how many ready pods of the same Deployment are on a node.
pub(crate) fn step(set: &ReplicaSet, mine: &[Arc<Pod>], on_node: impl Fn(&str) -> usize, now: Timestamp) -> Step {
    let active: Vec<&Arc<Pod>> = mine.iter().filter(|pod| pod.is_active()).collect();
    let wanted = usize::try_from(set.replicas()).unwrap_or_default();
    if active.len() < wanted {
        return Step::Create((wanted - active.len()).min(BURST));
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return Step::Nothing;
    }
    // If all are deleted, no order is needed.
    if surplus == active.len() {
        return Step::Delete(active.into_iter().cloned().collect());
    }
    let mut nodes: HashMap<&str, usize> = HashMap::new();
    let ranked = active.iter().map(|pod| {
        let node = pod.spec.node_name.as_str();
        let neighbours = *nodes.entry(node).or_insert_with(|| if node.is_empty() { 0 } else { on_node(node) });
        Ranked { pod, neighbours }
    });
    let mut ranked: Vec<Ranked<'_>> = ranked.collect();
    ranked.sort_by(|a, b| by_deletion_order(a, b, now));
    Step::Delete(ranked.into_iter().take(surplus).map(|ranked| ranked.pod.clone()).collect())
}

/// The status of a ReplicaSet with these pods.
pub(crate) fn status(
    set: &ReplicaSet,
    mine: &[Arc<Pod>],
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let labels: StringMap = serde_json::from_value(set.spec.template["metadata"]["labels"].clone()).unwrap_or_default();
    let is_fully_labelled = |pod: &Pod| labels.iter().all(|(name, value)| pod.metadata.labels.get(name) == Some(value));
    let count = |test: &dyn Fn(&Pod) -> bool| {
        let found = mine.iter().filter(|pod| pod.is_active() && test(pod)).count();
        i32::try_from(found).unwrap_or(i32::MAX)
    };
    let terminating = mine.iter().filter(|pod| pod.is_terminating()).count();
    let mut conditions = set.status.conditions.clone();
    match failure {
        // The first failure is kept until a reconcile succeeds, so that repeated failures do not change the status.
        Some(failure) if condition(&conditions, REPLICA_FAILURE).is_none() => {
            let message = failure.error.to_string();
            set_condition(&mut conditions, Condition::new(REPLICA_FAILURE, "True", failure.reason, message, now));
        }
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: count(&is_fully_labelled),
        ready_replicas: count(&Pod::is_ready),
        available_replicas: count(&|pod| pod.is_available(set.spec.min_ready_seconds, now)),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: set.metadata.generation,
        conditions,
    }
}

/// How long it takes until the next pod becomes available.
pub(crate) fn requeue_after(set: &ReplicaSet, mine: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    next_available(mine, set.spec.min_ready_seconds, now)
}

#[cfg(test)]
mod tests;
