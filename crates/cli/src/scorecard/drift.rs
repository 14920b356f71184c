//! A change that somebody else could make to an object, and that its operator should undo. In: an object. Out: a merge patch of a field that somebody set; what
//! a server or an autoscaler sets is left alone. Pure.

use serde_json::{Value, json};

/// What is written instead.
const CHANGED: &str = "changed-by-the-scorecard";

/// A patch that changes what the operator of this object wrote; none if nothing can be changed.
pub(super) fn drift(object: &Value, siblings: &[Value]) -> Option<Value> {
    if object["immutable"] == true {
        return None;
    }
    let scales = |sibling: &&Value| {
        let target = &sibling["spec"]["scaleTargetRef"];
        sibling["kind"] == "HorizontalPodAutoscaler"
            && target["kind"] == object["kind"]
            && target["name"] == object["metadata"]["name"]
    };
    let is_scaled = siblings.iter().any(|sibling| scales(&sibling));
    match object["kind"].as_str()? {
        "Deployment" | "StatefulSet" | "ReplicaSet" if !is_scaled && is_set(object, &["f:spec", "f:replicas"]) => {
            let replicas = object["spec"]["replicas"].as_i64()?;
            Some(json!({"spec": {"replicas": replicas + 1}}))
        }
        "ConfigMap" => {
            let key = object["data"].as_object()?.keys().next()?.clone();
            Some(json!({"data": {key: CHANGED}}))
        }
        "Service" if object["spec"]["selector"].is_object() => {
            let key = object["spec"]["selector"].as_object()?.keys().next()?.clone();
            Some(json!({"spec": {"selector": {key: CHANGED}}}))
        }
        _ => {
            let labels = object["metadata"]["labels"].as_object()?;
            let field = |key: &str| format!("f:{key}");
            let key = labels.keys().find(|key| is_set(object, &["f:metadata", "f:labels", &field(key)]))?;
            Some(json!({"metadata": {"labels": {key.as_str(): CHANGED}}}))
        }
    }
}

/// Whether somebody set a field, instead of the server by default.
fn is_set(object: &Value, path: &[&str]) -> bool {
    let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    managers.clone().any(|manager| {
        let found = path.iter().fold(&manager["fieldsV1"], |fields, step| &fields[*step]);
        manager["subresource"].is_null() && !found.is_null()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(object: Value, siblings: &[Value], expect: Option<Value>) {
        assert_eq!(drift(&object, siblings), expect, "{object}");
    }

    #[test]
    fn what_somebody_could_change() {
        let workload = |fields: Value| json!({"kind": "Deployment", "metadata": {"name": "a", "managedFields": [{"fieldsV1": fields}]}, "spec": {"replicas": 2}});
        let replicas = workload(json!({"f:spec": {"f:replicas": {}}}));
        check(replicas.clone(), &[], Some(json!({"spec": {"replicas": 3}})));
        let scaler =
            json!({"kind": "HorizontalPodAutoscaler", "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "a"}}});
        check(replicas, &[scaler], None);
        check(workload(json!({"f:spec": {}})), &[], None);
        check(json!({"kind": "ConfigMap", "data": {"a": "b"}}), &[], Some(json!({"data": {"a": CHANGED}})));
        check(json!({"kind": "ConfigMap", "data": {"a": "b"}, "immutable": true}), &[], None);
        check(
            json!({"kind": "Service", "spec": {"selector": {"app": "a"}}}),
            &[],
            Some(json!({"spec": {"selector": {"app": CHANGED}}})),
        );
        let labelled = json!({"kind": "Ingress", "metadata": {"labels": {"a": "b"}, "managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}]}});
        check(labelled, &[], Some(json!({"metadata": {"labels": {"a": CHANGED}}})));
        check(json!({"kind": "Ingress"}), &[], None);
    }
}
