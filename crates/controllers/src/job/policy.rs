//! `podFailurePolicy` and `successPolicy` of a Job: failures that fail the Job or do not count, and successes that are enough.
//! In: a failed pod, or the succeeded indexes. Out: what they mean for the Job. Pure.

use serde::Deserialize;

use super::indexes::Indexes;
use crate::pods::{ContainerStatus, Pod};

/// `podFailurePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct FailurePolicy {
    pub rules: Vec<FailureRule>,
}

/// One rule: what to do with a pod that failed in this way.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FailureRule {
    pub action: String,
    pub on_exit_codes: Option<OnExitCodes>,
    pub on_pod_conditions: Vec<OnPodCondition>,
}

/// Matches containers by their exit codes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OnExitCodes {
    pub container_name: Option<String>,
    pub operator: String,
    pub values: Vec<i32>,
}

/// Matches pods by a condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct OnPodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: Option<String>,
}

/// What a failed pod means for its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureAction {
    /// It counts.
    Count,
    /// It does not count.
    Ignore,
    /// The Job has failed, for this reason.
    FailJob(String),
}

impl FailurePolicy {
    /// The action of the first rule that matches a failed pod.
    pub(crate) fn action_for(&self, pod: &Pod) -> FailureAction {
        let matching = self.rules.iter().enumerate().find_map(|(at, rule)| Some((at, rule, rule.matches(pod)?)));
        match matching {
            Some((at, rule, what)) if rule.action == "FailJob" => {
                FailureAction::FailJob(format!("{what} matching FailJob rule at index {at}"))
            }
            Some((_, rule, _)) if rule.action == "Ignore" => FailureAction::Ignore,
            _ => FailureAction::Count,
        }
    }
}

impl FailureRule {
    /// Why the rule matches a pod, as a message; `None` if it does not.
    fn matches(&self, pod: &Pod) -> Option<String> {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        if let Some(codes) = &self.on_exit_codes {
            let all = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
            let (container, code) = all.filter_map(|status| Some((&status.name, codes.matches(status)?))).next()?;
            return Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"));
        }
        let is_meant = |type_: &str, status: &str| {
            let pattern = |pattern: &OnPodCondition| {
                pattern.type_ == type_ && pattern.status.as_deref().unwrap_or("True") == status
            };
            self.on_pod_conditions.iter().any(pattern)
        };
        let found = pod.status.conditions.iter().find(|condition| is_meant(&condition.type_, &condition.status))?;
        Some(format!("Pod {namespace}/{name} has condition {}", found.type_))
    }
}

impl OnExitCodes {
    fn matches(&self, status: &ContainerStatus) -> Option<i32> {
        let code = status.state.terminated.as_ref()?.exit_code;
        let named = self.container_name.as_ref().is_none_or(|name| *name == status.name);
        let listed = self.values.contains(&code);
        (named && code != 0 && listed == (self.operator == "In")).then_some(code)
    }
}

/// `successPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct SuccessPolicy {
    pub rules: Vec<SuccessRule>,
}

/// One rule: which successes are enough.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SuccessRule {
    pub succeeded_indexes: Option<String>,
    pub succeeded_count: Option<u32>,
}

impl SuccessPolicy {
    /// Why these successes are enough; `None` if they are not.
    pub(crate) fn met(&self, succeeded: &Indexes, limit: u32) -> Option<String> {
        let enough = |rule: &SuccessRule| match &rule.succeeded_indexes {
            Some(needed) => {
                let needed = Indexes::parse(needed, limit);
                let there = needed.common(succeeded);
                needed.total() > 0 && there >= rule.succeeded_count.unwrap_or(u32::MAX).min(needed.total())
            }
            None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
        };
        let at = self.rules.iter().position(enough).filter(|_| succeeded.total() > 0)?;
        Some(format!("Matched rules at index {at}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_rule_that_is_about_a_pod_counts() {
        let check = |rules: Value, expect: FailureAction| {
            let policy: FailurePolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
            let ended = |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "a"},
                "status": {
                    "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                    "containerStatuses": [ended("side", 0), ended("main", 42)],
                },
            }))
            .unwrap();
            assert_eq!(policy.action_for(&pod), expect, "{rules}");
        };
        let codes = |action: &str, operator: &str, values: Value, name: Option<&str>| json!({"action": action, "onExitCodes": {"containerName": name, "operator": operator, "values": values}});
        let disrupted = |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]});
        let failed = |text: &str| FailureAction::FailJob(text.into());
        check(json!([]), FailureAction::Count);
        check(
            json!([codes("FailJob", "In", json!([1, 42]), None)]),
            failed("Container main for pod a/p failed with exit code 42 matching FailJob rule at index 0"),
        );
        check(json!([codes("FailJob", "In", json!([42]), Some("side"))]), FailureAction::Count);
        check(json!([codes("Ignore", "NotIn", json!([1]), None)]), FailureAction::Ignore);
        check(json!([codes("Ignore", "NotIn", json!([42]), None)]), FailureAction::Count);
        check(
            json!([codes("Ignore", "In", json!([7]), None), disrupted("FailJob")]),
            failed("Pod a/p has condition DisruptionTarget matching FailJob rule at index 1"),
        );
        check(json!([disrupted("Count"), codes("FailJob", "In", json!([42]), None)]), FailureAction::Count);
    }

    #[test]
    fn some_successes_are_enough() {
        let check = |rules: Value, succeeded: &str, expect: Option<&str>| {
            let policy: SuccessPolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
            let got = policy.met(&Indexes::parse(succeeded, 10), 10);
            assert_eq!(got.as_deref(), expect, "{rules} {succeeded}");
        };
        check(json!([{"succeededCount": 2}]), "1", None);
        check(json!([{"succeededCount": 2}]), "1,5", Some("Matched rules at index 0"));
        check(json!([{"succeededIndexes": "0-2"}]), "0,1", None);
        check(json!([{"succeededIndexes": "0-2"}]), "0-3", Some("Matched rules at index 0"));
        check(
            json!([{"succeededCount": 9}, {"succeededIndexes": "0-2", "succeededCount": 1}]),
            "2",
            Some("Matched rules at index 1"),
        );
        check(json!([{"succeededIndexes": "0-2", "succeededCount": 1}]), "7", None);
    }
}
