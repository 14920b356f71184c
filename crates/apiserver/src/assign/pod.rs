//! The QoS class of a pod. In: a pod. Out: the pod with its class.

use serde_json::Value;

use konverge_schema::quantity;

pub(super) fn assign(old: Option<&Value>, pod: &mut Value) {
    let class = match old {
        None => Some(class(pod).into()),
        // The class of a pod never changes, and a status without it keeps it.
        Some(old) => old["status"].get("qosClass").cloned(),
    };
    if let (Some(class), Some(status)) = (class, pod.get_mut("status").and_then(Value::as_object_mut))
        && status.get("qosClass").is_none_or(|given| given.is_null() || given == "")
    {
        status.insert("qosClass".into(), class);
    }
}

/// `Guaranteed` if the requests of every container equal its limits, `BestEffort` if no container has requests or limits.
fn class(pod: &Value) -> &'static str {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn classes() {
        #[track_caller]
        fn check(spec: Value, expect: &str) {
            let mut pod = json!({"spec": spec, "status": {"phase": "Pending"}});
            assign(None, &mut pod);
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
        assign(Some(&old), &mut pod);
        assert_eq!(pod, json!({"spec": {}, "status": {"phase": "Running", "qosClass": "Guaranteed"}}));
    }
}
