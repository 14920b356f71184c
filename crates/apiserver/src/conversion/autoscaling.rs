//! HorizontalPodAutoscalers between `autoscaling/v1`, which knows one CPU target, and `autoscaling/v2`, which they are stored
//! in. In: an object of one version. Out: the same in the other. What v1 has no fields for is in annotations, so nothing is lost
//! on the way there and back.

use serde_json::{Map, Value, json};

use konverge_core::Quantity;
use konverge_store::BoxFuture;

use super::{ConversionError, Converter};

/// The older version.
pub(crate) const V1: &str = "autoscaling/v1";
/// The version that objects are stored in.
pub(crate) const V2: &str = "autoscaling/v2";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// The annotations that belong to the conversion, and are never stored.
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CURRENT_METRICS,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// What v1 aims at if it names no metric at all.
const DEFAULT_CPU_PERCENT: i64 = 80;

/// Fields of the behavior, which the annotation has under the names of Go's internal type.
const BEHAVIOR_FIELDS: [&str; 9] = [
    "scaleUp",
    "scaleDown",
    "stabilizationWindowSeconds",
    "selectPolicy",
    "policies",
    "tolerance",
    "type",
    "value",
    "periodSeconds",
];

/// Converts autoscalers.
pub(crate) struct Autoscalers;

impl Converter for Autoscalers {
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>, ConversionError>> {
        let convert = if to == V1 { to_v1 } else { to_v2 };
        let converted = objects.iter().map(convert).collect();
        Box::pin(std::future::ready(Ok(converted)))
    }
}

/// The autoscaler of v1 in v2.
pub(crate) fn to_v2(object: &Value) -> Value {
    let mut converted = object.clone();
    converted["apiVersion"] = V2.into();
    let annotations = take_annotations(&mut converted);
    let kept = |name: &str| annotations.get(name).and_then(Value::as_str).and_then(parsed);

    let mut metrics: Vec<Value> = list(kept(METRICS)).iter().map(|metric| each(metric, source_to_v2)).collect();
    if let Some(percent) = take(&mut converted, "spec", "targetCPUUtilizationPercentage") {
        metrics.push(cpu_target(&percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_target(&DEFAULT_CPU_PERCENT.into()));
    }
    set(&mut converted, "spec", "metrics", metrics.into());
    if let Some(behavior @ Value::Object(_)) = kept(BEHAVIOR).map(|behavior| without_nulls(&behavior, &json_name))
        && behavior.as_object().is_some_and(|fields| !fields.is_empty())
    {
        set(&mut converted, "spec", "behavior", behavior);
    }

    let percent = take(&mut converted, "status", "currentCPUUtilizationPercentage");
    let current = match kept(CURRENT_METRICS) {
        Some(current) => list(Some(current)).iter().map(|metric| each(metric, status_to_v2)).collect(),
        None => percent.map_or_else(Vec::new, |percent| {
            let current = json!({"averageUtilization": percent});
            vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})]
        }),
    };
    if converted["status"].is_object() {
        let current = if current.is_empty() { Value::Null } else { current.into() };
        set(&mut converted, "status", "currentMetrics", current);
        if let Some(conditions) = kept(CONDITIONS).filter(Value::is_array) {
            set(&mut converted, "status", "conditions", conditions);
        }
    }
    converted
}

