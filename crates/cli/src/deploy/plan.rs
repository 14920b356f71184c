//! Which objects are deployed, and in which order. In: objects. Out: the same with their label, sorted so that each comes after what it needs. Pure, but
//! for `kustomized`, which runs another program.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{DeployError, ownership};
use crate::description::DeployTarget;
use crate::documents::{Document, parse};
use crate::remote_cluster::RemoteError;

/// The order of kinds. Kinds that are not listed come where the empty one is: after what Pods need, and before Pods.
const ORDER: [&str; 18] = [
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "ServiceAccount",
    "Secret",
    "ConfigMap",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "",
    "Deployment",
    "StatefulSet",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// An object that has what every object needs.
pub(super) fn checked(document: Document) -> Result<Value, DeployError> {
    let Document { source, object } = document;
    let bad = |why: &str| DeployError::BadObject { source_name: source.clone(), why: why.to_owned() };
    let has = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let metadata = &object["metadata"];
    let is_texts = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(Value::is_string),
        _ => false,
    };
    if !has(&object["apiVersion"]) || !has(&object["kind"]) {
        return Err(bad("it has no apiVersion, or no kind"));
    }
    if !metadata.is_object() || !has(&metadata["name"]) {
        return Err(bad("it has no metadata.name"));
    }
    if !metadata["namespace"].is_null() && !has(&metadata["namespace"]) {
        return Err(bad("metadata.namespace is no text"));
    }
    if !is_texts(&metadata["labels"]) || !is_texts(&metadata["annotations"]) {
        return Err(bad("metadata.labels and metadata.annotations take names and texts"));
    }
    Ok(object)
}

/// The objects with the mark of their deployment, in the order in which they are applied.
pub(super) fn in_order(mut objects: Vec<Value>, target: &DeployTarget) -> Vec<Value> {
    objects.iter_mut().for_each(|object| ownership::mark(object, target));
    objects.sort_by_key(apply_rank);
    objects
}

/// Where an object stands in the order in which objects are applied.
pub(crate) fn apply_rank(object: &Value) -> Option<usize> {
    let at = |kind: &str| ORDER.iter().position(|known| *known == kind);
    at(object["kind"].as_str().unwrap_or_default()).or_else(|| at(""))
}

/// Whether it makes API servers call the operator.
pub(super) fn is_webhook(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"))
}

/// Takes out what makes API servers call the operator; whether there was something.
pub(super) fn leave_out_webhooks(objects: &mut Vec<Value>) -> bool {
    let count = objects.len();
    objects.retain(|object| !is_webhook(object));
    let mut found = objects.len() != count;
    for definition in objects.iter_mut().filter(|object| object["kind"] == "CustomResourceDefinition") {
        let is_webhook = definition["spec"]["conversion"]["strategy"] == "Webhook";
        if let Some(spec) = definition["spec"].as_object_mut().filter(|_| is_webhook) {
            spec.remove("conversion");
            found = true;
        }
    }
    found
}

/// Whether the server refuses an object in a dry run only because another of these objects was not made.
pub(super) fn needs_another(error: &RemoteError, object: &Value, all: &[Value]) -> bool {
    let brings =
        |kind: &str, is_it: &dyn Fn(&Value) -> bool| all.iter().any(|other| other["kind"] == kind && is_it(other));
    match error {
        RemoteError::UnknownKind { kind, .. } => {
            brings("CustomResourceDefinition", &|definition| definition["spec"]["names"]["kind"] == kind.as_str())
        }
        error if error.code() == 404 => {
            brings("Namespace", &|namespace| namespace["metadata"]["name"] == object["metadata"]["namespace"])
        }
        _ => false,
    }
}

/// Whether one of these objects is the CRD of a kind in namespaces.
pub(super) fn brings_namespaced(kind: &Value, all: &[Value]) -> bool {
    all.iter().any(|other| {
        let spec = &other["spec"];
        other["kind"] == "CustomResourceDefinition" && spec["names"]["kind"] == *kind && spec["scope"] == "Namespaced"
    })
}

