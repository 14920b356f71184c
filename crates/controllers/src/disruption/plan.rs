//! Computes how many pods may be disrupted. In: a PodDisruptionBudget, the pods that it selects, how many there should be, the
//! time. Out: its status, and when to reconcile again. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::int_or_percent::{IntOrPercent, Round};
use crate::meta::{HasMeta, Meta, seconds};
use crate::pods::Pod;

/// How long an evicted pod counts as disrupted although its deletion has not begun.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// The only condition of a budget.
const ALLOWED: &str = "DisruptionAllowed";

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Budget {
    pub metadata: Meta,
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}

/// The spec of a budget.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetSpec {
    /// Absent selects no pod, an empty one selects all pods.
    pub selector: Option<Value>,
    pub min_available: Option<IntOrPercent>,
    pub max_unavailable: Option<IntOrPercent>,
}

/// The status of a budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<BudgetCondition>,
    pub current_healthy: i32,
    pub desired_healthy: i32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disrupted_pods: BTreeMap<String, Time>,
    pub disruptions_allowed: i32,
    pub expected_pods: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A condition with the fields of `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BudgetCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Time>,
    pub observed_generation: i64,
}

impl HasMeta for Budget {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Budget {
    /// Whether it needs the scale of its pods' controllers, not only the number of pods.
    pub(super) fn needs_scale(&self) -> bool {
        self.spec.max_unavailable.is_some() || matches!(self.spec.min_available, Some(IntOrPercent::Text(_)))
    }
}

/// The status of a budget with these pods. `scale` is how many pods there should be, if the budget needs that.
pub(crate) fn status(
    budget: &Budget,
    pods: &[Arc<Pod>],
    scale: i32,
    now: Timestamp,
) -> (BudgetStatus, Option<Duration>) {
    let expected = if budget.needs_scale() { scale } else { i32::try_from(pods.len()).unwrap_or(i32::MAX) };
    let desired = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(most), _) => (expected - most.of(expected, Round::Up)).max(0),
        (None, Some(least)) => least.of(expected, Round::Up),
        (None, None) => 0,
    };
    let kept = || pods.iter().filter(|pod| !pod.metadata.is_terminating());
    let mut disrupted: BTreeMap<String, Time> = BTreeMap::new();
    let mut requeue_after: Option<SignedDuration> = None;
    for pod in kept() {
        let Some(since) = budget.status.disrupted_pods.get(&pod.metadata.name) else { continue };
        let left = DELETION_TIMEOUT - now.duration_since(since.0);
        if !left.is_negative() {
            requeue_after = Some(requeue_after.map_or(left, |requeue_after| requeue_after.min(left)));
            disrupted.insert(pod.metadata.name.clone(), since.clone());
        }
    }
    let healthy = kept().filter(|pod| pod.is_ready() && !disrupted.contains_key(&pod.metadata.name)).count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    // Without expected pods no disruption is allowed: pods may be created before the next reconcile.
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let generation = budget.metadata.generation;
    let (is, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = BudgetStatus {
        conditions: with_condition(budget, is, reason, String::new(), now),
        current_healthy: healthy,
        desired_healthy: desired,
        disrupted_pods: disrupted,
        disruptions_allowed: allowed,
        expected_pods: expected,
        observed_generation: Some(generation),
    };
    (status, requeue_after.and_then(|requeue_after| Duration::try_from(requeue_after).ok()))
}

/// The status if the number of expected pods is unknown: no disruption is allowed.
pub(crate) fn failed(budget: &Budget, why: String, now: Timestamp) -> BudgetStatus {
    let conditions = with_condition(budget, "False", "SyncFailed", why, now);
    BudgetStatus { disruptions_allowed: 0, conditions, ..budget.status.clone() }
}

fn with_condition(budget: &Budget, is: &str, reason: &str, message: String, now: Timestamp) -> Vec<BudgetCondition> {
    let mut conditions = budget.status.conditions.clone();
    let before = conditions.iter().position(|condition| condition.type_ == ALLOWED).map(|at| conditions.remove(at));
    let since = before.filter(|before| before.status == is).and_then(|before| before.last_transition_time);
    conditions.push(BudgetCondition {
        type_: ALLOWED.into(),
        status: is.into(),
        reason: reason.into(),
        message,
        last_transition_time: since.or(Some(seconds(now))),
        observed_generation: budget.metadata.generation,
    });
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn budget(spec: Value, status: Value) -> Budget {
        serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": spec, "status": status})).unwrap()
    }

    /// Pods: `+` is ready, `-` is not, `t` is ready and on its way out.
    fn pods(how: &str) -> Vec<Arc<Pod>> {
        let pod = |(at, how): (usize, char)| {
            let ready = if how == '-' { "False" } else { "True" };
            let going = (how == 't').then(|| now().to_string());
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"name": format!("p{at}"), "deletionTimestamp": going},
                    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
                }))
                .unwrap(),
            )
        };
        how.chars().enumerate().map(pod).collect()
    }

    #[test]
    fn so_many_may_be_disrupted() {
        // Healthy, desired, expected, allowed.
        let check = |spec: Value, how: &str, scale: i32, expect: [i32; 4]| {
            let (status, _) = status(&budget(spec.clone(), json!({})), &pods(how), scale, now());
            let got =
                [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed];
            assert_eq!(got, expect, "{spec} {how}");
            let reason = if expect[3] > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            assert_eq!((&*status.conditions[0].status, &*status.conditions[0].reason), reason, "{spec} {how}");
        };
        check(json!({"minAvailable": 2}), "+++", 0, [3, 2, 3, 1]);
        check(json!({"minAvailable": 2}), "+-t", 0, [1, 2, 3, 0]);
        check(json!({"minAvailable": 0}), "", 0, [0, 0, 0, 0]);
        check(json!({"minAvailable": "50%"}), "+++", 5, [3, 3, 5, 0]);
        check(json!({"minAvailable": "50%"}), "+++", 3, [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 1}), "+++", 3, [3, 2, 3, 1]);
        check(json!({"maxUnavailable": 1}), "++-", 3, [2, 2, 3, 0]);
        check(json!({"maxUnavailable": "30%"}), "+++++", 5, [5, 3, 5, 2]);
        check(json!({"maxUnavailable": 9}), "+++", 3, [3, 0, 3, 3]);
    }

    #[test]
    fn those_that_were_evicted_count_as_gone_for_a_while() {
        let at = |time: &str| format!("2026-01-01T{time}Z");
        let before = json!({"disruptedPods": {"p0": at("00:59:30"), "p1": at("00:50:00"), "p9": at("00:59:59")}});
        let (status, requeue_after) = status(&budget(json!({"minAvailable": 1}), before), &pods("+++"), 0, now());
        assert_eq!(status.disrupted_pods.keys().collect::<Vec<_>>(), ["p0"]);
        assert_eq!((status.current_healthy, status.disruptions_allowed), (2, 1));
        assert_eq!(requeue_after, Some(Duration::from_secs(90)));
    }

    #[test]
    fn what_cannot_be_known_allows_nothing() {
        let before = json!({"disruptionsAllowed": 3, "currentHealthy": 4});
        let status = failed(&budget(json!({}), before), "found no controllers for pod \"p\"".into(), now());
        assert_eq!((status.disruptions_allowed, status.current_healthy), (0, 4));
        assert_eq!((&*status.conditions[0].reason, status.conditions[0].observed_generation), ("SyncFailed", 2));
    }
}
