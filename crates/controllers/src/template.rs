//! Pods from templates. In: a template and the owner of the pod. Out: the pod to create, and whether two templates are equal.
//! Pure.

use serde_json::{Map, Value, json};

use crate::hash::suffix;
use crate::meta::Meta;

/// The label that tells the pods of one template of a Deployment from those of another.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// The longest name of a pod that is also the name of a host.
const LONGEST_PREFIX: usize = 253 - 5;

/// A pod of a template, with a random suffix in its name. `reference` is the owner reference to the controller.
pub(crate) fn pod(template: &Value, owner: &Meta, reference: &Value, random: u64) -> Value {
    let prefix: String = format!("{}-", owner.name).chars().take(LONGEST_PREFIX).collect();
    let name = format!("{prefix}{}", suffix(random));
    let mut pod = named_pod(template, owner, reference, &name);
    pod["metadata"]["generateName"] = prefix.into();
    pod
}

/// A pod of a template under a name of its own.
pub(crate) fn named_pod(template: &Value, owner: &Meta, reference: &Value, name: &str) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !is_empty(value)) {
            metadata.insert(field.into(), value.clone());
        }
    }
    metadata.insert("name".into(), name.into());
    metadata.insert("namespace".into(), owner.namespace.clone().into());
    metadata.insert("ownerReferences".into(), json!([reference]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Whether two templates ask for the same pods, whatever hash they carry.
pub(crate) fn same_template(one: &Value, other: &Value) -> bool {
    same(one, other, &mut vec![])
}

/// Whether a value says nothing: what is not there and what is empty mean the same in a template.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn same<'v>(one: &'v Value, other: &'v Value, path: &mut Vec<&'v str>) -> bool {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let names = fields.keys().chain(others.keys().filter(|name| !fields.contains_key(*name)));
            names.into_iter().all(|name| {
                if path[..] == ["metadata", "labels"] && name == TEMPLATE_HASH {
                    return true;
                }
                path.push(name);
                let same = match (fields.get(name), others.get(name)) {
                    (Some(one), Some(other)) => same(one, other, path),
                    (Some(only), None) | (None, Some(only)) => is_empty(only),
                    (None, None) => true,
                };
                path.pop();
                same
            })
        }
        (Value::Array(items), Value::Array(others)) => {
            // What is in a list has no path of interest.
            path.push("");
            let same =
                items.len() == others.len() && items.iter().zip(others).all(|(one, other)| same(one, other, path));
            path.pop();
            same
        }
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_compared_by_what_they_ask_for() {
        let check = |one: Value, other: Value, expect: bool| {
            assert_eq!(same_template(&one, &other), expect, "{one} {other}");
            assert_eq!(same_template(&other, &one), expect, "{other} {one}");
        };
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        check(labels(json!({"a": "1"})), labels(json!({"a": "1", "pod-template-hash": "x"})), true);
        check(labels(json!({"a": "1"})), labels(json!({"a": "2"})), false);
        check(labels(json!({"a": "1"})), labels(json!({"a": "1", "b": "1"})), false);
        check(json!({"spec": {"nodeSelector": {"pod-template-hash": "x"}}}), json!({"spec": {}}), false);
        check(json!({"spec": {"volumes": []}}), json!({"spec": {"securityContext": {}}}), true);
        check(json!({"spec": {"containers": [1, 2]}}), json!({"spec": {"containers": [1]}}), false);
        check(json!({"metadata": {"creationTimestamp": null}}), json!({}), true);
    }

    #[test]
    fn pods_carry_what_the_template_says_and_whose_they_are() {
        let owner = Meta { name: "web-1".into(), namespace: "a".into(), uid: "u".into(), ..Meta::default() };
        let template = json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {}, "name": "ignored"},
            "spec": {"containers": [{"name": "c"}]},
        });
        assert_eq!(
            pod(&template, &owner, &json!({"uid": "u"}), 0),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "web-1-bbbbb", "generateName": "web-1-", "namespace": "a", "labels": {"app": "web"},
                    "ownerReferences": [{"uid": "u"}],
                },
                "spec": {"containers": [{"name": "c"}]},
            })
        );
    }
}
