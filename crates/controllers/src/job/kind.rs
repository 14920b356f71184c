//! The fields of a Job that the controller reads, with the defaults of Kubernetes. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use konverge_core::{LabelSelector, SelectorError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::policy::{FailurePolicy, SuccessPolicy};
use crate::meta::{Condition, HasMeta, Meta, condition};
use crate::pods::Pod;
use crate::replicaset::is_zero;

/// The labels of a Job's pods: whose they are, by uid and by name, each under a new name and an old one.
const CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// The annotation and the label that say which of its completions a pod works on.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The end, as conditions say it.
pub(crate) const COMPLETE: &str = "Complete";
pub(crate) const FAILED: &str = "Failed";

/// What Kubernetes assumes of a Job without a value.
const BACKOFF_LIMIT: i32 = 6;

/// A Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    pub metadata: Meta,
    pub spec: JobSpec,
    pub status: JobStatus,
}

/// The spec of a Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSpec {
    pub parallelism: Option<i32>,
    pub completions: Option<i32>,
    pub completion_mode: Option<String>,
    pub backoff_limit: Option<i32>,
    pub active_deadline_seconds: Option<i64>,
    pub ttl_seconds_after_finished: Option<i64>,
    pub suspend: Option<bool>,
    pub selector: Option<Value>,
    pub template: Value,
    pub pod_failure_policy: Option<FailurePolicy>,
    pub pod_replacement_policy: Option<String>,
    pub success_policy: Option<SuccessPolicy>,
    pub managed_by: Option<String>,
}

/// The status of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobStatus {
    #[serde(skip_serializing_if = "is_zero")]
    pub active: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_indexes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<Uncounted>,
}

/// Pods that have ended, by uid, whose end is not yet among the counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Uncounted {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

/// How a Job came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Complete,
    Failed,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Complete { COMPLETE } else { FAILED })
    }
}

impl HasMeta for Job {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Uncounted {
    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }
}

impl Job {
    /// How many pods may run at once.
    pub(crate) fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// How many pods have to succeed; if nothing is said, one of them says when all is done.
    pub(crate) fn completions(&self) -> Option<i32> {
        self.spec.completions.or_else(|| self.spec.parallelism.is_none().then_some(1))
    }

    /// How many pods may fail.
    pub(crate) fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)
    }

    /// How many indexes there are, if each completion has one of its own.
    pub(crate) fn indexes(&self) -> Option<u32> {
        let indexed = self.spec.completion_mode.as_deref() == Some("Indexed");
        indexed.then(|| u32::try_from(self.completions().unwrap_or_default()).unwrap_or_default())
    }

    /// Whether it is suspended: none of its pods are to run.
    pub(crate) fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or_default()
    }

    /// Whether another controller does its work.
    pub(crate) fn is_managed_elsewhere(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|name| name != "kubernetes.io/job-controller")
    }

    /// Whether a pod is replaced only after it has terminated, not when its deletion begins.
    pub(crate) fn replaces_after_termination(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }

    /// Whether its containers are restarted in place.
    pub(crate) fn restarts_in_place(&self) -> bool {
        self.spec.template["spec"]["restartPolicy"] == "OnFailure"
    }

    /// The condition `Complete` or `Failed`, if it is true.
    pub(crate) fn finished(&self) -> Option<&Condition> {
        let is_true = |type_| condition(&self.status.conditions, type_).filter(|found| found.status == "True");
        is_true(COMPLETE).or_else(|| is_true(FAILED))
    }

    /// How the Job finished, if it has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.finished().map(|finished| if finished.type_ == COMPLETE { Ending::Complete } else { Ending::Failed })
    }

    /// Whether a pod counts as failed.
    pub(crate) fn is_failed(&self, pod: &Pod) -> bool {
        match pod.status.phase.as_str() {
            "Failed" => true,
            "Succeeded" => false,
            // One that is deleted may never get to say that it failed.
            _ => pod.metadata.is_terminating() && !self.replaces_after_termination(),
        }
    }

    /// What its pods are known by.
    pub(crate) fn selector(&self) -> Result<LabelSelector, SelectorError> {
        LabelSelector::from_object(&self.selector_object())
    }

    /// What it says its pods are known by, or else its uid. API servers usually write that into it.
    pub(crate) fn selector_object(&self) -> Value {
        match &self.spec.selector {
            Some(selector) if !crate::template::is_empty(selector) => selector.clone(),
            _ => json!({"matchLabels": {CONTROLLER_UID[0]: self.metadata.uid}}),
        }
    }

    /// The template of its pods, with the labels it knows them by.
    pub(crate) fn template(&self) -> Value {
        let mut template = self.spec.template.clone();
        if self.spec.selector.as_ref().is_none_or(crate::template::is_empty) {
            let labels = CONTROLLER_UID.map(|label| (label, &self.metadata.uid));
            for (label, value) in labels.into_iter().chain(JOB_NAME.map(|label| (label, &self.metadata.name))) {
                template["metadata"]["labels"][label] = value.as_str().into();
            }
        }
        template
    }
}

/// Which completion a pod works on.
pub(super) fn index_of(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.get(COMPLETION_INDEX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_assumed() {
        let check = |spec: Value, expect: (i32, Option<i32>, Option<u32>)| {
            let job: Job = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!((job.parallelism(), job.completions(), job.indexes()), expect, "{spec}");
        };
        check(json!({}), (1, Some(1), None));
        check(json!({"parallelism": 3}), (3, None, None));
        check(json!({"completions": 3}), (1, Some(3), None));
        check(json!({"completions": 3, "completionMode": "Indexed"}), (1, Some(3), Some(3)));
        check(json!({"completions": 3, "completionMode": "NonIndexed"}), (1, Some(3), None));
    }

    #[test]
    fn pods_are_known_by_the_uid_unless_a_selector_says_otherwise() {
        let job = |spec: Value| -> Job {
            serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec})).unwrap()
        };
        let own = job(json!({"template": {"metadata": {"labels": {"app": "x"}}}}));
        let labels = &own.template()["metadata"]["labels"];
        assert_eq!(
            *labels,
            json!({
                "app": "x", "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
                "job-name": "j", "batch.kubernetes.io/job-name": "j",
            })
        );
        let texts: crate::meta::StringMap = serde_json::from_value(labels.clone()).unwrap();
        assert!(own.selector().unwrap().matches(&texts));
        let terminated =
            job(json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}));
        assert_eq!(terminated.template()["metadata"]["labels"], json!({"a": "b"}));
    }
}