/// The autoscaler of v2 in v1.
pub(crate) fn to_v1(object: &Value) -> Value {
    let mut converted = object.clone();
    converted["apiVersion"] = V1.into();
    take_annotations(&mut converted);
    let mut kept = Map::new();

    let metrics = list(take(&mut converted, "spec", "metrics"));
    if let Some(percent) = metrics.iter().find_map(cpu_percent) {
        set(&mut converted, "spec", "targetCPUUtilizationPercentage", percent.clone());
    }
    let others = metrics.iter().filter(|metric| cpu_percent(metric).is_none());
    keep(&mut kept, METRICS, others.map(|metric| each(metric, source_to_v1)).collect());
    if let Some(behavior) = take(&mut converted, "spec", "behavior") {
        kept.insert(BEHAVIOR.to_owned(), internal_behavior(&behavior).to_string().into());
    }

    let current = list(take(&mut converted, "status", "currentMetrics"));
    let cpu = |metric: &&Value| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    let mut percent =
        current.iter().filter(cpu).filter_map(|metric| metric["resource"]["current"].get("averageUtilization"));
    if let Some(percent) = percent.next_back() {
        set(&mut converted, "status", "currentCPUUtilizationPercentage", percent.clone());
    }
    if converted["status"].is_object() && converted["status"].get("currentReplicas").is_none() {
        // v2 leaves out a zero, and v1 does not.
        set(&mut converted, "status", "currentReplicas", 0.into());
    }
    keep(&mut kept, CURRENT_METRICS, current.iter().map(|metric| each(metric, status_to_v1)).collect());
    let conditions = list(take(&mut converted, "status", "conditions"));
    keep(&mut kept, CONDITIONS, conditions);

    if !kept.is_empty() && converted["metadata"].is_object() {
        if !converted["metadata"]["annotations"].is_object() {
            converted["metadata"]["annotations"] = json!({});
        }
        if let Some(annotations) = converted["metadata"]["annotations"].as_object_mut() {
            annotations.append(&mut kept);
        }
    }
    converted
}

fn cpu_target(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// The percentage of a metric that v1 has a field for.
fn cpu_percent(metric: &Value) -> Option<&Value> {
    let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    metric["resource"]["target"].get("averageUtilization").filter(|percent| is_cpu && !percent.is_null())
}

/// A metric whose source, under the name of its type, is converted.
fn each(metric: &Value, convert: fn(&str, &Value) -> Value) -> Value {
    let fields = metric.as_object().into_iter().flatten();
    let fields = fields.map(|(name, value)| match value {
        Value::Object(_) => (name.clone(), convert(name, value)),
        _ => (name.clone(), value.clone()),
    });
    Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
}

fn source_to_v1(name: &str, source: &Value) -> Value {
    let (target, metric) = (&source["target"], &source["metric"]);
    present(match name {
        "object" => json!({
            "target": source["describedObject"], "metricName": metric["name"], "selector": metric["selector"],
            "targetValue": or_zero(&target["value"]), "averageValue": target["averageValue"],
        }),
        "pods" => json!({
            "metricName": metric["name"], "selector": metric["selector"],
            "targetAverageValue": or_zero(&target["averageValue"]),
        }),
        "external" => json!({
            "metricName": metric["name"], "metricSelector": metric["selector"],
            "targetValue": target["value"], "targetAverageValue": target["averageValue"],
        }),
        _ => json!({
            "name": source["name"], "container": source["container"],
            "targetAverageUtilization": target["averageUtilization"], "targetAverageValue": target["averageValue"],
        }),
    })
}

fn source_to_v2(name: &str, source: &Value) -> Value {
    let is_set = |field: &str| !source[field].is_null();
    let target = |kind: &str, fields: Value| {
        let mut target = present(fields);
        target["type"] = kind.into();
        target
    };
    let selector = if name == "external" { "metricSelector" } else { "selector" };
    let metric = present(json!({"name": source["metricName"], "selector": source[selector]}));
    present(match name {
        "object" => {
            let (kind, value) = match is_set("averageValue") {
                false => ("Value", or_zero(&source["targetValue"])),
                // v1 cannot leave the value out, and writes a zero instead.
                true => ("AverageValue", Some(&source["targetValue"]).filter(|value| !is_zero(value)).cloned().into()),
            };
            let target = target(kind, json!({"value": value, "averageValue": source["averageValue"]}));
            json!({"describedObject": source["target"], "metric": metric, "target": target})
        }
        "pods" => {
            let value = json!({"averageValue": or_zero(&source["targetAverageValue"])});
            json!({"metric": metric, "target": target("AverageValue", value)})
        }
        "external" => {
            let kind = if is_set("targetValue") { "Value" } else { "AverageValue" };
            let values = json!({"value": source["targetValue"], "averageValue": source["targetAverageValue"]});
            json!({"metric": metric, "target": target(kind, values)})
        }
        _ => {
            let kind = if is_set("targetAverageUtilization") { "Utilization" } else { "AverageValue" };
            let values = json!({
                "averageUtilization": source["targetAverageUtilization"], "averageValue": source["targetAverageValue"],
            });
            json!({"name": source["name"], "container": source["container"], "target": target(kind, values)})
        }
    })
}

fn status_to_v1(name: &str, status: &Value) -> Value {
    let (current, metric) = (&status["current"], &status["metric"]);
    present(match name {
        "object" => json!({
            "target": status["describedObject"], "metricName": metric["name"], "selector": metric["selector"],
            "currentValue": or_zero(&current["value"]), "averageValue": current["averageValue"],
        }),
        "pods" => json!({
            "metricName": metric["name"], "selector": metric["selector"],
            "currentAverageValue": or_zero(&current["averageValue"]),
        }),
        "external" => json!({
            "metricName": metric["name"], "metricSelector": metric["selector"],
            "currentValue": or_zero(&current["value"]), "currentAverageValue": current["averageValue"],
        }),
        _ => json!({
            "name": status["name"], "container": status["container"],
            "currentAverageUtilization": current["averageUtilization"],
            "currentAverageValue": or_zero(&current["averageValue"]),
        }),
    })
}

fn status_to_v2(name: &str, status: &Value) -> Value {
    let selector = if name == "external" { "metricSelector" } else { "selector" };
    let metric = present(json!({"name": status["metricName"], "selector": status[selector]}));
    present(match name {
        "object" => {
            let values = json!({"value": or_zero(&status["currentValue"]), "averageValue": status["averageValue"]});
            json!({"describedObject": status["target"], "metric": metric, "current": present(values)})
        }
        "pods" => json!({"metric": metric, "current": {"averageValue": or_zero(&status["currentAverageValue"])}}),
        "external" => {
            let values = json!({
                "value": or_zero(&status["currentValue"]), "averageValue": status["currentAverageValue"],
            });
            json!({"metric": metric, "current": present(values)})
        }
        _ => {
            let values = json!({
                "averageUtilization": status["currentAverageUtilization"],
                "averageValue": or_zero(&status["currentAverageValue"]),
            });
            json!({"name": status["name"], "container": status["container"], "current": present(values)})
        }
    })
}

/// The behavior with the names and the nulls that Go's internal type has in JSON.
fn internal_behavior(behavior: &Value) -> Value {
    let rules = |rules: &Value| match rules {
        Value::Object(_) => {
            let policies = rules["policies"].as_array().map_or(Value::Null, |policies| {
                let policy = |policy: &Value| {
                    json!({"Type": policy["type"], "Value": policy["value"], "PeriodSeconds": policy["periodSeconds"]})
                };
                policies.iter().map(policy).collect()
            });
            json!({
                "StabilizationWindowSeconds": rules["stabilizationWindowSeconds"],
                "SelectPolicy": rules["selectPolicy"], "Policies": policies, "Tolerance": rules["tolerance"],
            })
        }
        _ => Value::Null,
    };
    json!({"ScaleUp": rules(&behavior["scaleUp"]), "ScaleDown": rules(&behavior["scaleDown"])})
}

/// The name of a field in v2. Go reads names without looking at their case.
fn json_name(name: &str) -> String {
    let known = BEHAVIOR_FIELDS.iter().find(|known| known.eq_ignore_ascii_case(name));
    known.map_or_else(|| name.to_owned(), |known| (*known).to_owned())
}

fn without_nulls(value: &Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (rename(name), without_nulls(value, rename))).collect()
        }
        Value::Array(items) => items.iter().map(|item| without_nulls(item, rename)).collect(),
        value => value.clone(),
    }
}

