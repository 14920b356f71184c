//! The finalizer that keeps a Job's pods until their end is counted. In: metadata. Out: whether it is there, and the patches
//! that put it there and take it away. Pure.

use serde_json::{Value, json};

use crate::meta::Meta;

/// The finalizer.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Whether a pod is kept until it is counted.
pub(super) fn is_tracked(pod: &Meta) -> bool {
    pod.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

/// The patch that makes a pod stay until it is counted; none if it does.
pub(super) fn track(pod: &Meta) -> Option<Value> {
    let add = match pod.finalizers.is_empty() {
        true => json!({"op": "add", "path": "/metadata/finalizers", "value": [TRACKING]}),
        false => json!({"op": "add", "path": "/metadata/finalizers/-", "value": TRACKING}),
    };
    (!is_tracked(pod)).then(|| json!([pod.uid_test(), add]))
}

/// The patch that lets a pod go; none if nothing holds it.
pub(super) fn release(pod: &Meta) -> Option<Value> {
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
            assert_eq!(release(&pod).map(|patch| patch[2]["path"].clone()), release_path.map(Value::from));
        };
        check(&[], Some(json!({"op": "add", "path": "/metadata/finalizers", "value": [TRACKING]})), None);
        check(&["a/b"], Some(json!({"op": "add", "path": "/metadata/finalizers/-", "value": TRACKING})), None);
        check(&["a/b", TRACKING], None, Some("/metadata/finalizers/1"));
    }
}
