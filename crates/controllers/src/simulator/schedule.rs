//! Scheduling and eviction. In: a pod, the nodes, and the pods that each has. Out: a node, or why none fits; and how long a
//! pod may stay on a node with taints. Pure. The pods of one controller are spread over the nodes, as kube-scheduler does by default. It considers what the pod says about nodes and how many pods a node may have,
//! but not the resource requests of containers: nothing runs here that could use resources.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::kind::{Node, Pod, PodSpec, Requirement, Taint, Term};

/// The taint of an unreachable node.
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taint that stands for `spec.unschedulable`, which a pod can tolerate.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// How many pods a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    /// Those of the same controller as the pod that is scheduled. They count first.
    pub siblings: usize,
    /// All of them.
    pub pods: usize,
}

/// The node that the pod may run on with the fewest pods of the same controller, then with the fewest pods, then the first by name;
/// or why there is none.
pub(super) fn schedule<'n, N>(pod: &Pod, nodes: &'n [N], load: impl Fn(&str) -> Load) -> Result<&'n Node, String>
where
    N: AsRef<Node>,
{
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting: Vec<(Load, &Node)> = Vec::new();
    for node in nodes.iter().map(AsRef::as_ref) {
        let load = load(&node.metadata.name);
        match refusal(&pod.spec, node, load.pods) {
            Some(reason) => *refusals.entry(reason).or_default() += 1,
            None => fitting.push((load, node)),
        }
    }
    let best = fitting.into_iter().min_by_key(|(load, node)| (*load, &node.metadata.name));
    best.map(|(_, node)| node).ok_or_else(|| {
        let reasons: Vec<String> = refusals.iter().map(|(reason, many)| format!("{many} {reason}")).collect();
        match reasons.is_empty() {
            true => "no nodes available to schedule pods".to_owned(),
            false => format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", ")),
        }
    })
}

/// Why a pod may not run on a node.
fn refusal(spec: &PodSpec, node: &Node, pods: usize) -> Option<String> {
    let blocks = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let closed = Taint { key: UNSCHEDULABLE.into(), effect: "NoSchedule".into(), ..Taint::default() };
    if node.spec.unschedulable && !tolerated(spec, &closed) {
        return Some("node(s) were unschedulable".into());
    }
    if let Some(taint) = node.spec.taints.iter().filter(blocks).find(|taint| !tolerated(spec, taint)) {
        return Some(format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value));
    }
    if !is_selected(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".into());
    }
    (pods >= node.pod_capacity()).then(|| "Too many pods".into())
}

/// Whether a pod tolerates a taint.
pub(crate) fn tolerated(spec: &PodSpec, taint: &Taint) -> bool {
    spec.tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

/// Whether a pod selects a node, by its labels and by its name.
pub(crate) fn is_selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    let by_label = spec.node_selector.iter().all(|(name, value)| labels.get(name) == Some(value));
    let terms = &spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution;
    by_label && terms.as_ref().is_none_or(|selector| selector.node_selector_terms.iter().any(|term| fits(term, node)))
}

/// Whether a node matches a term. A term without requirements matches no node.
fn fits(term: &Term, node: &Node) -> bool {
    let name = Some(&node.metadata.name);
    let by_label = |wanted: &Requirement| holds(wanted, node.metadata.labels.get(&wanted.key));
    let by_field = |wanted: &Requirement| wanted.key == "metadata.name" && holds(wanted, name);
    let asks = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    asks && term.match_expressions.iter().all(by_label) && term.match_fields.iter().all(by_field)
}

fn holds(wanted: &Requirement, value: Option<&String>) -> bool {
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = || number(value).zip(number(wanted.values.first()));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(|value| wanted.values.contains(value)),
        "NotIn" => value.is_none_or(|value| !wanted.values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, wanted)| value > wanted),
        "Lt" => compared().is_some_and(|(value, wanted)| value < wanted),
        _ => false,
    }
}

