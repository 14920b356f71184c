//! The scopes of a quota: which pods and claims count for it. In: a scope and an object. Out: whether the object is in it.

use serde::Deserialize;
use serde_json::Value;

use super::pod::is_best_effort;

/// One scope, which an object is in or not.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Scope {
    scope_name: String,
    operator: String,
    values: Vec<String>,
}

impl Scope {
    /// The scope of this name, without a selector.
    pub(super) fn named(name: String) -> Self {
        Self { scope_name: name, operator: "Exists".to_owned(), values: Vec::new() }
    }

    pub(super) fn has_pod(&self, pod: &Value) -> bool {
        match self.scope_name.as_str() {
            "Terminating" => has_deadline(pod),
            "NotTerminating" => !has_deadline(pod),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => self.selects(pod["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty())),
            "CrossNamespacePodAffinity" => reaches_other_namespaces(&pod["spec"]["affinity"]),
            _ => false,
        }
    }

    pub(super) fn has_claim(&self, claim: &Value) -> bool {
        if self.scope_name != "VolumeAttributesClass" {
            return false;
        }
        let classes = [
            &claim["spec"]["volumeAttributesClassName"],
            &claim["status"]["currentVolumeAttributesClassName"],
            &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
        ];
        let classes: Vec<&str> =
            classes.into_iter().filter_map(Value::as_str).filter(|name| !name.is_empty()).collect();
        if classes.is_empty() { self.selects(None) } else { classes.into_iter().any(|class| self.selects(Some(class))) }
    }

    /// Whether the selector takes this value, or an object without a value.
    fn selects(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|other| other == value));
        match self.operator.as_str() {
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    }
}

/// Whether a pod ends by itself: the scope `Terminating`.
pub(super) fn has_deadline(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn reaches_other_namespaces(affinity: &Value) -> bool {
    let reaches = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|names| !names.is_empty()) || !term["namespaceSelector"].is_null()
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|field| {
        let terms = |name: &str| affinity[field][name].as_array().into_iter().flatten();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(reaches)
            || terms("preferredDuringSchedulingIgnoredDuringExecution").any(|term| reaches(&term["podAffinityTerm"]))
    })
}