/// The fields that are set.
fn present(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        value => value,
    }
}

fn or_zero(value: &Value) -> Value {
    if value.is_null() { "0".into() } else { value.clone() }
}

fn is_zero(value: &Value) -> bool {
    Quantity::of(value).is_none_or(|quantity| quantity.is_zero())
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// Keeps a list that is not empty in an annotation.
fn keep(annotations: &mut Map<String, Value>, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        annotations.insert(name.to_owned(), Value::Array(items).to_string().into());
    }
}

fn take(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    object.get_mut(part)?.as_object_mut()?.remove(field).filter(|value| !value.is_null())
}

fn set(object: &mut Value, part: &str, field: &str, value: Value) {
    if let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) {
        fields.insert(field.to_owned(), value);
    }
}

/// Takes the annotations of the conversion out of an object.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return taken };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for name in ROUND_TRIP {
            taken.extend(annotations.remove_entry(name));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(version: &str, annotations: Value, spec: Value, status: Value) -> Value {
        let mut metadata = json!({"name": "web"});
        if annotations != json!({}) {
            metadata["annotations"] = annotations;
        }
        json!({"apiVersion": version, "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec, "status": status})
    }

    /// What each is in the other version.
    #[track_caller]
    fn check(v1: &Value, v2: &Value) {
        assert_eq!(to_v2(v1), *v2, "to v2");
        assert_eq!(to_v1(v2), *v1, "to v1");
    }

    #[test]
    fn the_cpu_target_is_a_metric() {
        check(
            &autoscaler(
                V1,
                json!({"a": "b"}),
                json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}),
                json!({"currentReplicas": 0, "desiredReplicas": 0}),
            ),
            &autoscaler(
                V2,
                json!({"a": "b"}),
                json!({"maxReplicas": 3, "metrics": [cpu_target(&json!(70))]}),
                json!({"currentReplicas": 0, "desiredReplicas": 0, "currentMetrics": null}),
            ),
        );
        let nothing = autoscaler(V1, json!({}), json!({"maxReplicas": 3}), Value::Null);
        assert_eq!(to_v2(&nothing)["spec"]["metrics"], json!([cpu_target(&json!(80))]));
    }

    #[test]
    fn everything_else_is_in_annotations() {
        let metrics = json!([
            {"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "10"}},
            {"type": "Object", "object": {
                "target": {"kind": "Ingress", "name": "web"}, "metricName": "hits", "targetValue": "2k"}},
            {"type": "External", "external": {"metricName": "queue", "metricSelector": {}, "targetAverageValue": "30"}},
            {"type": "ContainerResource", "containerResource": {
                "name": "memory", "container": "app", "targetAverageUtilization": 50}},
        ]);
        let current = json!([{"type": "Resource", "resource": {
            "name": "cpu", "currentAverageUtilization": 40, "currentAverageValue": "400m"}}]);
        let conditions = json!([{"type": "AbleToScale", "status": "True"}]);
        let behavior = json!({"ScaleUp": null, "ScaleDown": {
            "StabilizationWindowSeconds": 30, "SelectPolicy": "Max", "Tolerance": null,
            "Policies": [{"Type": "Pods", "Value": 1, "PeriodSeconds": 60}]}});
        check(
            &autoscaler(
                V1,
                json!({
                    METRICS: metrics.to_string(), BEHAVIOR: behavior.to_string(),
                    CURRENT_METRICS: current.to_string(), CONDITIONS: conditions.to_string(),
                }),
                json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}),
                json!({"currentReplicas": 2, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 40}),
            ),
            &autoscaler(
                V2,
                json!({}),
                json!({
                    "maxReplicas": 3,
                    "metrics": [
                        {"type": "Pods", "pods": {
                            "metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                        {"type": "Object", "object": {
                            "describedObject": {"kind": "Ingress", "name": "web"}, "metric": {"name": "hits"},
                            "target": {"type": "Value", "value": "2k"}}},
                        {"type": "External", "external": {
                            "metric": {"name": "queue", "selector": {}},
                            "target": {"type": "AverageValue", "averageValue": "30"}}},
                        {"type": "ContainerResource", "containerResource": {
                            "name": "memory", "container": "app",
                            "target": {"type": "Utilization", "averageUtilization": 50}}},
                        cpu_target(&json!(70)),
                    ],
                    "behavior": {"scaleDown": {
                        "stabilizationWindowSeconds": 30, "selectPolicy": "Max",
                        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
                }),
                json!({
                    "currentReplicas": 2, "desiredReplicas": 2, "conditions": conditions,
                    "currentMetrics": [{"type": "Resource", "resource": {
                        "name": "cpu", "current": {"averageUtilization": 40, "averageValue": "400m"}}}],
                }),
            ),
        );
    }

    #[test]
    fn annotations_that_cannot_be_read_are_dropped() {
        let annotations = json!({METRICS: "{", BEHAVIOR: "[]", CONDITIONS: "1", "kept": "x"});
        let v1 = autoscaler(V1, annotations, json!({"maxReplicas": 3}), json!({"desiredReplicas": 0}));
        let v2 = to_v2(&v1);
        assert_eq!(v2["metadata"]["annotations"], json!({"kept": "x"}));
        assert_eq!(v2["spec"], json!({"maxReplicas": 3, "metrics": [cpu_target(&json!(80))]}));
    }
}