/// What kustomize makes of a directory.
pub(super) fn kustomized(directory: &Path) -> Result<Vec<Document>, DeployError> {
    for (program, command) in [("kustomize", "build"), ("kubectl", "kustomize")] {
        let output = Command::new(program).arg(command).arg(directory).stdin(Stdio::null()).output();
        let Ok(output) = output else { continue };
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(DeployError::Kustomize { program, directory: directory.to_owned(), words });
        }
        let source = format!("what {program} makes of {}", directory.display());
        return Ok(parse(&source, &String::from_utf8_lossy(&output.stdout))?);
    }
    Err(DeployError::NoKustomize)
}

#[cfg(test)]
mod tests {
    use super::super::ownership::Ownership;
    use super::*;
    use serde_json::json;

    fn target() -> DeployTarget {
        DeployTarget { name: "shop".into(), namespace: "shop-system".into(), image: String::new() }
    }

    fn objects(kinds: &[&str]) -> Vec<Value> {
        kinds.iter().map(|kind| json!({"kind": kind, "metadata": {"name": "x"}})).collect()
    }

    #[test]
    fn each_comes_after_what_it_needs() {
        let given = [
            "ValidatingWebhookConfiguration",
            "Deployment",
            "Shop",
            "Role",
            "Service",
            "CustomResourceDefinition",
            "Namespace",
        ];
        let sorted = in_order(objects(&given), &target());
        let kinds: Vec<&str> = sorted.iter().filter_map(|object| object["kind"].as_str()).collect();
        let expect = [
            "Namespace",
            "CustomResourceDefinition",
            "Role",
            "Service",
            "Shop",
            "Deployment",
            "ValidatingWebhookConfiguration",
        ];
        assert_eq!(kinds, expect);
        assert!(sorted.iter().all(|object| ownership::of(object, &target()) == Ownership::Ours));
    }

    #[test]
    fn what_every_object_needs() {
        for (text, expect) in [
            ("{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {a: b}}}", "fine"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: a, labels: null}}", "fine"),
            ("{apiVersion: v1, metadata: {name: a}}", "x.yaml cannot be deployed: it has no apiVersion, or no kind"),
            ("{apiVersion: v1, kind: Secret, metadata: x}", "x.yaml cannot be deployed: it has no metadata.name"),
            ("{apiVersion: v1, kind: Secret, metadata: {namespace: a}}", "it has no metadata.name"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: ''}}", "it has no metadata.name"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: [b]}}", "metadata.namespace is no text"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: a, labels: [a]}}", "take names and texts"),
            ("{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {a: 1}}}", "take names and texts"),
        ] {
            let object = serde_saphyr::from_str(text).unwrap();
            let found = checked(Document { source: "x.yaml".into(), object });
            let found = found.map_or_else(|error| error.to_string(), |_| "fine".to_owned());
            assert!(found.ends_with(expect), "{text}: {found}");
        }
    }

    #[test]
    fn webhooks_can_be_left_out() {
        let mut all = objects(&["Deployment", "MutatingWebhookConfiguration"]);
        all.push(
            json!({"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "Webhook"}, "group": "g"}}),
        );
        assert!(leave_out_webhooks(&mut all));
        assert_eq!((all.len(), &all[1]["spec"]), (2, &json!({"group": "g"})));
        assert!(!leave_out_webhooks(&mut all));
    }

    #[test]
    fn what_a_dry_run_cannot_check() {
        let all = json!([
            {"kind": "Namespace", "metadata": {"name": "a"}},
            {"kind": "CustomResourceDefinition", "spec": {"names": {"kind": "Shop"}}},
        ]);
        let all = all.as_array().unwrap();
        let missing = |code| RemoteError::Refused { what: String::new(), why: String::new(), code };
        let unknown = |kind: &str| RemoteError::UnknownKind { api_version: "v1".into(), kind: kind.into() };
        for (error, namespace, expect) in [
            (missing(404), "a", true),
            (missing(404), "b", false),
            (missing(422), "a", false),
            (unknown("Shop"), "a", true),
            (unknown("Till"), "a", false),
        ] {
            let object = json!({"kind": "Shop", "metadata": {"namespace": namespace}});
            assert_eq!(needs_another(&error, &object, all), expect, "{error:?}");
        }
    }
}
