//! Which pods go first when there are too many. In: pods and the time. Out: an order. Pure.
//!
//! The order of Kubernetes: those that do least for anybody first. Nowhere yet, pending, unknown, not ready, cheap to
//! delete, doubled up on a node, ready for a short time, restarted often, young.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;

use crate::pods::Pod;

/// What a pod costs to lose, as its owner says.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod, and how many ready pods of its like are on its node.
pub(crate) struct Ranked<'a> {
    pub pod: &'a Arc<Pod>,
    pub neighbours: usize,
}

/// `Less` if the first goes before the second.
pub(crate) fn by_deletion_order(one: &Ranked<'_>, other: &Ranked<'_>, now: Timestamp) -> Ordering {
    let (a, b) = (one.pod, other.pod);
    let both_ready = a.is_ready() && b.is_ready();
    // False goes before true: what has a node, a phase, readiness stays longer.
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

/// The younger goes first, but what is about as old as the other is told apart by uid, which nobody chose: so the pods of
/// one moment, which are often all in one place, do not go together.
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
