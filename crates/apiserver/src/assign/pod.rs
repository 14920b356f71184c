//! What a pod gets from the server. In: the pod before and after a write. Out: the pod with its QoS class, with a condition if
//! it waits at a gate, and with selectors that have the values of its own labels.

use std::collections::HashMap;

use serde_json::{Value, json};

use konverge_schema::quantity;

use super::app_armor;
use crate::conditions;

pub(super) fn assign(old: Option<&Value>, pod: &mut Value, now: &str, warnings: &mut Vec<String>) {
    if old.is_none() {
        // A pod that was stored before there was a rule may still have a negative one.
        if pod["spec"]["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
            pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
        }
        wait_at_gates(pod, now);
        merge_label_keys(pod);
        app_armor::copy_from_annotations(pod, warnings);
    }
    let class = match old {
        None => Some(qos_class(pod).into()),
        // The class of a pod never changes, and a status without it keeps it.
        Some(old) => old["status"].get("qosClass").cloned(),
    };
    if let (Some(class), Some(status)) = (class, pod.get_mut("status").and_then(Value::as_object_mut))
        && status.get("qosClass").is_none_or(|given| given.is_null() || given == "")
    {
        status.insert("qosClass".into(), class);
    }
    if let Some(old) = old {
        keep_generations(&old["status"], &mut pod["status"]);
    }
}

/// Says in the status of a new pod that schedulers leave it alone.
fn wait_at_gates(pod: &mut Value, now: &str) {
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    if gated && conditions::find(&pod["status"]["conditions"], "PodScheduled").is_none() {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
        });
        conditions::set(&mut pod["status"]["conditions"], condition, now);
    }
}

/// Adds the values of the pod's own labels to selectors that name their keys.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let spec = &mut pod["spec"];
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(kind)) else { continue };
        for weighted in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            merge(&labels, weighted.get_mut("podAffinityTerm"));
        }
        for term in items(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge(&labels, Some(term));
        }
    }
    for constraint in items(spec, "topologySpreadConstraints") {
        merge(&labels, Some(constraint));
    }
}

