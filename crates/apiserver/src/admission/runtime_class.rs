//! RuntimeClass: a pod gets the overhead and the scheduling rules of its runtime class, which has to exist.

use serde::Deserialize;
use serde_json::{Map, Value};

use konverge_core::{ResourceList, Status, resource_list};
use konverge_schema::Budget;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::work::over_budget;

const CLASSES: lookup::Kind = ("node.k8s.io", "runtimeclasses");

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

#[derive(Deserialize)]
struct Class {
    overhead: Option<Overhead>,
    scheduling: Option<Scheduling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Overhead {
    #[serde(default)]
    pod_fixed: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Scheduling {
    node_selector: Map<String, Value>,
    tolerations: Vec<Value>,
}

pub(super) struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "", "pods")
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(find(attributes, pod).and_then(|class| match class {
            Some(class) => complete(attributes, &class, &mut pod["spec"]),
            None => Ok(()),
        }))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(find(attributes, pod).and_then(|class| check(attributes, class, &pod["spec"])))
    }
}

fn find(attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Class>, Status> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    match lookup::get(attributes.server, CLASSES, None, name)? {
        Some((_, class)) => Ok(Some(class)),
        None => Err(attributes.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn complete(attributes: &Attributes<'_>, class: &Class, spec: &mut Value) -> Result<(), Status> {
    if let Some(overhead) = &class.overhead {
        let given = resource_list(&spec["overhead"]);
        if !given.is_empty() && given != resource_list(&overhead.pod_fixed) {
            return Err(attributes.forbidden(MISMATCH));
        }
        if overhead.pod_fixed.is_object() {
            spec["overhead"] = overhead.pod_fixed.clone();
        }
    }
    let Some(scheduling) = &class.scheduling else { return Ok(()) };
    let mut selector = spec["nodeSelector"].as_object().cloned().unwrap_or_default();
    for (key, value) in &scheduling.node_selector {
        match selector.get(key).filter(|given| *given != value) {
            Some(given) => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (wanted, given) = (text(value), text(given));
                return Err(attributes.forbidden(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; \
                     pod.spec.nodeSelector[{key}] = {given}"
                )));
            }
            None => drop(selector.insert(key.clone(), value.clone())),
        }
    }
    if !selector.is_empty() {
        spec["nodeSelector"] = selector.into();
    }
    let given = spec["tolerations"].as_array().into_iter().flatten();
    let merged = merged(given.chain(&scheduling.tolerations), attributes.budget);
    attributes.budget.check().map_err(over_budget)?;
    if !merged.is_empty() {
        spec["tolerations"] = merged.into();
    }
    Ok(())
}

/// The tolerations without those that another one covers. Each is compared with every other, so each comparison is paid for;
/// whoever calls this looks whether the budget was enough.
fn merged<'v>(all: impl Iterator<Item = &'v Value>, budget: &Budget) -> Vec<Value> {
    let all: Vec<Toleration<'_>> = all.map(Toleration::of).collect();
    let mut kept: Vec<Toleration<'_>> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let covered = |other: &&Toleration<'_>| other.covers(toleration);
        let before = kept.iter().take_while(|_| budget.spend(1)).find(covered);
        let later = all[at + 1..].iter().take_while(|_| budget.spend(1));
        if before.is_none() && !later.filter(|other| *other != toleration).any(|other| other.covers(toleration)) {
            kept.push(*toleration);
        }
    }
    kept.iter().map(|toleration| toleration.whole.clone()).collect()
}

/// A toleration, read once for all comparisons.
#[derive(Clone, Copy)]
struct Toleration<'v> {
    whole: &'v Value,
    key: &'v str,
    operator: &'v str,
    value: &'v str,
    effect: &'v str,
    seconds: Option<i64>,
}

impl PartialEq for Toleration<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.operator, self.value, self.effect, self.seconds)
            == (other.key, other.operator, other.value, other.effect, other.seconds)
    }
}

impl<'v> Toleration<'v> {
    fn of(whole: &'v Value) -> Self {
        let text = |field: &str| whole[field].as_str().unwrap_or_default();
        let (key, operator, value, effect) = (text("key"), text("operator"), text("value"), text("effect"));
        Self { whole, key, operator, value, effect, seconds: whole["tolerationSeconds"].as_i64() }
    }

    /// Whether this tolerates everything that another one does.
    fn covers(&self, narrow: &Self) -> bool {
        if self == narrow {
            return true;
        }
        let exists = self.operator == "Exists";
        if narrow.key != self.key && !(self.key.is_empty() && exists) {
            return false;
        }
        if narrow.effect != self.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == "NoExecute"
            && let Some(limit) = self.seconds
            && narrow.seconds.is_none_or(|seconds| seconds > limit)
        {
            return false;
        }
        match self.operator {
            "" | "Equal" => narrow.operator == "Equal" && narrow.value == self.value,
            operator => operator == "Exists",
        }
    }
}

fn check(attributes: &Attributes<'_>, class: Option<Class>, spec: &Value) -> Result<(), Status> {
    let overhead: ResourceList = resource_list(&spec["overhead"]);
    match class.and_then(|class| class.overhead) {
        Some(fixed) if resource_list(&fixed.pod_fixed) != overhead => Err(attributes.forbidden(MISMATCH)),
        None if spec["overhead"].is_object() => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(attributes.forbidden(why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerations_that_others_cover_are_left_out() {
        let of = |key: &str, operator: &str, value: &str, effect: &str| json!({"key": key, "operator": operator, "value": value, "effect": effect});
        let equal = of("a", "Equal", "1", "NoSchedule");
        let exists = of("a", "Exists", "", "NoSchedule");
        let everything = json!({"operator": "Exists"});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        for (given, expect) in [
            (vec![equal.clone(), exists.clone()], vec![exists.clone()]),
            (vec![exists.clone(), equal.clone()], vec![exists.clone()]),
            (vec![equal.clone(), equal.clone()], vec![equal.clone()]),
            (vec![equal.clone(), short.clone()], vec![equal, short.clone()]),
            (vec![short.clone(), long.clone()], vec![long.clone()]),
            (vec![exists, everything.clone(), long], vec![everything]),
        ] {
            assert_eq!(merged(given.iter(), Budget::unlimited()), expect, "{given:?}");
        }
    }

    #[test]
    fn comparing_tolerations_is_paid_for() {
        let many: Vec<Value> = (0..4000).map(|key| json!({"key": key.to_string(), "operator": "Exists"})).collect();
        let budget = Budget::new(100_000, 0);
        merged(many.iter(), &budget);
        assert!(budget.check().is_err());
    }
}
