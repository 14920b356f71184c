//! The resources of a pod as a whole. In: a pod whose containers have their defaults. Out: the pod with the limits of huge
//! pages and with the requests that follow from its own limits and from its containers.

use serde_json::{Map, Value};

use konverge_core::{ResourceList, pod_limits, pod_requests};

const HUGE_PAGES: &str = "hugepages-";

/// Completes the resources of a pod that sets some. The others have none: their containers say it all.
pub(super) fn fill(pod: &mut Value) {
    let given = |pod: &Value, field: &str| pod["spec"]["resources"][field].as_object().cloned().unwrap_or_default();
    let (mut limits, mut requests) = (given(pod, "limits"), given(pod, "requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let pages = pod_limits(pod).into_iter().filter(|(name, _)| name.starts_with(HUGE_PAGES));
    add(&mut limits, pages.filter(|(name, _)| !requests.contains_key(name)).collect());
    if !limits.is_empty() {
        let plain = pod_requests(pod).into_iter().filter(|(name, _)| is_plain(name)).collect();
        add(&mut requests, plain);
        for (name, limit) in limits.iter().filter(|(name, _)| is_plain(name) || name.starts_with(HUGE_PAGES)) {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        if !amounts.is_empty() {
            pod["spec"]["resources"][field] = amounts.into();
        }
    }
}

/// Whether pods may ask for more of a resource than there is, and for it as a whole.
fn is_plain(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

fn add(amounts: &mut Map<String, Value>, more: ResourceList) {
    for (name, amount) in more {
        amounts.entry(name).or_insert_with(|| amount.to_string().into());
    }
}