fn items<'v>(value: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A term without a selector selects nothing, and gets none.
fn merge(labels: &Value, term: Option<&mut Value>) {
    let Some(term) = term.filter(|term| term["labelSelector"].is_object()) else { return };
    let keys = |field: &str| term[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named =
        keys("matchLabelKeys").map(|key| (key, "In")).chain(keys("mismatchLabelKeys").map(|key| (key, "NotIn")));
    let expression =
        |(key, operator)| Some(json!({"key": key, "operator": operator, "values": [labels.get(key)?.as_str()?]}));
    let added: Vec<Value> = named.filter_map(expression).collect();
    if added.is_empty() {
        return;
    }
    let expressions = &mut term["labelSelector"]["matchExpressions"];
    match expressions.as_array_mut() {
        Some(expressions) => expressions.extend(added),
        None => *expressions = added.into(),
    }
}

/// Keeps the generations that a status and its conditions were observed at, for writers that do not know these fields.
fn keep_generations(old: &Value, status: &mut Value) {
    const FIELD: &str = "observedGeneration";
    let of = |value: &Value| value[FIELD].as_i64().filter(|generation| *generation != 0);
    if let Some(generation) = of(old).filter(|_| status.is_object() && of(status).is_none()) {
        status[FIELD] = generation.into();
    }
    // There may be several conditions of one type.
    let mut before: HashMap<&str, Vec<Option<i64>>> = HashMap::new();
    for condition in old["conditions"].as_array().into_iter().flatten().rev() {
        before.entry(condition["type"].as_str().unwrap_or_default()).or_default().push(of(condition));
    }
    for condition in items(status, "conditions") {
        let generations = before.get_mut(condition["type"].as_str().unwrap_or_default());
        let known = generations.and_then(Vec::pop).flatten();
        if let Some(generation) = known.filter(|_| of(condition).is_none()) {
            condition[FIELD] = generation.into();
        }
    }
}

/// `Guaranteed` if the requests of every container equal its limits, `BestEffort` if no container has requests or limits.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let whole = [&spec["resources"]];
    let containers = ["containers", "initContainers"].into_iter();
    let each: Vec<&Value> = containers
        .flat_map(|field| spec[field].as_array().into_iter().flatten())
        .map(|container| &container["resources"])
        .collect();
    let asked: &[&Value] = if spec["resources"].is_object() { &whole } else { &each };
    // Zero counts as absent.
    let amount = |resources: &Value, kind: &str, name: &str| {
        resources[kind].get(name).and_then(quantity).filter(|(digits, _)| *digits > 0)
    };
    let mut best_effort = true;
    let mut guaranteed = true;
    for resources in asked {
        for name in ["cpu", "memory"] {
            let (requested, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            best_effort &= requested.is_none() && limit.is_none();
            guaranteed &= limit.is_some() && requested == limit;
        }
    }
    match (best_effort, guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        #[track_caller]
        fn check(spec: Value, expect: &str) {
            let mut pod = json!({"spec": spec, "status": {"phase": "Pending"}});
            assign(None, &mut pod, "", &mut Vec::new());
            assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": expect}));
        }
        let both = |cpu: &str| json!({"cpu": cpu, "memory": "1Gi"});
        let full = json!({"resources": {"requests": both("500m"), "limits": both("0.5")}});
        let half = json!({"resources": {"requests": {"cpu": "1"}}});
        check(json!({}), "BestEffort");
        check(json!({"containers": [{"name": "a", "resources": {}}]}), "BestEffort");
        check(json!({"containers": [{"resources": {"requests": {"cpu": "0", "example.com/gpu": 1}}}]}), "BestEffort");
        check(json!({"containers": [full]}), "Guaranteed");
        check(json!({"containers": [full, {}]}), "Burstable");
        check(json!({"containers": [full], "initContainers": [half]}), "Burstable");
        check(json!({"containers": [{}], "resources": full["resources"]}), "Guaranteed");
        let less = json!({"resources": {"requests": both("400m"), "limits": both("500m")}});
        check(json!({"containers": [less]}), "Burstable");
    }

    #[test]
    fn a_class_outlives_whoever_forgets_it() {
        let old = json!({"spec": {}, "status": {"qosClass": "Guaranteed"}});
        let mut pod = json!({"spec": {}, "status": {"phase": "Running"}});
        assign(Some(&old), &mut pod, "", &mut Vec::new());
        assert_eq!(pod, json!({"spec": {}, "status": {"phase": "Running", "qosClass": "Guaranteed"}}));
    }

    #[test]
    fn what_new_pods_get() {
        #[track_caller]
        fn check(labels: Value, spec: Value, expect_spec: Value, conditions: Value) {
            let mut pod = json!({"metadata": {"name": "a", "labels": labels}, "spec": spec, "status": {}});
            assign(None, &mut pod, "now", &mut Vec::new());
            assert_eq!((&pod["spec"], &pod["status"]["conditions"]), (&expect_spec, &conditions));
            assert_eq!(pod["metadata"]["labels"], labels);
        }
        let gated = json!({"schedulingGates": [{"name": "a"}]});
        let condition = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
            "message": "Scheduling is blocked due to non-empty scheduling gates", "lastTransitionTime": "now",
        }]);
        check(json!({}), gated.clone(), gated, condition);
        let spread = |selector: Value| json!({"topologySpreadConstraints": [{"matchLabelKeys": ["a", "b"], "labelSelector": selector}]});
        let one = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]});
        check(json!({"a": "1"}), spread(json!({})), spread(one), Value::Null);
        check(json!({"a": "1"}), spread(Value::Null), spread(Value::Null), Value::Null);
        let affinity = |kind: &str, term: Value| {
            json!({"affinity": {kind: {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
            }}})
        };
        let term = |expressions: Value| json!({"matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"], "labelSelector": {"matchExpressions": expressions}});
        let own = json!({"key": "x", "operator": "Exists"});
        let merged = json!([
            own, {"key": "a", "operator": "In", "values": ["1"]}, {"key": "b", "operator": "NotIn", "values": ["2"]},
        ]);
        for kind in ["podAffinity", "podAntiAffinity"] {
            let labels = json!({"a": "1", "b": "2"});
            check(labels, affinity(kind, term(json!([own]))), affinity(kind, term(merged.clone())), Value::Null);
        }
    }

    #[test]
    fn observed_generations_outlive_whoever_forgets_them() {
        let ready = |generation: i64| json!({"type": "Ready", "observedGeneration": generation});
        let old = json!({"spec": {}, "status": {"observedGeneration": 4, "conditions": [ready(3), ready(2)]}});
        let bare = json!({"type": "Ready"});
        let mut pod = json!({"spec": {}, "status": {"conditions": [bare, ready(5), bare]}});
        assign(Some(&old), &mut pod, "", &mut Vec::new());
        assert_eq!(pod["status"], json!({"observedGeneration": 4, "conditions": [ready(3), ready(5), bare]}));
    }
}
