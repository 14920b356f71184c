//! Plans the next step of a DaemonSet. In: the DaemonSet, the nodes, its pods, the time. Out: the nodes that need a pod, the
//! pods to delete, the status, and when to reconcile again. Pure.
//!
//! First each node gets the pod that it should have; when all nodes have one, old pods are replaced. Without a surge the old
//! pod is deleted before the new one is created, with a surge the new one is created first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::kind::{DaemonSet, DaemonSetStatus};
use super::placement::{Fit, constraints, fit, target};
use crate::pods::{Pod, next_available};
use crate::revision_history::POD_REVISION;
use crate::simulator::Node;

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 250;

/// What the planner reads.
pub(crate) struct Observed<'a> {
    pub set: &'a DaemonSet,
    pub nodes: &'a [Arc<Node>],
    pub pods: &'a [Arc<Pod>],
    /// The hash of the current template.
    pub hash: &'a str,
    /// How long a failed pod on this node is kept before it is replaced.
    pub failure_backoff: &'a dyn Fn(&str) -> Duration,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Nodes that need a pod.
    pub create: Vec<String>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// The finished pods among them, with their nodes.
    pub ended: Vec<(Arc<Pod>, String)>,
    /// When to reconcile again if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// A node, and the pods of the DaemonSet on it.
struct NodeState<'a> {
    name: &'a str,
    fit: Fit,
    /// Whether the node exists.
    exists: bool,
    /// The first one counts. Pods on the node come before pods that are not scheduled yet, the oldest first.
    pods: Vec<&'a Arc<Pod>>,
}

