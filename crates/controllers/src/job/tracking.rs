//! The finalizer that keeps a Job's pods until they are counted. In: metadata. Out: whether a pod has it, and the patches that
//! add and remove it. Pure.

use serde_json::{Value, json};

use crate::meta::Meta;

/// The finalizer.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Whether a pod has the finalizer.
pub(super) fn is_tracked(pod: &Meta) -> bool {
    pod.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

/// The patch that adds the finalizer; `None` if the pod has it.
pub(super) fn track(pod: &Meta) -> Option<Value> {
    let add = match pod.finalizers.is_empty() {
        true => json!({"op": "add", "path": "/metadata/finalizers", "value": [TRACKING]}),
        false => json!({"op": "add", "path": "/metadata/finalizers/-", "value": TRACKING}),
    };
    (!is_tracked(pod)).then(|| json!([pod.uid_test(), add]))
}

/// The patch that removes the finalizer; `None` if the pod does not have it.
pub(super) fn untrack(pod: &Meta) -> Option<Value> {
    let at = pod.finalizers.iter().position(|finalizer| finalizer == TRACKING)?;
    let path = format!("/metadata/finalizers/{at}");
    Some(json!([
        pod.uid_test(),
        {"op": "test", "path": path, "value": TRACKING},
        {"op": "remove", "path": path},
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_held_once_and_let_go() {
        let check = |finalizers: &[&str], track_op: Option<Value>, release_path: Option<&str>| {
            let finalizers = finalizers.iter().map(|name| name.to_string()).collect();
            let pod = Meta { finalizers, ..Meta::default() };
            assert_eq!(track(&pod).map(|patch| patch[1].clone()), track_op);
            assert_eq!(untrack(&pod).map(|patch| patch[2]["path"].clone()), release_path.map(Value::from));
        };
        check(&[], Some(json!({"op": "add", "path": "/metadata/finalizers", "value": [TRACKING]})), None);
        check(&["a/b"], Some(json!({"op": "add", "path": "/metadata/finalizers/-", "value": TRACKING})), None);
        check(&["a/b", TRACKING], None, Some("/metadata/finalizers/1"));
    }
}
