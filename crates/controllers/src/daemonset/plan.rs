//! What a DaemonSet needs. In: the DaemonSet, the nodes, its pods, the time. Out: the nodes that need a pod, the pods that
//! have to go, what its status is, and when to look again. Pure.
//!
//! First each node gets what it should have; when all have it, old pods are replaced. Without a surge a pod goes before
//! the next one comes, with a surge the next one comes first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::kind::{DaemonSet, DaemonSetStatus};
use super::placement::{Fit, demands, fit, target};
use crate::pods::{Pod, next_available};
use crate::revision_history::POD_REVISION;
use crate::simulator::Node;

/// The most pods that one reconcile creates or deletes.
const BURST: usize = 250;

/// What the planner reads.
pub(crate) struct Seen<'a> {
    pub set: &'a DaemonSet,
    pub nodes: &'a [Arc<Node>],
    pub pods: &'a [Arc<Pod>],
    /// The hash of the present template.
    pub hash: &'a str,
    /// How long a pod that failed on a node stays, so that failing is not all that happens there.
    pub patience: &'a dyn Fn(&str) -> Duration,
    pub now: Timestamp,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// Nodes that need a pod.
    pub create: Vec<String>,
    /// Pods that have to go.
    pub delete: Vec<Arc<Pod>>,
    /// Pods among them that ended, and on which node.
    pub ended: Vec<(Arc<Pod>, String)>,
    /// When to reconcile again if nothing changes.
    pub again: Option<Duration>,
}

/// A node, and what of the DaemonSet is there.
struct Place<'a> {
    name: &'a str,
    fit: Fit,
    /// Whether the node is there.
    is_there: bool,
    /// The first counts: those on the node before those on their way, the oldest first.
    pods: Vec<&'a Arc<Pod>>,
}

/// The pods of a place while one replaces another: at most one of each kind.
struct Pair<'a> {
    new: Option<&'a Arc<Pod>>,
    old: Option<&'a Arc<Pod>>,
}

