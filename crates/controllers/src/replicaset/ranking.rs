//! The order in which surplus pods are deleted. In: pods and the time. Out: an order. Pure.
//!
//! The order of Kubernetes: pods without a node first, then pending, unknown, not ready, with a low deletion cost, with many
//! related pods on the same node, ready for a short time, restarted often, young.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;

use crate::pods::Pod;

/// The annotation with the deletion cost of a pod.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod, and how many related ready pods are on its node.
pub(crate) struct Ranked<'a> {
    pub pod: &'a Arc<Pod>,
    pub neighbours: usize,
}

/// `Less` if the first pod is deleted before the second.
pub(crate) fn by_deletion_order(one: &Ranked<'_>, other: &Ranked<'_>, now: Timestamp) -> Ordering {
    let (a, b) = (one.pod, other.pod);
    let both_ready = a.is_ready() && b.is_ready();
    // `false` comes before `true`: a pod that has a node or is ready is kept longer.
    let assigned = |pod: &Pod| !pod.spec.node_name.is_empty();
    (assigned(a).cmp(&assigned(b)))
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| a.is_ready().cmp(&b.is_ready()))
        .then_with(|| cost(a).cmp(&cost(b)))
        .then_with(|| other.neighbours.cmp(&one.neighbours))
        .then_with(|| match both_ready {
            true => age(a.ready_since(), b.ready_since(), a, b, now),
            false => Ordering::Equal,
        })
        .then_with(|| b.restarts().cmp(&a.restarts()))
        .then_with(|| age(a.metadata.created(), b.metadata.created(), a, b, now))
}

fn phase(pod: &Pod) -> u8 {
    match pod.status.phase.as_str() {
        "" | "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

fn cost(pod: &Pod) -> i32 {
    pod.metadata.annotations.get(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

/// The younger pod is deleted first. Pods of about the same age are ordered by uid, which is random: pods of the same moment
/// are often on the same node, and should not all be deleted together.
fn age(a: Option<Timestamp>, b: Option<Timestamp>, one: &Pod, other: &Pod, now: Timestamp) -> Ordering {
    match (a, b) {
        (a, b) if a == b => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(a), Some(b)) => {
            let magnitude = |since: Timestamp| {
                let nanoseconds = now.duration_since(since).as_nanos();
                if nanoseconds > 0 { i64::from(nanoseconds.ilog2()) } else { -1 }
            };
            magnitude(a).cmp(&magnitude(b)).then_with(|| one.metadata.uid.cmp(&other.metadata.uid))
        }
    }
}
