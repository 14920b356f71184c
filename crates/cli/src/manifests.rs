//! The objects that an operator is deployed with. In: a description of the operator. Out: manifests, each with the file that it is in. Pure:
//! `generate` writes them to files, `chart` makes templates of them, `deploy` applies them.

mod alerts;
mod dashboard;
mod deployment;
mod monitoring;
mod network;
mod rbac;

use serde_json::{Map, Value, json};

use crate::description::Description;

use deployment::COMPONENT;
pub(crate) use deployment::{CONTAINER, container_ports};
pub(crate) use rbac::scoped_role;

/// The labels by which tools find what belongs together.
pub(crate) const NAME_LABEL: &str = "app.kubernetes.io/name";
pub(crate) const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
const VERSION_LABEL: &str = "app.kubernetes.io/version";
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// The name of the metrics' port, and what their Service is a component of.
const METRICS: &str = "metrics";

/// An object, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest {
    pub part: Part,
    /// Without its folder; several objects may share a file.
    pub file: String,
    pub object: Value,
}

/// What an object is a part of: a folder below `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Crd,
    Rbac,
    Manager,
    Webhook,
    /// Needs the CRDs of the Prometheus operator, so it is applied only on request.
    Prometheus,
    /// A dashboard, which a sidecar of Grafana finds by its label. Not every cluster has one, so it is applied only on request.
    Grafana,
    /// Would cut off operators that talk to other systems, so it is applied only on request.
    RestrictEgress,
}

impl Part {
    pub(crate) const ALL: [Part; 7] =
        [Part::Crd, Part::Rbac, Part::Manager, Part::Webhook, Part::Prometheus, Part::Grafana, Part::RestrictEgress];

    /// Its folder.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Part::Crd => "crd",
            Part::Rbac => "rbac",
            Part::Manager => "manager",
            Part::Webhook => "webhook",
            Part::Prometheus => "prometheus",
            Part::Grafana => "grafana",
            Part::RestrictEgress => "restrict-egress",
        }
    }

    /// Whether it is applied only on request.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self, Part::Prometheus | Part::Grafana | Part::RestrictEgress)
    }
}

/// Everything that an operator is deployed with, in the order in which it is applied. Optional parts are among it.
pub(crate) fn manifests(operator: &Description) -> Vec<Manifest> {
    let mut manifests = vec![manifest(Part::Manager, "namespace.yaml", namespace(operator))];
    for definition in &operator.definitions {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let file = format!("bases/{}_{}.yaml", group.as_str().unwrap_or_default(), plural.as_str().unwrap_or_default());
        manifests.push(manifest(Part::Crd, &file, definition.clone()));
    }
    manifests.extend(rbac::manifests(operator));
    manifests.extend(network::manifests(operator));
    manifests.extend(monitoring::manifests(operator));
    manifests.push(manifest(Part::Manager, "pod_disruption_budget.yaml", deployment::disruption_budget(operator)));
    let (file, workload) = deployment::workload(operator);
    manifests.push(manifest(Part::Manager, file, workload));
    // Last, so that no request waits for webhooks that nobody serves yet.
    for configuration in operator.webhooks.iter().flat_map(|webhooks| &webhooks.configurations) {
        manifests.push(manifest(Part::Webhook, "manifests.yaml", configuration.clone()));
    }
    for manifest in &mut manifests {
        label(&mut manifest.object, operator);
    }
    manifests
}

fn manifest(part: Part, file: &str, object: Value) -> Manifest {
    Manifest { part, file: file.to_owned(), object }
}

/// `apiVersion`, `kind`, and metadata in the namespace of the operator.
fn object(api_version: &str, kind: &str, name: &str, operator: &Description) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": operator.namespace}})
}

/// Its Pods must pass the strictest of the standards; the label makes the API server insist.
fn namespace(operator: &Description) -> Value {
    let enforce = |mode: &str| (format!("pod-security.kubernetes.io/{mode}"), json!("restricted"));
    let labels: Map<String, Value> = ["enforce", "warn"].into_iter().map(enforce).collect();
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator.namespace, "labels": labels}})
}

/// Labels that all objects have.
fn label(object: &mut Value, operator: &Description) {
    // What a version has beside numbers and letters cannot be in a label.
    let version = operator.version.replace('+', "_");
    let labels = [(NAME_LABEL, operator.name.as_str()), (VERSION_LABEL, &version), (MANAGED_BY_LABEL, "konverge")];
    for (label, value) in labels {
        object["metadata"]["labels"][label] = value.into();
    }
}

/// The Service of the metrics; Prometheus calls the job of its samples after it.
fn metrics_service(operator: &Description) -> String {
    format!("{}-{METRICS}", operator.name)
}

/// The labels by which the operator's own Pods are selected. They can never be changed.
fn selector(operator: &Description) -> Value {
    json!({NAME_LABEL: operator.name, COMPONENT_LABEL: COMPONENT})
}