/// Makes the plan.
pub(crate) fn plan(seen: &Seen<'_>) -> Plan {
    let places = places(seen);
    let mut plan =
        Plan { again: next_available(seen.pods, seen.set.spec.min_ready_seconds, seen.now), ..Plan::default() };
    for place in &places {
        settle(seen, place, &mut plan);
    }
    if plan.create.is_empty() && plan.delete.is_empty() && seen.set.is_rolling() {
        let desired = places.iter().filter(|place| place.fit == Fit::Runs).count();
        let (surge, unavailable) = seen.set.fenceposts(i32::try_from(desired).unwrap_or(i32::MAX));
        let count = |many: i32| usize::try_from(many).unwrap_or_default();
        match surge {
            0 => replace(seen, &places, count(unavailable), &mut plan),
            _ => surge_ahead(seen, &places, count(surge), desired, &mut plan),
        }
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

/// What is true of a DaemonSet with these pods.
pub(crate) fn status(seen: &Seen<'_>, collision_count: Option<i32>) -> DaemonSetStatus {
    let mut status = DaemonSetStatus {
        observed_generation: seen.set.metadata.generation,
        collision_count,
        ..DaemonSetStatus::default()
    };
    for place in places(seen).iter().filter(|place| place.is_there) {
        let first = place.pods.first();
        if place.fit != Fit::Runs {
            status.number_misscheduled += i32::from(first.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = first else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.is_ready());
        status.number_available += i32::from(is_available(seen, pod));
        status.updated_number_scheduled += i32::from(is_new(seen, pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// The hash of the template a pod is of.
pub(crate) fn hash(pod: &Pod) -> Option<&String> {
    pod.metadata.labels.get(POD_REVISION)
}

/// Brings a node to what it should have, whatever the template.
fn settle(seen: &Seen<'_>, place: &Place<'_>, plan: &mut Plan) {
    if !place.is_there {
        // A pod on its way to a node that is gone never arrives.
        let lost = place.pods.iter().filter(|pod| pod.spec.node_name.is_empty() && !pod.metadata.is_terminating());
        plan.delete.extend(lost.copied().cloned());
        return;
    }
    let staying = || place.pods.iter().copied().filter(|pod| !pod.metadata.is_terminating());
    match place.fit {
        Fit::Runs if place.pods.is_empty() => plan.create.push(place.name.to_owned()),
        Fit::Not => plan.delete.extend(staying().cloned()),
        Fit::Runs | Fit::Stays => {
            let mut alive = Vec::new();
            for pod in staying() {
                let left = match pod.status.phase.as_str() {
                    "Failed" => (seen.patience)(place.name),
                    "Succeeded" => Duration::ZERO,
                    _ => {
                        alive.push(pod);
                        continue;
                    }
                };
                match left {
                    Duration::ZERO => {
                        plan.delete.push(pod.clone());
                        plan.ended.push((pod.clone(), place.name.to_owned()));
                    }
                    left => plan.again = Some(plan.again.map_or(left, |again| again.min(left))),
                }
            }
            match seen.set.surges() {
                false => plan.delete.extend(alive.into_iter().skip(1).cloned()),
                true => settle_surge(seen, place, &alive, plan),
            }
        }
    }
}

/// With a surge a node may have two pods: an old one that is ready, and a new one that is not available yet.
fn settle_surge(seen: &Seen<'_>, place: &Place<'_>, alive: &[&Arc<Pod>], plan: &mut Plan) {
    if alive.is_empty() && place.fit == Fit::Runs {
        plan.create.push(place.name.to_owned());
    }
    if alive.len() < 2 {
        return;
    }
    let (mut new, mut old) = (None, None);
    for pod in alive {
        let first = if is_new(seen, pod) { &mut new } else { &mut old };
        match first {
            None => *first = Some(*pod),
            Some(_) => plan.delete.push((*pod).clone()),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!old.is_ready() || is_available(seen, new))
    {
        plan.delete.push(old.clone());
    }
}

/// Deletes old pods, so that no more than so many nodes are without an available one.
fn replace(seen: &Seen<'_>, places: &[Place<'_>], most: usize, plan: &mut Plan) {
    let mut unavailable = 0;
    let mut candidates = Vec::new();
    for place in places.iter().filter(|place| place.fit == Fit::Runs || !place.pods.is_empty()) {
        match place.pair(seen) {
            Some(Pair { new: Some(new), old: None }) if is_available(seen, new) => {}
            Some(Pair { new: None, old: Some(old) }) if is_available(seen, old) => candidates.push(old.clone()),
            Some(Pair { new: None, old: Some(old) }) => {
                // It does nothing for anybody as it is.
                plan.delete.push(old.clone());
                unavailable += 1;
            }
            _ => unavailable += 1,
        }
    }
    plan.delete.extend(candidates.into_iter().take(most.saturating_sub(unavailable)));
}

/// Creates new pods beside old ones, on no more than so many nodes at a time.
fn surge_ahead(seen: &Seen<'_>, places: &[Place<'_>], most: usize, desired: usize, plan: &mut Plan) {
    let (mut surging, mut available) = (0, 0);
    let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
    for place in places {
        let Some(pair) = place.pair(seen) else {
            surging += 1;
            continue;
        };
        available += usize::from(pair.old.or(pair.new).is_some_and(|pod| is_available(seen, pod)));
        match pair {
            Pair { old: None, .. } => {}
            Pair { old: Some(old), new: None } => match (is_available(seen, old), place.fit == Fit::Runs) {
                (false, false) => plan.delete.push(old.clone()),
                (false, true) => plan.create.push(place.name.to_owned()),
                (true, false) => unwanted.push(old.clone()),
                (true, true) => candidates.push(place.name.to_owned()),
            },
            Pair { old: Some(old), new: Some(new) } => match is_available(seen, new) {
                true => plan.delete.push(old.clone()),
                false => surging += 1,
            },
        }
    }
    // Who surges wants no gap: a pod on a node that is no longer wanted goes when there are enough elsewhere.
    plan.delete.extend(unwanted.into_iter().take(available.saturating_sub(desired)));
    plan.create.extend(candidates.into_iter().take(most.saturating_sub(surging)));
}

/// Every node, and every place a pod is for.
fn places<'a>(seen: &'a Seen<'_>) -> Vec<Place<'a>> {
    let demands = demands(&seen.set.spec.template);
    let place = |node: &'a Arc<Node>| {
        let name = node.metadata.name.as_str();
        (name, Place { name, fit: fit(&demands, node), is_there: true, pods: Vec::new() })
    };
    let mut places: BTreeMap<&str, Place<'_>> = seen.nodes.iter().map(place).collect();
    for pod in seen.pods {
        // What has ended and goes needs nobody any more.
        if pod.is_finished() && pod.metadata.is_terminating() {
            continue;
        }
        let Some(name) = target(pod) else { continue };
        let lost = || Place { name, fit: Fit::Not, is_there: false, pods: Vec::new() };
        places.entry(name).or_insert_with(lost).pods.push(pod);
    }
    let mut places: Vec<Place<'_>> = places.into_values().collect();
    for place in &mut places {
        // Creation is known to the second only; of one second, those that are ready come first.
        place.pods.sort_by_key(|pod| {
            let meta = &pod.metadata;
            (pod.spec.node_name.is_empty(), meta.created(), !pod.is_ready(), meta.name.as_str())
        });
    }
    places
}

impl<'a> Place<'a> {
    /// The new and the old pod that stay; nothing if there are too many of a kind.
    fn pair(&self, seen: &Seen<'_>) -> Option<Pair<'a>> {
        let mut pair = Pair { new: None, old: None };
        for pod in self.pods.iter().copied().filter(|pod| !pod.metadata.is_terminating()) {
            let one = if is_new(seen, pod) { &mut pair.new } else { &mut pair.old };
            if one.replace(pod).is_some() {
                return None;
            }
        }
        Some(pair)
    }
}

fn is_new(seen: &Seen<'_>, pod: &Pod) -> bool {
    hash(pod).is_some_and(|hash| hash == seen.hash)
}

fn is_available(seen: &Seen<'_>, pod: &Pod) -> bool {
    pod.is_available(seen.set.spec.min_ready_seconds, seen.now)
}

#[cfg(test)]
mod tests;
