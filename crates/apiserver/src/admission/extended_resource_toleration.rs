//! ExtendedResourceToleration: a pod that requests an extended resource, such as a GPU, tolerates the taint of that name, which
//! keeps other pods off the nodes that have it. Off by default.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};
use crate::validation::is_extended_resource;

pub(super) struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_about("", "pods") && attributes.operation != Operation::Delete
    }

    fn admit<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        tolerate(pod);
        decided(Ok(()))
    }
}

fn tolerate(pod: &mut Value) {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array());
    let requested: BTreeSet<String> = lists
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|container| container["resources"]["requests"].as_object())
        .flat_map(|requests| requests.keys().filter(|name| is_extended_resource(name)).cloned())
        .collect();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for resource in requested {
        let toleration = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        let given = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(given) = given.as_array_mut().filter(|given| !given.contains(&toleration)) {
            given.push(toleration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_tolerate_the_taints_of_what_they_request() {
        #[track_caller]
        fn check(requests: Value, expect: Value) {
            let mut pod = json!({"spec": {
                "containers": [{"resources": {"requests": requests}}, {}],
                "initContainers": [{"resources": {"requests": {"example.com/b": "1"}}}],
            }});
            tolerate(&mut pod);
            // A second time adds nothing.
            tolerate(&mut pod);
            assert_eq!(pod["spec"]["tolerations"], expect);
        }
        let tolerated = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
        check(json!({"cpu": "1", "requests.example.com/x": "1"}), json!([tolerated("example.com/b")]));
        check(json!({"example.com/a": "1"}), json!([tolerated("example.com/a"), tolerated("example.com/b")]));
    }
}