/// The pods of a node while a new one replaces an old one.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// Makes the plan.
pub(crate) fn plan(observed: &Observed<'_>) -> Plan {
    let node_states = node_states(observed);
    let mut plan = Plan {
        requeue_after: next_available(observed.pods, observed.set.spec.min_ready_seconds, observed.now),
        ..Plan::default()
    };
    for state in &node_states {
        manage_node(observed, state, &mut plan);
    }
    if plan.create.is_empty() && plan.delete.is_empty() && observed.set.is_rolling() {
        let desired = node_states.iter().filter(|state| state.fit == Fit::Run).count();
        let (surge, unavailable) = observed.set.fenceposts(i32::try_from(desired).unwrap_or(i32::MAX));
        let count = |many: i32| usize::try_from(many).unwrap_or_default();
        match surge {
            0 => rolling_update(observed, &node_states, count(unavailable), &mut plan),
            _ => rolling_update_with_surge(observed, &node_states, count(surge), desired, &mut plan),
        }
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

/// The status of a DaemonSet with these pods.
pub(crate) fn status(observed: &Observed<'_>, collision_count: Option<i32>) -> DaemonSetStatus {
    let mut status = DaemonSetStatus {
        observed_generation: observed.set.metadata.generation,
        collision_count,
        ..DaemonSetStatus::default()
    };
    for state in node_states(observed).iter().filter(|state| state.exists) {
        let first = state.pods.first();
        if state.fit != Fit::Run {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.is_ready());
        status.number_available += i32::from(is_available(observed, pod));
        status.updated_number_scheduled += i32::from(is_new(observed, pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// The hash of the template that a pod was made from.
pub(crate) fn hash(pod: &Pod) -> Option<&String> {
    pod.metadata.labels.get(POD_REVISION)
}

/// Creates or deletes pods so that the node has what it should have, whatever the template.
fn manage_node(observed: &Observed<'_>, state: &NodeState<'_>, plan: &mut Plan) {
    if !state.exists {
        // A pod for a node that does not exist will never be scheduled.
        let unscheduled =
            state.pods.iter().filter(|pod| pod.spec.node_name.is_empty() && !pod.metadata.is_terminating());
        plan.delete.extend(unscheduled.copied().cloned());
        return;
    }
    let kept = || state.pods.iter().copied().filter(|pod| !pod.metadata.is_terminating());
    match state.fit {
        Fit::Run if state.pods.is_empty() => plan.create.push(state.name.to_owned()),
        Fit::DoNotRun => plan.delete.extend(kept().cloned()),
        Fit::Run | Fit::ContinueRunning => {
            let mut alive = Vec::new();
            for pod in kept() {
                let left = match pod.status.phase.as_str() {
                    "Failed" => (observed.failure_backoff)(state.name),
                    "Succeeded" => Duration::ZERO,
                    _ => {
                        alive.push(pod);
                        continue;
                    }
                };
                match left {
                    Duration::ZERO => {
                        plan.delete.push(pod.clone());
                        plan.ended.push((pod.clone(), state.name.to_owned()));
                    }
                    left => {
                        plan.requeue_after =
                            Some(plan.requeue_after.map_or(left, |requeue_after| requeue_after.min(left)))
                    }
                }
            }
            match observed.set.surges() {
                false => plan.delete.extend(alive.into_iter().skip(1).cloned()),
                true => manage_surge(observed, state, &alive, plan),
            }
        }
    }
}

/// With a surge a node may have two pods: an old one that is ready, and a new one that is not yet available.
fn manage_surge(observed: &Observed<'_>, state: &NodeState<'_>, alive: &[&Arc<Pod>], plan: &mut Plan) {
    if alive.is_empty() && state.fit == Fit::Run {
        plan.create.push(state.name.to_owned());
    }
    if alive.len() < 2 {
        return;
    }
    let (mut new, mut old) = (None, None);
    for pod in alive {
        let first = if is_new(observed, pod) { &mut new } else { &mut old };
        match first {
            None => *first = Some(*pod),
            Some(_) => plan.delete.push((*pod).clone()),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!old.is_ready() || is_available(observed, new))
    {
        plan.delete.push(old.clone());
    }
}

/// Deletes old pods, so that at most `most` nodes have no available pod.
fn rolling_update(observed: &Observed<'_>, node_states: &[NodeState<'_>], most: usize, plan: &mut Plan) {
    let mut unavailable = 0;
    let mut candidates = Vec::new();
    for state in node_states.iter().filter(|state| state.fit == Fit::Run || !state.pods.is_empty()) {
        match state.pair(observed) {
            Some(Pair { new: Some(new), old: None }) if is_available(observed, new) => {}
            Some(Pair { new: None, old: Some(old) }) if is_available(observed, old) => candidates.push(old.clone()),
            Some(Pair { new: None, old: Some(old) }) => {
                // It is unavailable, so deleting it costs nothing.
                plan.delete.push(old.clone());
                unavailable += 1;
            }
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(candidates.into_iter().take(most.saturating_sub(unavailable)));
}

/// Creates new pods beside old ones, on at most `most` nodes at a time.
fn rolling_update_with_surge(
    observed: &Observed<'_>,
    node_states: &[NodeState<'_>],
    most: usize,
    desired: usize,
    plan: &mut Plan,
) {
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
    for state in node_states {
        let Some(pair) = state.pair(observed) else {
            surging += 1;
            continue;
        };
        available += usize::from(pair.old.or(pair.new).is_some_and(|pod| is_available(observed, pod)));
        match pair {
            Pair { old: None, .. } => {}
            Pair { old: Some(old), new: None } => match (is_available(observed, old), state.fit == Fit::Run) {
                (false, false) => plan.delete.push(old.clone()),
                (false, true) => plan.create.push(state.name.to_owned()),
                (true, false) => unwanted.push(old.clone()),
                (true, true) => candidates.push(state.name.to_owned()),
            },
            Pair { old: Some(old), new: Some(new) } => match is_available(observed, new) {
                true => plan.delete.push(old.clone()),
                false => surging += 1,
            },
        }
    }
    // With a surge there must be no gap: a pod on a node that should not run it is deleted when enough others are available.
    plan.delete.extend(unwanted.into_iter().take(available.saturating_sub(desired)));
    plan.create.extend(candidates.into_iter().take(most.saturating_sub(surging)));
}

/// Every node, and every missing node that a pod was made for.
fn node_states<'a>(observed: &'a Observed<'_>) -> Vec<NodeState<'a>> {
    let constraints = constraints(&observed.set.spec.template);
    let state = |node: &'a Arc<Node>| {
        let name = node.metadata.name.as_str();
        (name, NodeState { name, fit: fit(&constraints, node), exists: true, pods: Vec::new() })
    };
    let mut node_states: BTreeMap<&str, NodeState<'_>> = observed.nodes.iter().map(state).collect();
    for pod in observed.pods {
        // A finished pod that is being deleted needs no replacement.
        if pod.is_finished() && pod.metadata.is_terminating() {
            continue;
        }
        let Some(name) = target(pod) else { continue };
        let missing_node = || NodeState { name, fit: Fit::DoNotRun, exists: false, pods: Vec::new() };
        node_states.entry(name).or_insert_with(missing_node).pods.push(pod);
    }
    let mut node_states: Vec<NodeState<'_>> = node_states.into_values().collect();
    for state in &mut node_states {
        // Creation times have whole seconds; of the same second, ready pods come first.
        state.pods.sort_by_key(|pod| {
            let meta = &pod.metadata;
            (pod.spec.node_name.is_empty(), meta.created(), !pod.is_ready(), meta.name.as_str())
        });
    }
    node_states
}

impl<'a> NodeState<'a> {
    /// The new and the old pod that are not being deleted; `None` if there are several new or several old ones.
    fn pair(&self, observed: &Observed<'_>) -> Option<Pair<'a>> {
        let mut pair = Pair { new: None, old: None };
        for pod in self.pods.iter().copied().filter(|pod| !pod.metadata.is_terminating()) {
            let one = if is_new(observed, pod) { &mut pair.new } else { &mut pair.old };
            if one.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

fn is_new(observed: &Observed<'_>, pod: &Pod) -> bool {
    hash(pod).is_some_and(|hash| hash == observed.hash)
}

fn is_available(observed: &Observed<'_>, pod: &Pod) -> bool {
    pod.is_available(observed.set.spec.min_ready_seconds, observed.now)
}

#[cfg(test)]
mod tests;
