//! `alpha-deprecated-apis`: APIs that newer clusters do not serve. In: a bundle, and perhaps the release that it is for. Out: errors if a cluster that the
//! bundle is for has removed an API, warnings otherwise.

use std::collections::BTreeSet;

use semver::Version;
use serde_json::Value;

use super::super::csv;
use super::{Finding, LoadedBundle, Options, release};
use crate::description::text;
use crate::documents::Document;

/// What was removed: the minor release, the API version, and the kinds.
const REMOVED: [(u64, &str, &[&str]); 20] = [
    (22, "apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"]),
    (22, "scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    (22, "rbac.authorization.k8s.io/v1beta1", &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    (22, "apiregistration.k8s.io/v1beta1", &["APIService"]),
    (22, "authentication.k8s.io/v1beta1", &["TokenReview"]),
    (
        22,
        "authorization.k8s.io/v1beta1",
        &["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SubjectAccessReview"],
    ),
    (22, "admissionregistration.k8s.io/v1beta1", &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]),
    (22, "coordination.k8s.io/v1beta1", &["Lease"]),
    (22, "extensions/v1beta1", &["Ingress"]),
    (22, "networking.k8s.io/v1beta1", &["Ingress", "IngressClass"]),
    (22, "storage.k8s.io/v1beta1", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"]),
    (22, "certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
    (25, "batch/v1beta1", &["CronJob"]),
    (25, "discovery.k8s.io/v1beta1", &["EndpointSlice"]),
    (25, "events.k8s.io/v1beta1", &["Event"]),
    (25, "autoscaling/v2beta1", &["HorizontalPodAutoscaler"]),
    (25, "policy/v1beta1", &["PodDisruptionBudget"]),
    (25, "policy/v1beta1", &["PodSecurityPolicy"]),
    (25, "node.k8s.io/v1beta1", &["RuntimeClass"]),
    (26, "autoscaling/v2beta2", &["HorizontalPodAutoscaler"]),
];

/// Resources of which 1.25 removed a version. Who has rights about them may use that version.
const DOUBTFUL: [(&str, &str); 7] = [
    ("batch", "cronjobs"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("policy", "poddisruptionbudgets"),
    ("policy", "podsecuritypolicies"),
    ("node.k8s.io", "runtimeclasses"),
];

pub(super) fn judge(bundle: &LoadedBundle, options: &Options) -> Vec<Finding> {
    let (csv, file) = bundle.csv_with_file();
    let least = release(&text(&csv["spec"]["minKubeVersion"]));
    let newest = options.kubernetes.iter().chain(&least).max().cloned();
    let mut findings = Vec::new();
    for Document { source, object } in bundle.objects.iter().filter(|document| document.object["kind"] != csv::KIND) {
        findings.extend(removed(&object["apiVersion"], &object["kind"]).map(|minor| {
            let words = format!(
                "{} of {} is not served since Kubernetes 1.{minor}: write it in a newer version",
                text(&object["kind"]),
                text(&object["apiVersion"]),
            );
            match newest.as_ref().is_some_and(|newest| *newest >= Version::new(1, minor, 0)) {
                true => Finding::error(source, words),
                false => Finding::warning(source, words),
            }
        }));
    }
    findings.extend(doubtful(csv).into_iter().map(|words| Finding::warning(file, words)));
    findings
}

fn removed(api_version: &Value, kind: &Value) -> Option<u64> {
    let fits = |row: &&(u64, &str, &[&str])| api_version == row.1 && row.2.iter().any(|known| kind == known);
    REMOVED.iter().find(fits).map(|(minor, ..)| *minor)
}

/// Rights about resources that the operator does not say in which version it uses.
fn doubtful(csv: &Value) -> BTreeSet<String> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let definitions = &csv["spec"]["customresourcedefinitions"];
    let kinds = ["owned", "required"].into_iter().flat_map(|relation| items(&definitions[relation]));
    let said: BTreeSet<String> = kinds
        .flat_map(|kind| items(&kind["resources"]))
        .map(|resource| text(&resource["kind"]).to_lowercase() + "s")
        .collect();
    let strategy = &csv["spec"]["install"]["spec"];
    let permissions = ["permissions", "clusterPermissions"].into_iter().flat_map(|field| items(&strategy[field]));
    let mut found = BTreeSet::new();
    for rule in permissions.flat_map(|permission| items(&permission["rules"])) {
        let has = |field: &str, word: &str| items(&rule[field]).iter().any(|item| item == word);
        let fits = |(group, resource): &&(&str, &str)| {
            has("apiGroups", group) && has("resources", resource) && !said.contains(*resource)
        };
        found.extend(DOUBTFUL.iter().filter(fits).map(|(group, resource)| {
            format!(
                "the operator has rights about {resource} of {group}, of which Kubernetes 1.25 removed a version: list the kind with its version in \
                 the resources of an owned CRD"
            )
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(api_version: &str, kind: &str, kubernetes: Option<&str>, expect: &str) {
        let csv = json!({"kind": csv::KIND, "spec": {"minKubeVersion": "1.20.0"}});
        let object = json!({"apiVersion": api_version, "kind": kind});
        let document = |source: &str, object: Value| Document { source: source.to_owned(), object };
        let bundle =
            LoadedBundle { objects: vec![document("csv", csv), document("x", object)], ..LoadedBundle::default() };
        let findings = judge(&bundle, &Options { kubernetes: kubernetes.and_then(release) });
        let found = findings.first().map_or("none".to_owned(), |finding| format!("{:?}", finding.level));
        assert_eq!(found, expect, "{api_version} {kind} {kubernetes:?}");
    }

    #[test]
    fn what_was_removed() {
        check("policy/v1beta1", "PodDisruptionBudget", None, "Warning");
        check("policy/v1beta1", "PodDisruptionBudget", Some("1.24"), "Warning");
        check("policy/v1beta1", "PodDisruptionBudget", Some("1.25"), "Error");
        check("policy/v1", "PodDisruptionBudget", Some("1.36"), "none");
        check("autoscaling/v2beta2", "HorizontalPodAutoscaler", Some("v1.26.1"), "Error");
    }

    #[test]
    fn rights_that_say_nothing_of_a_version() {
        let rule = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]});
        let mut csv = json!({"spec": {"install": {"spec": {"permissions": [{"rules": [rule]}]}}}});
        assert_eq!(doubtful(&csv).len(), 1);
        csv["spec"]["customresourcedefinitions"]["owned"] =
            json!([{"resources": [{"kind": "Event", "version": "v1"}]}]);
        assert_eq!(doubtful(&csv).len(), 0);
    }
}
