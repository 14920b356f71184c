//! Labels of nodes that have newer names, wherever objects select nodes by them.

use serde_json::Value;

use konverge_core::{FieldPath, check_label_value};

use super::{address, list, text};

const DEPRECATED_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Why a label of nodes should not be used.
pub(super) fn deprecated_label(label: &str) -> Option<&'static str> {
    DEPRECATED_LABELS.iter().find(|(known, _)| *known == label).map(|(_, why)| *why)
}

pub(super) fn warnings(node: &Value, out: &mut Vec<String>) {
    let spec = &node["spec"];
    if !spec["configSource"].is_null() {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(&spec["externalID"]).is_empty() {
        out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (index, range) in list(&spec["podCIDRs"]).iter().enumerate() {
        address::cidr(&FieldPath::new("spec").child("podCIDRs").index(index), text(range), out);
    }
}

pub(super) fn runtime_class(class: &Value, out: &mut Vec<String>) {
    let labels = class["scheduling"]["nodeSelector"].as_object().into_iter().flatten();
    out.extend(labels.filter_map(|(label, _)| Some(format!("scheduling.nodeSelector: {}", deprecated_label(label)?))));
}

pub(super) fn storage_class(class: &Value, out: &mut Vec<String>) {
    for (index, topology) in list(&class["allowedTopologies"]).iter().enumerate() {
        for (at, expression) in list(&topology["matchLabelExpressions"]).iter().enumerate() {
            if let Some(why) = deprecated_label(text(&expression["key"])) {
                out.push(format!("allowedTopologies[{index}].matchLabelExpressions[{at}].key: {why}"));
            }
        }
    }
}

pub(super) fn label_selector(at: &str, selector: &Value, out: &mut Vec<String>) {
    let at = FieldPath::new(at);
    term(&at, selector, false, out);
    for label in selector["matchLabels"].as_object().into_iter().flatten().map(|(label, _)| label) {
        if let Some(why) = deprecated_label(label) {
            out.push(format!("{}: {why}", at.child("matchLabels").child(label)));
        }
    }
}

/// The expressions of one term that selects nodes.
pub(super) fn term(at: &FieldPath, term: &Value, check_values: bool, out: &mut Vec<String>) {
    for (index, expression) in list(&term["matchExpressions"]).iter().enumerate() {
        let at = at.child("matchExpressions").index(index);
        let key = text(&expression["key"]);
        if let Some(why) = deprecated_label(key) {
            out.push(format!("{}: {key} is {why}", at.child("key")));
        }
        for (index, value) in list(&expression["values"]).iter().enumerate().filter(|_| check_values) {
            for why in check_label_value(text(value)) {
                out.push(format!("{}: {} is invalid, {why}", at.child("values").index(index), text(value)));
            }
        }
    }
}
