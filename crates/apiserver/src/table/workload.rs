//! Cells of jobs, autoscalers, quotas and volumes that are more than a path. In: an object. Out: text.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age;
use super::cell::{annotation, at, deleting, int, is_true, list, print, scalar, some_of, text};

/// One word for the state of a Job.
pub(super) fn job_status(job: &Value, _: Timestamp) -> Value {
    let word = match () {
        () if is_true(job, "Complete") => "Complete",
        () if is_true(job, "Failed") => "Failed",
        () if deleting(job) => "Terminating",
        () if is_true(job, "Suspended") => "Suspended",
        () if is_true(job, "FailureTarget") => "FailureTarget",
        () if is_true(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    word.into()
}

/// `1/3`, or `1/1 of 2` when any one of several pods is enough.
pub(super) fn job_completions(job: &Value, _: Timestamp) -> Value {
    let succeeded = int(job, "status.succeeded");
    match (at(job, "spec.completions").and_then(Value::as_i64), int(job, "spec.parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}").into(),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        (None, _) => format!("{succeeded}/1").into(),
    }
}

/// How long a Job ran, or has been running.
pub(super) fn job_duration(job: &Value, now: Timestamp) -> Value {
    let time = |path| text(job, path).parse::<Timestamp>().ok();
    match (time("status.startTime"), time("status.completionTime")) {
        (None, _) => "".into(),
        (Some(start), end) => age::between(start, end.unwrap_or(now)).into(),
    }
}

/// `statefulset.apps/web` for a ControllerRevision.
pub(super) fn controller(revision: &Value, _: Timestamp) -> Value {
    let owners = list(revision, "metadata.ownerReferences");
    let owner = owners.iter().find(|owner| at(owner, "controller").and_then(Value::as_bool) == Some(true));
    let Some(owner) = owner else { return "<none>".into() };
    let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(owner, "kind").to_lowercase(), text(owner, "name")).into()
}

/// What an autoscaler aims at: `cpu: 12%/80%`.
pub(super) fn scaling_targets(autoscaler: &Value, _: Timestamp) -> Value {
    // autoscaling/v1 has room for one number only.
    if let Some(target) = at(autoscaler, "spec.targetCPUUtilizationPercentage") {
        let current = percent(at(autoscaler, "status.currentCPUUtilizationPercentage"), "<unknown>");
        return format!("cpu: {current}/{target}%").into();
    }
    let current = list(autoscaler, "status.currentMetrics");
    let metrics = list(autoscaler, "spec.metrics").iter().enumerate();
    let shown: Vec<String> = metrics.map(|(index, metric)| scaling_target(metric, current.get(index))).collect();
    some_of(&shown, 2, ", ", "<none>").into()
}

fn scaling_target(metric: &Value, current: Option<&Value>) -> String {
    let (field, named) = match text(metric, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".into(),
    };
    let Some(metric) = at(metric, field) else { return "<unknown type>".into() };
    let measured = current.and_then(|current| at(current, field)).and_then(|current| at(current, "current"));
    let measured = |what| measured.and_then(|current| at(current, what));
    let value = |what| measured(what).map_or_else(|| "<unknown>".into(), print);
    let ratio = match at(metric, "target.averageValue") {
        Some(target) if named || field == "pods" => format!("{}/{}", value("averageValue"), print(target)),
        Some(target) => format!("{}/{} (avg)", value("averageValue"), print(target)),
        None if named => {
            let target = percent(at(metric, "target.averageUtilization"), "<auto>");
            format!("{}/{target}", percent(measured("averageUtilization"), "<unknown>"))
        }
        None => format!("{}/{}", value("value"), scalar(metric, "target.value")),
    };
    if named { format!("{}: {ratio}", text(metric, "name")) } else { ratio }
}

fn percent(value: Option<&Value>, otherwise: &str) -> String {
    value.map_or_else(|| otherwise.into(), |value| format!("{value}%"))
}

/// `cpu: 1/2` for every limited resource that is not a limit.
pub(super) fn quota_requests(quota: &Value, _: Timestamp) -> Value {
    quota_column(quota, false)
}

/// `limits.cpu: 1/2` for every limited limit.
pub(super) fn quota_limits(quota: &Value, _: Timestamp) -> Value {
    quota_column(quota, true)
}

fn quota_column(quota: &Value, limits: bool) -> Value {
    let none = Map::new();
    let hard = at(quota, "status.hard").and_then(Value::as_object).unwrap_or(&none);
    let mut names: Vec<&String> = hard.keys().filter(|name| name.starts_with("limits.") == limits).collect();
    names.sort();
    let used = at(quota, "status.used").and_then(Value::as_object).unwrap_or(&none);
    let one = |name: &String| {
        let used = used.get(name).map_or_else(|| "0".into(), print);
        format!("{name}: {used}/{}", print(&hard[name]))
    };
    names.into_iter().map(one).collect::<Vec<_>>().join(", ").into()
}

/// The phase of a volume or a claim; a deleted one is going.
pub(super) fn volume_phase(volume: &Value, _: Timestamp) -> Value {
    if deleting(volume) { "Terminating".into() } else { text(volume, "status.phase").into() }
}

/// `namespace/name` of the claim a volume is bound to.
pub(super) fn volume_claim(volume: &Value, _: Timestamp) -> Value {
    let Some(claim) = at(volume, "spec.claimRef") else { return "".into() };
    format!("{}/{}", text(claim, "namespace"), text(claim, "name")).into()
}

/// The class of a volume or a claim; an old annotation comes before the field.
pub(super) fn volume_class(volume: &Value, _: Timestamp) -> Value {
    match annotation(volume, "volume.beta.kubernetes.io/storage-class") {
        "" => text(volume, "spec.storageClassName").into(),
        class => class.into(),
    }
}

/// The access modes of a volume, in short.
pub(super) fn volume_modes(volume: &Value, _: Timestamp) -> Value {
    modes(list(volume, "spec.accessModes"))
}

/// The access modes of a claim, once it is bound.
pub(super) fn claim_modes(claim: &Value, _: Timestamp) -> Value {
    if text(claim, "spec.volumeName").is_empty() { "".into() } else { modes(list(claim, "status.accessModes")) }
}

/// The size of a volume.
pub(super) fn volume_capacity(volume: &Value, _: Timestamp) -> Value {
    quantity(volume, "spec.capacity.storage")
}

/// The size of a claim, once it is bound.
pub(super) fn claim_capacity(claim: &Value, _: Timestamp) -> Value {
    if text(claim, "spec.volumeName").is_empty() { "".into() } else { quantity(claim, "status.capacity.storage") }
}

fn quantity(object: &Value, path: &str) -> Value {
    at(object, path).map_or_else(|| "0".into(), print).into()
}

fn modes(modes: &[Value]) -> Value {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |long: &str| modes.iter().any(|mode| mode == long);
    SHORT.iter().filter(|(long, _)| has(long)).map(|(_, short)| *short).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(cell: fn(&Value, Timestamp) -> Value, object: Value, expect: &str) {
        assert_eq!(cell(&object, "2024-05-01T00:00:00Z".parse().unwrap()), expect);
    }

    #[test]
    fn jobs() {
        let conditions = |types: &[&str]| {
            let one = |ty| json!({"type": ty, "status": "True"});
            json!({"status": {"conditions": types.iter().map(one).collect::<Vec<_>>()}})
        };
        check(job_status, conditions(&[]), "Running");
        check(job_status, conditions(&["Suspended"]), "Suspended");
        check(job_status, conditions(&["SuccessCriteriaMet", "Complete"]), "Complete");
        check(job_status, conditions(&["FailureTarget", "Failed"]), "Failed");
        check(job_status, json!({"metadata": {"deletionTimestamp": "x"}}), "Terminating");
        check(job_completions, json!({"spec": {"completions": 3}, "status": {"succeeded": 1}}), "1/3");
        check(job_completions, json!({"spec": {"parallelism": 2}}), "0/1 of 2");
        check(job_completions, json!({"spec": {"parallelism": 1}}), "0/1");
        check(job_duration, json!({}), "");
        check(job_duration, json!({"status": {"startTime": "2024-04-30T23:59:00Z"}}), "60s");
        let ended = json!({"startTime": "2024-04-30T00:00:00Z", "completionTime": "2024-04-30T00:02:05Z"});
        check(job_duration, json!({"status": ended}), "2m5s");
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true});
        check(controller, json!({"metadata": {"ownerReferences": [owner]}}), "statefulset.apps/web");
        check(controller, json!({}), "<none>");
    }

    #[test]
    fn autoscalers() {
        let check_metrics = |metrics: Value, current: Value, expect: &str| {
            let object = json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
            check(scaling_targets, object, expect);
        };
        check_metrics(json!([]), json!([]), "<none>");
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        check_metrics(json!([cpu]), json!([]), "cpu: <unknown>/80%");
        let measured = json!([{"resource": {"current": {"averageUtilization": 12, "averageValue": "3m"}}}]);
        check_metrics(json!([cpu]), measured.clone(), "cpu: 12%/80%");
        let value = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "5m"}}});
        check_metrics(json!([value]), measured, "cpu: 3m/5m");
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
        let external = json!({"type": "External", "external": {"target": {"value": "7"}}});
        let average = json!({"type": "External", "external": {"target": {"averageValue": "7"}}});
        let object = json!({"type": "Object", "object": {"target": {"value": "9"}}});
        check_metrics(json!([pods, external]), json!([]), "<unknown>/10, <unknown>/7");
        check_metrics(json!([average]), json!([]), "<unknown>/7 (avg)");
        let now = json!([{}, {}, {"object": {"current": {"value": "1"}}}]);
        check_metrics(json!([cpu, pods, object]), now, "cpu: <unknown>/80%, <unknown>/10 + 1 more...");
        check_metrics(json!([{"type": "Odd"}]), json!([]), "<unknown type>");
        check(scaling_targets, json!({"spec": {"targetCPUUtilizationPercentage": 50}}), "cpu: <unknown>/50%");
    }

    #[test]
    fn quotas_and_volumes() {
        let quota = json!({"status": {
            "hard": {"pods": "4", "limits.cpu": "2", "requests.cpu": "1"},
            "used": {"pods": "2", "limits.cpu": "500m"},
        }});
        check(quota_requests, quota.clone(), "pods: 2/4, requests.cpu: 0/1");
        check(quota_limits, quota, "limits.cpu: 500m/2");

        let volume = json!({
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "claimRef": {"namespace": "n", "name": "c"}, "storageClassName": "new"},
            "status": {"phase": "Bound"},
        });
        check(volume_capacity, volume.clone(), "1Gi");
        check(volume_modes, volume.clone(), "RWO,RWX");
        check(volume_claim, volume.clone(), "n/c");
        check(volume_class, volume.clone(), "old");
        check(volume_phase, volume, "Bound");
        check(volume_phase, json!({"metadata": {"deletionTimestamp": "x"}}), "Terminating");
        let claim = json!({"spec": {"storageClassName": "new"}, "status": {"capacity": {"storage": "2Gi"}}});
        check(claim_capacity, claim.clone(), "");
        check(volume_class, claim, "new");
        let bound = json!({"spec": {"volumeName": "v"},
            "status": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod"]}});
        check(claim_capacity, bound.clone(), "2Gi");
        check(claim_modes, bound, "RWOP");
    }
}
