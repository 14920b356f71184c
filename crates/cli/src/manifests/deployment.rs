//! The Pods of an operator. In: a description. Out: a Deployment, or a StatefulSet if its leader is elected by Raft, whose Pods pass the Pod Security
//! Standard `restricted`, and its PodDisruptionBudget.

use serde_json::{Value, json};

use super::{COMPONENT_LABEL, METRICS, object, selector};
use crate::description::{Description, RaftPods};

/// The container of the operator; kubebuilder's tools know it by this name.
pub(crate) const CONTAINER: &str = "manager";

/// Which Pods of the operator are its own, by their label.
pub(super) const COMPONENT: &str = "operator";

/// One leads, and one can take over at once.
const REPLICAS: u32 = 2;

/// The user that images of `konverge build` run as. Volumes of members have to be theirs.
const USER: u32 = 65532;

/// What a Pod has beyond the time for its reconciles to finish: events are written and connections closed.
const STOP_SECONDS: u64 = 5;

/// What runs the operator, and the file that it is in.
pub(super) fn workload(operator: &Description) -> (&'static str, Value) {
    let mut workload = deployment(operator);
    match &operator.raft {
        None => ("deployment.yaml", workload),
        Some(raft) => {
            make_stateful(&mut workload, raft);
            ("stateful_set.yaml", workload)
        }
    }
}

fn deployment(operator: &Description) -> Value {
    let mut deployment = object("apps/v1", "Deployment", &operator.name, operator);
    deployment["metadata"]["labels"][COMPONENT_LABEL] = COMPONENT.into();
    let spread = |key: &str| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(operator)},
        })
    };
    let stop = operator.settings.graceful_shutdown_timeout;
    deployment["spec"] = json!({
        "replicas": REPLICAS,
        "selector": {"matchLabels": selector(operator)},
        "template": {
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
                "labels": selector(operator),
            },
            "spec": {
                "containers": [container(operator)],
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "serviceAccountName": operator.name,
                "terminationGracePeriodSeconds": stop.as_millis().div_ceil(1000) as u64 + STOP_SECONDS,
                "topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("topology.kubernetes.io/zone")],
            },
        },
    });
    deployment
}

/// A StatefulSet of members instead, each with a name and a volume of its own.
fn make_stateful(workload: &mut Value, raft: &RaftPods) {
    workload["kind"] = "StatefulSet".into();
    let spec = &mut workload["spec"];
    spec["replicas"] = raft.replicas.into();
    spec["serviceName"] = raft.service.as_str().into();
    // All at once: members need each other before they are ready.
    spec["podManagementPolicy"] = "Parallel".into();
    let pod = &mut spec["template"]["spec"];
    let container = &mut pod["containers"][0];
    let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    container["env"] = json!([
        {"name": "POD_NAME", "valueFrom": from("metadata.name")},
        {"name": "POD_NAMESPACE", "valueFrom": from("metadata.namespace")},
    ]);
    let mut mounts = Vec::new();
    if let Some(tls) = &raft.tls {
        mounts.push(json!({"name": tls.name, "mountPath": tls.path, "readOnly": true}));
    }
    if let Some(data) = &raft.data {
        mounts.push(json!({"name": data.name, "mountPath": data.path}));
    }
    if !mounts.is_empty() {
        container["volumeMounts"] = mounts.into();
        pod["securityContext"]["runAsUser"] = USER.into();
        pod["securityContext"]["fsGroup"] = USER.into();
    }
    if let Some(tls) = &raft.tls {
        pod["volumes"] = json!([{"name": tls.name, "secret": {"secretName": tls.source}}]);
    }
    if let Some(data) = &raft.data {
        spec["volumeClaimTemplates"] = json!([{
            "metadata": {"name": data.name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": data.source}}},
        }]);
    }
}

fn container(operator: &Description) -> Value {
    let mut container = json!({
        "name": CONTAINER,
        "image": operator.image,
        "args": arguments(operator),
        "resources": {
            "limits": {"cpu": "500m", "memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    });
    let ports = container_ports(operator);
    if !ports.is_empty() {
        let port = |(name, port): &(&str, u16)| json!({"name": name, "containerPort": port, "protocol": "TCP"});
        container["ports"] = ports.iter().map(port).collect();
    }
    if operator.health_port().is_some() {
        let health = &operator.settings.health;
        container["livenessProbe"] = json!({
            "httpGet": {"path": health.liveness_path, "port": "health"}, "initialDelaySeconds": 15, "periodSeconds": 20,
        });
        container["readinessProbe"] = json!({
            "httpGet": {"path": health.readiness_path, "port": "health"}, "initialDelaySeconds": 5, "periodSeconds": 10,
        });
    }
    container
}

/// The arguments of the operator. An image may call its program anything, so the name is said.
fn arguments(operator: &Description) -> Vec<String> {
    let name = format!("--operator-name={}", operator.name);
    match operator.raft {
        None => vec!["--leader-elect".to_owned(), name],
        // It refuses to elect a second time.
        Some(_) => vec![name],
    }
}

/// The ports by their names, in the order of their numbers by default. What is served beside something else has no port of its own.
pub(crate) fn container_ports(operator: &Description) -> Vec<(&'static str, u16)> {
    let ports = [
        ("raft", operator.raft.as_ref().map(|raft| raft.port)),
        (METRICS, operator.metrics_port().filter(|port| operator.health_port() != Some(*port))),
        ("health", operator.health_port()),
        ("webhook", operator.webhook_port()),
    ];
    ports.into_iter().filter_map(|(name, port)| Some((name, port?))).collect()
}

/// A drain of nodes never takes all Pods at once. With `maxUnavailable` it also works for a single replica, which `minAvailable` would never let
/// go; Pods that are not ready do not hold up a drain.
pub(super) fn disruption_budget(operator: &Description) -> Value {
    let mut budget = object("policy/v1", "PodDisruptionBudget", &operator.name, operator);
    budget["spec"] = json!({
        "maxUnavailable": 1,
        "selector": {"matchLabels": selector(operator)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    });
    budget
}
