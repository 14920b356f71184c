//! Pods that were given a node which the watch does not show yet, as the scheduler of Kubernetes assumes them. In: decisions. Out: how
//! many pods a node has besides those that the cache shows. Without it, pods that are scheduled at the same time would all go to the node that was
//! the emptiest before them. Pure. There are never more entries than pods that wait for their binding to be seen.

use std::collections::HashMap;

use konverge_core::ObjectKey;

use super::kind::Pod;
use super::schedule::Load;

/// The node of each pod whose binding was not seen yet.
#[derive(Debug, Default)]
pub(super) struct AssumedPods(HashMap<ObjectKey, Placement>);

#[derive(Debug)]
struct Placement {
    node: String,
    /// The uid of the pod's controller.
    controller: Option<String>,
}

impl AssumedPods {
    /// A pod was given a node.
    pub(super) fn insert(&mut self, pod: &Pod, node: &str) {
        let controller = pod.metadata.controller().map(|owner| owner.uid.clone());
        self.0.insert(pod.metadata.key(), Placement { node: node.to_owned(), controller });
    }

    /// The binding of a pod was seen or has failed, or the pod is gone.
    pub(super) fn remove(&mut self, pod: &ObjectKey) {
        self.0.remove(pod);
    }

    /// Forgets the pods whose binding the cache shows by now: the cache counts them.
    pub(super) fn retain_unseen(&mut self, is_seen: impl Fn(&ObjectKey) -> bool) {
        self.0.retain(|pod, _| !is_seen(pod));
    }

    /// What a node has besides what the cache shows.
    pub(super) fn load(&self, node: &str, controller: Option<&str>) -> Load {
        let mut load = Load::default();
        for placement in self.0.values().filter(|placement| placement.node == node) {
            load.pods += 1;
            let is_sibling = controller.is_some() && placement.controller.as_deref() == controller;
            load.siblings += usize::from(is_sibling);
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, controller: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": controller, "controller": true},
        ]}}))
        .unwrap()
    }

    #[test]
    fn pods_count_until_their_binding_is_seen() {
        let mut assumed = AssumedPods::default();
        for (name, controller, node) in [("a", "1", "n"), ("b", "2", "n"), ("c", "1", "m")] {
            assumed.insert(&pod(name, controller), node);
        }
        let check = |assumed: &AssumedPods, node: &str, controller: Option<&str>, expect: (usize, usize)| {
            let Load { pods, siblings } = assumed.load(node, controller);
            assert_eq!((pods, siblings), expect, "{node} {controller:?} {assumed:?}");
        };
        check(&assumed, "n", Some("1"), (2, 1));
        check(&assumed, "n", None, (2, 0));
        check(&assumed, "other", Some("1"), (0, 0));
        assumed.remove(&ObjectKey::new(Some("shop"), "b"));
        check(&assumed, "n", Some("2"), (1, 0));
        assumed.retain_unseen(|pod| pod.name() == "a");
        check(&assumed, "n", Some("1"), (0, 0));
        check(&assumed, "m", Some("1"), (1, 1));
    }
}