/// An object for messages: `Deployment shop-system/shop`.
pub(crate) fn called(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    match text(&metadata["namespace"]) {
        none if none.is_empty() => format!("{kind} {}", text(&metadata["name"])),
        namespace => format!("{kind} {namespace}/{}", text(&metadata["name"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::{example, raft_example};
    use crate::description::text;

    fn find<'a>(manifests: &'a [Manifest], name: &str) -> &'a Value {
        let found = manifests.iter().find(|manifest| called(&manifest.object) == name);
        &found.unwrap_or_else(|| panic!("{name} is not among {:?}", names(manifests))).object
    }

    fn names(manifests: &[Manifest]) -> Vec<String> {
        manifests.iter().map(|manifest| called(&manifest.object)).collect()
    }

    #[test]
    fn what_an_operator_with_everything_has() {
        let manifests = manifests(&example());
        assert_eq!(
            names(&manifests),
            [
                "Namespace shop-system",
                "CustomResourceDefinition shops.example.com",
                "ServiceAccount shop-system/shop",
                "ClusterRole shop-manager",
                "ClusterRoleBinding shop-manager",
                "Role shop-system/shop-leader-election",
                "RoleBinding shop-system/shop-leader-election",
                "Role shop-system/shop-webhook-certificates",
                "RoleBinding shop-system/shop-webhook-certificates",
                "ClusterRole shop-webhook-certificates",
                "ClusterRoleBinding shop-webhook-certificates",
                "ClusterRole shop-shop-admin",
                "ClusterRole shop-shop-editor",
                "ClusterRole shop-shop-viewer",
                "Service shop-system/shop-metrics",
                "Service shop-system/shop-webhook",
                "NetworkPolicy shop-system/shop",
                "NetworkPolicy shop-system/shop-egress",
                "ServiceMonitor shop-system/shop",
                "PrometheusRule shop-system/shop",
                "ConfigMap shop-system/shop-dashboard",
                "PodDisruptionBudget shop-system/shop",
                "Deployment shop-system/shop",
                "ValidatingWebhookConfiguration shop",
            ]
        );
        let deployment = find(&manifests, "Deployment shop-system/shop");
        assert_eq!(
            deployment["spec"]["selector"]["matchLabels"],
            find(&manifests, "NetworkPolicy shop-system/shop")["spec"]["podSelector"]["matchLabels"]
        );
        let pod = &deployment["spec"]["template"]["spec"];
        // The operator stops within 25 s, and needs a moment to close connections.
        assert_eq!((&pod["terminationGracePeriodSeconds"], &pod["serviceAccountName"]), (&json!(30), &json!("shop")));
    }

    #[test]
    fn members_of_raft_run_in_a_stateful_set() {
        let manifests = manifests(&raft_example());
        let names = names(&manifests);
        assert!(
            names.iter().all(|name| !name.starts_with("Deployment") && !name.contains("leader-election")),
            "{names:?}"
        );
        let set = &find(&manifests, "StatefulSet shop-system/shop")["spec"];
        assert_eq!((&set["serviceName"], &set["replicas"]), (&json!("shop-headless"), &json!(3)));
        assert_eq!(set["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"], "1Gi");
        let container = &set["template"]["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["--operator-name=shop"]));
        assert_eq!(container["volumeMounts"][1], json!({"name": "raft-data", "mountPath": "/data/raft"}));
        // Metrics are beside the probes, because Raft has their port.
        let ports = container["ports"].as_array().unwrap().iter().map(|port| text(&port["name"]));
        assert_eq!(ports.collect::<Vec<_>>(), ["raft", "health", "webhook"]);
        assert_eq!(find(&manifests, "Service shop-system/shop-metrics")["spec"]["ports"][0]["targetPort"], "health");
        let headless = &find(&manifests, "Service shop-system/shop-headless")["spec"];
        assert_eq!((&headless["clusterIP"], &headless["publishNotReadyAddresses"]), (&json!("None"), &json!(true)));
        // Only members reach the port of Raft, also when the operator may not connect to others.
        let policy = &find(&manifests, "NetworkPolicy shop-system/shop")["spec"];
        assert_eq!(
            (&policy["ingress"][0]["ports"][0]["port"], &policy["ingress"][1]["ports"][0]["port"]),
            (&json!(8081), &json!(8080))
        );
        assert_eq!(policy["ingress"][1]["from"][0]["podSelector"], policy["podSelector"]);
        let egress = &find(&manifests, "NetworkPolicy shop-system/shop-egress")["spec"]["egress"];
        assert_eq!(egress[2]["to"][0]["podSelector"], policy["podSelector"]);
    }

    #[test]
    fn what_an_operator_does_not_have_is_left_out() {
        let mut small = example();
        small.webhooks = None;
        small.definitions.clear();
        small.settings.metrics.enabled = false;
        small.settings.health.enabled = false;
        small.settings.graceful_shutdown_timeout = std::time::Duration::from_millis(59_500);
        small.rules.cluster.clear();
        small.rules.namespaces = vec![("a".into(), vec![json!({"verbs": ["get"]})])];
        let manifests = manifests(&small);
        assert_eq!(
            names(&manifests),
            [
                "Namespace shop-system",
                "ServiceAccount shop-system/shop",
                "Role a/shop-manager",
                "RoleBinding a/shop-manager",
                "Role shop-system/shop-leader-election",
                "RoleBinding shop-system/shop-leader-election",
                "NetworkPolicy shop-system/shop",
                "NetworkPolicy shop-system/shop-egress",
                "PodDisruptionBudget shop-system/shop",
                "Deployment shop-system/shop",
            ]
        );
        let pod = &find(&manifests, "Deployment shop-system/shop")["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], 65);
        let container = &pod["containers"][0];
        assert!(container["ports"].is_null() && container["livenessProbe"].is_null(), "{container}");
        assert_eq!(find(&manifests, "RoleBinding a/shop-manager")["subjects"][0]["namespace"], "shop-system");
    }
}
