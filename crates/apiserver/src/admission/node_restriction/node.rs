//! What a node may change of itself: not its taints and not its owners, and only those labels that kubelets set. Otherwise it could
//! draw pods to itself that are meant for others.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use konverge_core::Status;
use konverge_schema::go_quote;

use super::super::Operation;
use super::{Request, normalized};

/// The labels with a prefix of Kubernetes that kubelets set.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The prefixes under which kubelets may set any label.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The prefix of labels that nodes must not set.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

impl Request<'_> {
    pub(super) fn node(&self) -> Result<(), Status> {
        let (node, requested) = (self.quoted(), self.attributes.name);
        self.unless(requested == self.node, || {
            format!("node {node} is not allowed to modify node {}", go_quote(requested))
        })?;
        let (old, new) = (self.old(), self.object);
        match self.attributes.operation {
            Operation::Create => {
                self.unless(new["spec"]["configSource"].is_null(), || {
                    format!("node {node} is not allowed to create pods with a non-nil configSource")
                })?;
                let labels = forbidden_labels(&Value::Null, new);
                self.unless(labels.is_empty(), || {
                    format!("node {node} is not allowed to set the following labels: {}", labels.join(", "))
                })
            }
            Operation::Update => {
                let source = |node: &Value| node["spec"]["configSource"].clone();
                self.unless(source(new).is_null() || source(new) == source(old), || {
                    format!("node {node} is not allowed to update configSource to a new non-nil configSource")
                })?;
                let taints = |node: &Value| list(&node["spec"]["taints"]);
                self.unless(taints(new) == taints(old), || format!("node {node} is not allowed to modify taints"))?;
                let owners = |node: &Value| list(&node["metadata"]["ownerReferences"]);
                self.unless(owners(new) == owners(old), || {
                    format!("node {node} is not allowed to modify ownerReferences")
                })?;
                let labels = forbidden_labels(old, new);
                self.unless(labels.is_empty(), || format!("is not allowed to modify labels: {}", labels.join(", ")))
            }
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }
}

/// A list that may be absent.
fn list(value: &Value) -> Vec<Value> {
    value.as_array().into_iter().flatten().map(normalized).collect()
}

/// The labels that differ between two nodes, and that no node may set, in order.
fn forbidden_labels(old: &Value, new: &Value) -> Vec<String> {
    let labels =
        |node: &Value| -> Map<String, Value> { node["metadata"]["labels"].as_object().cloned().unwrap_or_default() };
    let (old, new) = (labels(old), labels(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = |key: &&String| old.get(key.as_str()) != new.get(key.as_str());
    keys.into_iter().filter(differs).filter(|key| is_forbidden(key)).cloned().collect()
}

fn is_forbidden(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_below =
        |owner: &&str| prefix == *owner || prefix.strip_suffix(*owner).is_some_and(|rest| rest.ends_with('.'));
    let is_kubernetes = ["kubernetes.io", "k8s.io"].iter().any(&is_below);
    let of_kubelet = KUBELET_LABELS.contains(&label) || KUBELET_PREFIXES.iter().any(&is_below);
    is_below(&RESTRICTED) || (is_kubernetes && !of_kubelet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_labels_nodes_must_not_set() {
        for (label, expect) in [
            ("plain", false),
            ("example.com/zone", false),
            ("kubernetes.io/hostname", false),
            ("kubernetes.io/other", true),
            ("node-role.kubernetes.io/control-plane", true),
            ("node.kubernetes.io/anything", false),
            ("deep.kubelet.kubernetes.io/anything", false),
            ("notkubelet.kubernetes.io/anything", true),
            ("notkubernetes.io/anything", false),
            ("a.k8s.io/b", true),
            ("node-restriction.kubernetes.io/a", true),
            ("x.node-restriction.kubernetes.io/a", true),
        ] {
            assert_eq!(is_forbidden(label), expect, "{label}");
        }
    }
}
