//! A Pod as a cluster returns it: with the fields of a workload, of the scheduler and of the kubelet, and with three field
//! managers. About 5.4 KB of JSON, 2 KB of it managed fields.

use serde_json::{Map, Value, json};

/// The Pod with this number.
pub(crate) fn stored(number: usize, revision: usize) -> Value {
    let name = format!("web-7d4b9c6f5d-{number:06}");
    let uid = format!("b1d5e6a3-4c2f-4d9e-8f70-{number:012}");
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-01T12:00:07Z"});
    let conditions =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let resources = json!({
        "limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"},
    });
    let probe = json!({
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "generateName": "web-7d4b9c6f5d-", "namespace": "default", "uid": uid,
            "resourceVersion": revision.to_string(), "creationTimestamp": "2026-11-01T12:00:00Z",
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d4b9c6f5d"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d",
                "uid": "c2e6f7b4-5d30-4eaf-9081-123456789012", "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [manager("kube-controller-manager", 22), manager("kube-scheduler", 4), manager("kubelet", 26)],
        },
        "spec": {
            "volumes": [
                {"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}},
                {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]}},
            ],
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:v1.42.0",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                    {"name": "LOG_LEVEL", "value": "info"},
                    {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "web-database", "key": "url"}}},
                ],
                "resources": resources,
                "volumeMounts": [
                    {"name": "config", "readOnly": true, "mountPath": "/etc/web"},
                    {"name": "kube-api-access-x7k2p", "readOnly": true,
                     "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ],
                "livenessProbe": probe, "readinessProbe": probe,
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "web", "serviceAccount": "web", "nodeName": format!("node-{:03}", number % 100),
            "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": "10.0.3.17", "podIP": "10.244.3.42", "podIPs": [{"ip": "10.244.3.42"}],
            "startTime": "2026-11-01T12:00:01Z",
            "containerStatuses": [{
                "name": "web", "state": {"running": {"startedAt": "2026-11-01T12:00:03Z"}}, "lastState": {}, "ready": true,
                "restartCount": 0, "image": "registry.example.com/shop/web:v1.42.0", "started": true,
                "imageID": "registry.example.com/shop/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            }],
            "qosClass": "Burstable",
        },
    })
}

/// An entry of `managedFields` with this number of fields.
fn manager(name: &str, fields: usize) -> Value {
    let fields: Map<String, Value> = (0..fields).map(|at| (format!("f:someFieldOfThePod{at:02}"), json!({}))).collect();
    json!({
        "manager": name, "operation": "Update", "apiVersion": "v1", "time": "2026-11-01T12:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": fields}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_size_and_the_shape_of_one() {
        let pod = stored(7, 8);
        let size = pod.to_string().len();
        assert!((5_200..5_700).contains(&size), "{size}");
        let managed = pod["metadata"]["managedFields"].to_string().len();
        assert!((1_800..2_300).contains(&managed), "{managed}");
        let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(typed.spec.unwrap().containers.len(), 1);
    }
}
