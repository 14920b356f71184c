//! Containers of workloads, and what is missing in them. In: objects. Out: sentences. Pure.

use serde_json::Value;

use crate::manifests::called;

/// The specs of the Pods that an object makes; for a Pod its own.
fn pod_spec(object: &Value) -> Option<&Value> {
    let path = match object["kind"].as_str()? {
        "Pod" => "/spec",
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "Job" => "/spec/template/spec",
        _ => return None,
    };
    object.pointer(path)
}

/// The containers of an object, with their Pods and their names for people.
fn containers(object: &Value) -> Vec<(String, &Value, &Value)> {
    let Some(pod) = pod_spec(object) else { return Vec::new() };
    let all = ["initContainers", "containers"].into_iter().flat_map(|list| pod[list].as_array().into_iter().flatten());
    let name =
        |container: &Value| format!("{}, container {}", called(object), container["name"].as_str().unwrap_or_default());
    all.map(|container| (name(container), pod, container)).collect()
}

/// How many containers there are.
pub(super) fn count<'a>(objects: impl Iterator<Item = &'a Value>) -> usize {
    objects.map(|object| containers(object).len()).sum()
}

/// Containers without requests and limits for processor and memory.
pub(super) fn without_limits(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, _, container) in containers(object) {
        let lacks = |path: &&str| container.pointer(path).is_none_or(Value::is_null);
        let wanted = ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"];
        let lacking: Vec<&str> = wanted
            .iter()
            .copied()
            .filter(|path| lacks(path))
            .map(|path| path.trim_start_matches("/resources/"))
            .collect();
        if !lacking.is_empty() {
            found.push(format!("{name} has no {}", lacking.join(", ").replace('/', " for ")));
        }
    }
    found
}

/// Containers that keep more than the standard `restricted` lets them.
pub(super) fn unrestricted(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, pod, container) in containers(object) {
        let own = &container["securityContext"];
        let either = |field: &str| match &own[field] {
            Value::Null => &pod["securityContext"][field],
            said => said,
        };
        let drops_all = own["capabilities"]["drop"].as_array().is_some_and(|drop| drop.iter().any(|one| one == "ALL"));
        let profile = &either("seccompProfile")["type"];
        let rules = [
            ("runAsNonRoot: true", either("runAsNonRoot") == true),
            ("allowPrivilegeEscalation: false", own["allowPrivilegeEscalation"] == false),
            ("capabilities: {drop: [ALL]}", drops_all),
            ("seccompProfile: {type: RuntimeDefault}", profile == "RuntimeDefault" || profile == "Localhost"),
        ];
        let lacking: Vec<&str> = rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect();
        if own["privileged"] == true {
            found.push(format!("{name} is privileged"));
        }
        if !lacking.is_empty() {
            found.push(format!("{name} lacks {}", lacking.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::good_child;
    use super::*;

    #[track_caller]
    fn check(judge: fn(&Value) -> Vec<String>, change: fn(&mut Value), expect: &[&str]) {
        let mut child = good_child();
        change(&mut child);
        assert_eq!(judge(&child), expect);
    }

    fn container(child: &mut Value) -> &mut Value {
        &mut child["spec"]["template"]["spec"]["containers"][0]
    }

    #[test]
    fn limits() {
        check(without_limits, |_| {}, &[]);
        check(
            without_limits,
            |child| container(child)["resources"]["limits"] = Value::Null,
            &["Deployment default/web, container app has no limits for memory"],
        );
        check(
            without_limits,
            |child| container(child)["resources"] = Value::Null,
            &["Deployment default/web, container app has no requests for cpu, requests for memory, limits for memory"],
        );
        check(without_limits, |child| child["kind"] = "Service".into(), &[]);
    }

    #[test]
    fn what_containers_give_up() {
        check(unrestricted, |_| {}, &[]);
        check(
            unrestricted,
            |child| container(child)["securityContext"]["privileged"] = true.into(),
            &["Deployment default/web, container app is privileged"],
        );
        // Said for the whole Pod.
        check(
            unrestricted,
            |child| {
                container(child)["securityContext"]["runAsNonRoot"] = Value::Null;
                child["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] = true.into();
            },
            &[],
        );
        check(
            unrestricted,
            |child| container(child)["securityContext"]["capabilities"] = Value::Null,
            &["Deployment default/web, container app lacks capabilities: {drop: [ALL]}"],
        );
        assert_eq!(count([good_child()].iter()), 1);
    }
}
