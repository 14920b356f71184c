//! Which nodes run the pods of a DaemonSet. In: a template, a node, a pod. Out: whether the node should run one, a pod that can
//! only be scheduled to that node, and the node that a pod was made for. Pure.

use konverge_core::from_stored_value;
use serde_json::{Value, json};

use crate::meta::Meta;
use crate::pods::Pod;
use crate::revision_history::POD_REVISION;
use crate::simulator::{Node, PodSpec, Taint, Toleration, is_selected, tolerated};
use crate::template;

/// Taints that the pods of every DaemonSet tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The taint that pods in the network of their host tolerate as well.
const TOLERATED_ON_HOST: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Whether a node should run a pod of a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It should run a pod.
    Run,
    /// It gets no new pod, but a running one may continue.
    ContinueRunning,
    /// It should not run one.
    DoNotRun,
}

/// The scheduling constraints of a template, with the tolerations of every DaemonSet.
pub(super) fn constraints(template: &Value) -> PodSpec {
    let mut spec: PodSpec = from_stored_value(&template["spec"]).unwrap_or_default();
    let tolerations = tolerations(spec.host_network).map(|(key, effect)| Toleration {
        key: key.into(),
        operator: "Exists".into(),
        effect: effect.into(),
        ..Toleration::default()
    });
    spec.tolerations.extend(tolerations);
    spec
}

/// Whether a node should run pods with these constraints.
pub(super) fn fit(constraints: &PodSpec, node: &Node) -> Fit {
    let is_named = constraints.node_name.is_empty() || constraints.node_name == node.metadata.name;
    if !is_named || !is_selected(constraints, node) {
        return Fit::DoNotRun;
    }
    let refuses = |effect: &str| {
        let mut taints = node.spec.taints.iter().filter(|taint: &&Taint| taint.effect == effect);
        taints.any(|taint| !tolerated(constraints, taint))
    };
    match (refuses("NoExecute"), refuses("NoSchedule")) {
        (false, false) => Fit::Run,
        (false, true) => Fit::ContinueRunning,
        (true, _) => Fit::DoNotRun,
    }
}

/// A pod for a node.
pub(super) fn pod(template: &Value, hash: &str, owner: &Meta, reference: &Value, node: &str, random: u64) -> Value {
    let mut pod = template::pod(template, owner, reference, random);
    pod["metadata"]["labels"][POD_REVISION] = hash.into();
    let spec = &mut pod["spec"];
    let by_name = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = by_name;
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in tolerations(spec["hostNetwork"] == true) {
        let same =
            |other: &&mut Value| other["key"] == key && other["effect"] == effect && other["operator"] == "Exists";
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        match all.iter_mut().find(same) {
            // A toleration with a time limit is replaced by one without.
            Some(there) => *there = toleration,
            None => all.push(toleration),
        }
    }
    spec["tolerations"] = all.into();
    pod
}

/// The node that a pod is on, or was made for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    if !pod.spec.node_name.is_empty() {
        return Some(&pod.spec.node_name);
    }
    let required = &pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution;
    let mut fields = required.iter().flat_map(|all| &all.node_selector_terms).flat_map(|term| &term.match_fields);
    let by_name = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match by_name.values.as_slice() {
        [name] => Some(name),
        _ => None,
    }
}

fn tolerations(on_host: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    TOLERATED.into_iter().chain(on_host.then_some(TOLERATED_ON_HOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_daemons_unless_they_refuse() {
        let check = |spec: Value, node: Value, expect: Fit| {
            let mut node: Node = serde_json::from_value(node).unwrap();
            node.metadata.name = "n1".into();
            assert_eq!(fit(&constraints(&json!({"spec": spec})), &node), expect, "{spec}");
        };
        let taint = |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "effect": effect}]}});
        check(json!({}), json!({}), Fit::Run);
        check(json!({"nodeName": "n1"}), json!({}), Fit::Run);
        check(json!({"nodeName": "n2"}), json!({}), Fit::DoNotRun);
        check(json!({"nodeSelector": {"disk": "ssd"}}), json!({}), Fit::DoNotRun);
        check(json!({"nodeSelector": {"disk": "ssd"}}), json!({"metadata": {"labels": {"disk": "ssd"}}}), Fit::Run);
        check(json!({}), taint("k", "NoSchedule"), Fit::ContinueRunning);
        check(json!({}), taint("k", "NoExecute"), Fit::DoNotRun);
        check(json!({}), taint("k", "PreferNoSchedule"), Fit::Run);
        check(json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), taint("k", "NoExecute"), Fit::Run);
        // A node in trouble still runs daemons.
        for (key, effect) in TOLERATED {
            check(json!({}), taint(key, effect), Fit::Run);
        }
        check(json!({}), json!({"spec": {"unschedulable": true}}), Fit::Run);
        let (key, effect) = TOLERATED_ON_HOST;
        check(json!({}), taint(key, effect), Fit::ContinueRunning);
        check(json!({"hostNetwork": true}), taint(key, effect), Fit::Run);
    }

    #[test]
    fn pods_go_to_their_node() {
        let preferred = json!([{"weight": 1, "preference": {}}]);
        let template = json!({
            "metadata": {"labels": {"app": "log"}},
            "spec": {
                "affinity": {"nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
                }},
                "tolerations": [{"key": "k", "operator": "Exists"}, {"key": TOLERATED[0].0, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            },
        });
        let owner = Meta { name: "log".into(), namespace: "a".into(), ..Meta::default() };
        let made = pod(&template, "abc", &owner, &json!({"uid": "u"}), "n7", 0);
        assert_eq!(made["metadata"]["labels"], json!({"app": "log", "controller-revision-hash": "abc"}));
        let affinity = &made["spec"]["affinity"]["nodeAffinity"];
        assert_eq!(affinity["preferredDuringSchedulingIgnoredDuringExecution"], preferred);
        let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let by_name = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}]);
        assert_eq!(terms, &by_name);
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.len(), 1 + TOLERATED.len());
        assert_eq!(tolerations[1], json!({"key": TOLERATED[0].0, "operator": "Exists", "effect": "NoExecute"}));

        let mut read: Pod = serde_json::from_value(made).unwrap();
        assert_eq!(target(&read), Some("n7"));
        read.spec.node_name = "n8".into();
        assert_eq!(target(&read), Some("n8"));
        assert_eq!(target(&Pod::default()), None);
    }
}
