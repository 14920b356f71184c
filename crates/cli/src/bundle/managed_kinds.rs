//! Which kinds an operator makes for its objects, as catalogs list them. In: the rules that it declares. Out: kinds with their versions. Only
//! kinds that it may create, and whose version is known, are listed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Kinds of Kubernetes that operators make: group, plural, kind, version.
const KINDS: [(&str, &str, &str, &str); 24] = [
    ("", "configmaps", "ConfigMap", "v1"),
    ("", "events", "Event", "v1"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim", "v1"),
    ("", "pods", "Pod", "v1"),
    ("", "secrets", "Secret", "v1"),
    ("", "serviceaccounts", "ServiceAccount", "v1"),
    ("", "services", "Service", "v1"),
    ("apps", "daemonsets", "DaemonSet", "v1"),
    ("apps", "deployments", "Deployment", "v1"),
    ("apps", "replicasets", "ReplicaSet", "v1"),
    ("apps", "statefulsets", "StatefulSet", "v1"),
    ("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "v2"),
    ("batch", "cronjobs", "CronJob", "v1"),
    ("batch", "jobs", "Job", "v1"),
    ("events.k8s.io", "events", "Event", "v1"),
    ("monitoring.coreos.com", "prometheusrules", "PrometheusRule", "v1"),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "v1"),
    ("networking.k8s.io", "ingresses", "Ingress", "v1"),
    ("networking.k8s.io", "networkpolicies", "NetworkPolicy", "v1"),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget", "v1"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", "v1"),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", "v1"),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", "v1"),
    ("rbac.authorization.k8s.io", "roles", "Role", "v1"),
];

/// What lets an operator make objects; an apply needs `patch` alone where the object is there.
const MAKES: [&str; 3] = ["create", "patch", "*"];

/// The kinds that an operator with these rules makes, as a ClusterServiceVersion has them.
pub(super) fn managed_kinds<'a>(rules: impl IntoIterator<Item = &'a Value>) -> Vec<Value> {
    let has =
        |rule: &Value, field: &str, word: &str| rule[field].as_array().into_iter().flatten().any(|item| item == word);
    let mut found = BTreeSet::new();
    for rule in rules {
        let makes = MAKES.iter().any(|verb| has(rule, "verbs", verb));
        let fits = |(group, plural, ..): &&(&str, &str, &str, &str)| {
            has(rule, "apiGroups", group) && has(rule, "resources", plural)
        };
        found.extend(KINDS.iter().filter(fits).filter(|_| makes).map(|(.., kind, version)| (*kind, *version)));
    }
    // Its name is that of a CRD, which these are not.
    found.into_iter().map(|(kind, version)| json!({"kind": kind, "name": "", "version": version})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_may_make() {
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let rules = [
            rule("apps", &["deployments", "deployments/status"], &["get", "create", "patch"]),
            rule("", &["pods"], &["get", "list"]),
            rule("", &["services"], &["patch"]),
            rule("example.com", &["shops"], &["*"]),
        ];
        let found = managed_kinds(&rules);
        assert_eq!(
            found,
            [
                json!({"kind": "Deployment", "name": "", "version": "v1"}),
                json!({"kind": "Service", "name": "", "version": "v1"}),
            ]
        );
    }
}