/// How long a pod may stay on a node with `NoExecute` taints; `None` means for ever. `unreachable_grace` is the limit on an
/// unreachable node for pods that do not tolerate it for a time of their own.
pub(super) fn time_until_eviction(
    pod: &Pod,
    node: &Node,
    unreachable_grace: Duration,
    now: Timestamp,
) -> Option<Duration> {
    let evicting = node.spec.taints.iter().filter(|taint| taint.effect == "NoExecute");
    let left = evicting.filter_map(|taint| {
        let mut tolerations = pod.spec.tolerations.iter().filter(|toleration| toleration.tolerates(taint)).peekable();
        let limit = match tolerations.peek() {
            None if taint.key == UNREACHABLE => {
                SignedDuration::try_from(unreachable_grace).unwrap_or(SignedDuration::MAX)
            }
            None => SignedDuration::ZERO,
            // The shortest toleration counts. A toleration without a limit sets none.
            Some(_) => SignedDuration::from_secs(tolerations.filter_map(|each| each.toleration_seconds).min()?),
        };
        let passed = taint.time_added.as_ref().map_or(SignedDuration::ZERO, |added| now.duration_since(added.0));
        Some(limit - passed)
    });
    left.min().map(|left| Duration::try_from(left).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, more: Value) -> Arc<Node> {
        let mut node: Node = serde_json::from_value(more).unwrap();
        node.metadata.name = name.into();
        Arc::new(node)
    }

    /// Where a pod with this spec goes, or why nowhere.
    fn check(spec: Value, nodes: &[Arc<Node>], expect: Result<&str, &str>) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let got = schedule(&pod, nodes, |name| Load { siblings: 0, pods: if name == "full" { 9 } else { 1 } });
        let got = got.map(|node| node.metadata.name.clone());
        assert_eq!(got.as_deref().map_err(String::as_str), expect, "{spec}");
    }

    #[test]
    fn pods_go_where_they_may() {
        let plain = node("plain", json!({"metadata": {"labels": {"zone": "a", "size": "3"}}}));
        let closed = node("closed", json!({"spec": {"unschedulable": true}}));
        let tainted =
            node("tainted", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}));
        let full = node("full", json!({"status": {"allocatable": {"pods": "9"}}}));
        let both = [closed.clone(), tainted.clone()];
        let only = [plain.clone()];
        check(json!({}), &[], Err("no nodes available to schedule pods"));
        check(json!({}), &[closed.clone(), plain.clone()], Ok("plain"));
        let why = "0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were unschedulable.";
        check(json!({}), &both, Err(why));
        check(json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), &both, Ok("tainted"));
        check(json!({"tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}), &both, Ok("tainted"));
        check(json!({"tolerations": [{"key": "k", "value": "w"}]}), &both, Err(why));
        check(json!({"tolerations": [{"operator": "Exists"}]}), &[closed], Ok("closed"));
        check(json!({}), &[full], Err("0/1 nodes are available: 1 Too many pods."));
        check(json!({}), &[node("full", json!({})), plain.clone()], Ok("plain"));
        check(json!({"nodeSelector": {"zone": "a"}}), &only, Ok("plain"));
        let nowhere = Err("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.");
        check(json!({"nodeSelector": {"zone": "b"}}), &only, nowhere);
        let required = |term: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}});
        let field = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        check(required(field("plain")), &only, Ok("plain"));
        check(required(field("other")), &only, nowhere);
        check(required(json!({})), &only, nowhere);
        for (operator, values, fits) in [
            ("In", json!(["a", "b"]), true),
            ("NotIn", json!(["a"]), false),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
        ] {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
            check(required(term), &only, if fits { Ok("plain") } else { nowhere });
        }
        for (operator, than, fits) in [("Gt", "2", true), ("Gt", "3", false), ("Lt", "4", true), ("Lt", "x", false)] {
            let term = json!({"matchExpressions": [{"key": "size", "operator": operator, "values": [than]}]});
            check(required(term), &only, if fits { Ok("plain") } else { nowhere });
        }
    }

    #[test]
    fn pods_are_spread() {
        let check = |loads: [(&str, usize, usize); 3], expect: &str| {
            let nodes = loads.map(|(name, _, _)| node(name, json!({})));
            let load = |name: &str| {
                let found = loads.iter().find(|(node, _, _)| *node == name).unwrap();
                Load { siblings: found.1, pods: found.2 }
            };
            let pod = Pod::default();
            assert_eq!(schedule(&pod, &nodes, load).unwrap().metadata.name, expect, "{loads:?}");
        };
        // The order of nodes does not matter.
        check([("c", 0, 0), ("a", 0, 0), ("b", 0, 0)], "a");
        check([("a", 0, 2), ("b", 0, 1), ("c", 0, 1)], "b");
        // Pods of the same controller count more than all others.
        check([("a", 1, 1), ("b", 0, 9), ("c", 1, 1)], "b");
        check([("a", 1, 5), ("b", 1, 4), ("c", 2, 2)], "b");
    }

    #[test]
    fn pods_stay_as_long_as_they_tolerate() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let check = |taint: Value, tolerations: Value, expect: Option<u64>| {
            let node = node("n", json!({"spec": {"taints": [taint]}}));
            let pod: Pod = serde_json::from_value(json!({"spec": {"tolerations": tolerations}})).unwrap();
            let got = time_until_eviction(&pod, &node, Duration::from_secs(300), now);
            assert_eq!(got, expect.map(Duration::from_secs), "{taint} {tolerations}");
        };
        let taint = |key: &str| json!({"key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        check(json!({"key": "k", "effect": "NoSchedule"}), json!([]), None);
        check(taint("k"), json!([]), Some(0));
        check(taint("k"), json!([{"key": "k", "operator": "Exists"}]), None);
        check(taint("k"), json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 100}]), Some(40));
        check(taint("k"), json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 10}]), Some(0));
        check(taint(UNREACHABLE), json!([]), Some(240));
    }
}
