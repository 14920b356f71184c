//! DefaultTolerationSeconds: a pod stays for five minutes on a node that is not ready or unreachable, unless it says otherwise.

use serde_json::{Value, json};

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided};

/// The taints that every pod tolerates for a while.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

pub(super) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_about("", "pods") && attributes.operation != Operation::Delete
    }

    fn admit<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        tolerate(pod);
        decided(Ok(()))
    }
}

fn tolerate(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let given = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
    let missing = TAINTS.into_iter().filter(|taint| {
        !given.iter().any(|toleration| {
            let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (key.is_empty() || key == *taint) && (effect.is_empty() || effect == "NoExecute")
        })
    });
    let added: Vec<Value> = missing
        .map(|taint| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}))
        .collect();
    if !added.is_empty() {
        let all: Vec<Value> = given.into_iter().chain(added).collect();
        spec.insert("tolerations".into(), all.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_stay_for_a_while_on_lost_nodes() {
        #[track_caller]
        fn check(given: Value, expect: &[&str]) {
            let mut pod = json!({"spec": {"tolerations": given}});
            tolerate(&mut pod);
            let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
            let keys: Vec<_> = tolerations.iter().map(|one| one["key"].as_str().unwrap_or("*")).collect();
            assert_eq!(keys, expect);
        }
        let [not_ready, unreachable] = TAINTS;
        check(json!(null), &TAINTS);
        check(json!([{"key": "x"}]), &["x", not_ready, unreachable]);
        check(json!([{"operator": "Exists"}]), &["*"]);
        check(json!([{"key": unreachable, "effect": "NoExecute"}]), &[unreachable, not_ready]);
        check(json!([{"key": unreachable, "effect": "NoSchedule"}]), &[unreachable, not_ready, unreachable]);
    }
}
