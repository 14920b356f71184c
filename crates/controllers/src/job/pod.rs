//! The pods that a Job creates. In: the Job, and the completion index of a pod. Out: the pod, with the tracking finalizer and
//! its index as annotation, label, hostname and variable. Pure.

use serde_json::{Value, json};

use super::kind::{COMPLETION_INDEX, Job};
use super::tracking::TRACKING;
use crate::hash::suffix;
use crate::meta::Meta;
use crate::template::{named_pod, pod};

/// What containers find their index in.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// A generated name may be so long, before the letters that are generated.
const LONGEST_PREFIX: usize = 63 - 5;

/// The template of a Job's pods, with all that the pods of a Job have in common.
pub(super) fn template(job: &Job) -> Value {
    let mut template = job.template();
    let finalizers = &mut template["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) if all.iter().any(|finalizer| finalizer == TRACKING) => {}
        Some(all) => all.push(TRACKING.into()),
        None => *finalizers = json!([TRACKING]),
    }
    if job.indexes().is_none() {
        return template;
    }
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    let variable = json!({"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    for list in ["initContainers", "containers"] {
        let containers = template["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            match container["env"].as_array_mut() {
                Some(all) if all.iter().any(|one| one["name"] == INDEX_VARIABLE) => {}
                Some(all) => all.push(variable.clone()),
                None => container["env"] = json!([variable]),
            }
        }
    }
    template
}

/// A pod of that template, for one completion.
pub(super) fn of(template: &Value, job: &Meta, reference: &Value, index: Option<u32>, random: u64) -> Value {
    let Some(index) = index else { return pod(template, job, reference, random) };
    let end = format!("-{index}-");
    let room = LONGEST_PREFIX.saturating_sub(end.len());
    let prefix = format!("{}{end}", job.name.get(..room).unwrap_or(&job.name));
    let mut pod = named_pod(template, job, reference, &format!("{prefix}{}", suffix(random)));
    pod["metadata"]["generateName"] = prefix.into();
    for place in ["labels", "annotations"] {
        pod["metadata"][place][COMPLETION_INDEX] = index.to_string().into();
    }
    pod["spec"]["hostname"] = format!("{}-{index}", job.name).into();
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_know_whose_they_are_and_which() {
        let job = |mode: &str| -> Job {
            serde_json::from_value(json!({
                "metadata": {"name": "j", "namespace": "a", "uid": "u"},
                "spec": {
                    "completions": 3, "completionMode": mode, "selector": {"matchLabels": {"x": "y"}},
                    "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c"}]}},
                },
            }))
            .unwrap()
        };
        let check = |mode: &str, index: Option<u32>, expect: Value| {
            let job = job(mode);
            assert_eq!(of(&template(&job), &job.metadata, &json!({}), index, 0), expect);
        };
        check(
            "NonIndexed",
            None,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "j-bbbbb", "generateName": "j-", "namespace": "a", "labels": {"x": "y"},
                    "finalizers": [TRACKING], "ownerReferences": [{}],
                },
                "spec": {"containers": [{"name": "c"}]},
            }),
        );
        let from =
            json!({"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{COMPLETION_INDEX}']")}});
        check(
            "Indexed",
            Some(2),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "j-2-bbbbb", "generateName": "j-2-", "namespace": "a",
                    "labels": {"x": "y", COMPLETION_INDEX: "2"}, "annotations": {COMPLETION_INDEX: "2"},
                    "finalizers": [TRACKING], "ownerReferences": [{}],
                },
                "spec": {
                    "hostname": "j-2",
                    "containers": [{"name": "c", "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": from}]}],
                },
            }),
        );
    }

    #[test]
    fn names_have_room_for_the_index() {
        let job = Meta { name: "x".repeat(60), ..Meta::default() };
        let pod = of(&json!({}), &job, &json!({}), Some(123), 0);
        assert_eq!(pod["metadata"]["name"], format!("{}-123-bbbbb", "x".repeat(53)));
    }
}
