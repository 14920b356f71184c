//! What objects use, what quotas track, and which scopes objects are in.

use serde_json::json;

use super::*;

fn kind(plural: &str) -> QuotaKind {
    QuotaKind::of("", plural).unwrap()
}

#[track_caller]
fn uses(kind: &QuotaKind, object: Value, expect: &[(&str, &str)]) {
    let used = kind.usage(&object, false);
    let used: Vec<(String, String)> = used.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
    let expect: Vec<(String, String)> =
        expect.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    assert_eq!(used, expect);
}

#[test]
fn objects_use_what_quotas_limit() {
    let pods = kind("pods");
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "2"}});
    uses(&pods, json!({"spec": {"containers": [{}]}}), &[("count/pods", "1"), ("pods", "1")]);
    uses(&pods, json!({"spec": {"containers": [{}]}, "status": {"phase": "Succeeded"}}), &[("count/pods", "1")]);
    uses(
        &pods,
        json!({"spec": {
            "containers": [{"resources": resources("500m")}, {"resources": resources("250m")}],
            "initContainers": [{"resources": resources("1")}],
            "overhead": {"cpu": "100m", "memory": "1Mi"},
        }}),
        &[
            ("count/pods", "1"),
            ("cpu", "1100m"),
            ("limits.cpu", "4100m"),
            ("memory", "2049Mi"),
            ("pods", "1"),
            ("requests.cpu", "1100m"),
            ("requests.memory", "2049Mi"),
        ],
    );
    // A sidecar runs beside all containers, and beside the init containers after it.
    uses(
        &pods,
        json!({"spec": {
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"resources": {"requests": {"cpu": "3", "example.com/gpu": 2, "hugepages-2Mi": "4Mi"}}},
            ],
        }}),
        &[
            ("count/pods", "1"),
            ("cpu", "4"),
            ("hugepages-2Mi", "4Mi"),
            ("pods", "1"),
            ("requests.cpu", "4"),
            ("requests.example.com/gpu", "2"),
            ("requests.hugepages-2Mi", "4Mi"),
        ],
    );
    let service = |spec: Value, balancers: &str, ports: &str| {
        let expect = [
            ("count/services", "1"),
            ("services", "1"),
            ("services.loadbalancers", balancers),
            ("services.nodeports", ports),
        ];
        uses(&kind("services"), json!({"spec": spec}), &expect);
    };
    service(json!({"type": "ClusterIP", "ports": [{}]}), "0", "0");
    service(json!({"type": "NodePort", "ports": [{}, {}]}), "0", "2");
    service(json!({"type": "LoadBalancer", "ports": [{}, {}]}), "1", "2");
    let few =
        json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"nodePort": 30001}, {}]});
    service(few, "1", "1");
    uses(
        &kind("persistentvolumeclaims"),
        json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}}}),
        &[
            ("count/persistentvolumeclaims", "1"),
            ("gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1"),
            ("gold.storageclass.storage.k8s.io/requests.storage", "2"),
            ("persistentvolumeclaims", "1"),
            ("requests.storage", "2"),
        ],
    );
    uses(&kind("configmaps"), json!({}), &[("configmaps", "1"), ("count/configmaps", "1")]);
    uses(&QuotaKind::of("apps", "deployments").unwrap(), json!({}), &[("count/deployments.apps", "1")]);
    assert_eq!(QuotaKind::of("", "events"), None);
}

#[test]
fn names_are_tracked_by_their_kind() {
    for (plural, name, expect) in [
        ("pods", "pods", true),
        ("pods", "limits.memory", true),
        ("pods", "requests.example.com/gpu", true),
        ("pods", "example.com/gpu", false),
        ("pods", "requests.storage", false),
        ("pods", "hugepages-2Mi", true),
        ("persistentvolumeclaims", "requests.storage", true),
        ("persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage", true),
        ("persistentvolumeclaims", "cpu", false),
        ("services", "services.nodeports", true),
        ("secrets", "secrets", true),
        ("secrets", "count/secrets", true),
        ("secrets", "count/configmaps", false),
        ("endpoints", "endpoints", false),
    ] {
        assert_eq!(kind(plural).tracks(name), expect, "{plural} {name}");
    }
}

#[test]
fn scopes_decide_what_counts() {
    #[track_caller]
    fn check(spec: Value, pod: Value, expect: bool) {
        let quota = ResourceQuota::read(&json!({"metadata": {"name": "q"}, "spec": spec}));
        assert_eq!(quota.covers(&kind("pods"), &pod), expect, "{spec} {pod}");
    }
    let scoped = |name: &str| json!({"scopes": [name]});
    let pod = |spec: Value| json!({"spec": spec, "status": {}});
    let asking = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]});
    check(json!({}), pod(json!({})), true);
    check(scoped("Terminating"), pod(json!({"activeDeadlineSeconds": 5})), true);
    check(scoped("Terminating"), pod(json!({})), false);
    check(scoped("NotTerminating"), pod(json!({})), true);
    check(scoped("BestEffort"), pod(json!({"containers": [{}]})), true);
    check(scoped("BestEffort"), pod(asking.clone()), false);
    check(scoped("NotBestEffort"), pod(asking), true);
    check(scoped("PriorityClass"), pod(json!({"priorityClassName": "high"})), true);
    check(scoped("PriorityClass"), pod(json!({})), false);
    let selector = |operator: &str, values: &[&str]| {
        json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values},
        ]}})
    };
    check(selector("In", &["high"]), pod(json!({"priorityClassName": "high"})), true);
    check(selector("In", &["low"]), pod(json!({"priorityClassName": "high"})), false);
    check(selector("NotIn", &["low"]), pod(json!({})), true);
    check(selector("DoesNotExist", &[]), pod(json!({})), true);
    let near =
        |term: Value| json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    check(scoped("CrossNamespacePodAffinity"), pod(near(json!({"namespaces": ["x"]}))), true);
    check(scoped("CrossNamespacePodAffinity"), pod(near(json!({}))), false);
    let scoped = ResourceQuota::read(&json!({"spec": {"scopes": ["BestEffort"]}}));
    assert!(scoped.excludes(&kind("secrets")) && !scoped.covers(&kind("secrets"), &json!({})));
}

#[test]
fn a_pod_has_to_say_what_a_quota_limits() {
    #[track_caller]
    fn check(limited: &[&str], spec: Value, expect: Option<&str>) {
        assert_eq!(kind("pods").missing(limited.iter().copied(), &json!({"spec": spec})).as_deref(), expect);
    }
    let two = json!({"containers": [{"name": "b"}, {"name": "a", "resources": {"limits": {"cpu": "1"}}}]});
    check(&["limits.cpu", "pods", "requests.ephemeral-storage"], two.clone(), Some("must specify limits.cpu for: b"));
    check(&["cpu", "memory"], two.clone(), Some("must specify cpu for: a,b; memory for: a,b"));
    check(&["pods"], two, None);
    check(&["cpu"], json!({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "1"}}}), None);
}
