//! What runs an operator whose leader is elected by Raft: a StatefulSet, the headless Service by which members find each other, a
//! PodDisruptionBudget that keeps a majority, and a NetworkPolicy that lets only members reach the port of Raft. In: settings and where
//! members are. Out: manifests, as `--print-statefulset` prints them.

use konverge_raft::RaftDeployment;
use serde_json::{Value, json};

use crate::settings::{BindAddress, Settings};

/// A majority survives the loss of one.
const REPLICAS: u32 = 3;

/// Where the volume is mounted if the program has not said where it writes.
const VOLUME: &str = "raft-data";
const CERTIFICATES: &str = "raft-tls";

pub(super) fn manifests(settings: &Settings, raft: &RaftDeployment) -> Vec<Value> {
    let (name, namespace) = (settings.name.as_str(), settings.home());
    let service = raft.service_name.clone().unwrap_or_else(|| format!("{name}-headless"));
    let labels = json!({"app.kubernetes.io/name": name});
    let metadata = |name: &str| json!({"name": name, "namespace": namespace, "labels": labels});
    let ports = ports(settings, raft);
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(name),
        "spec": {
            "serviceName": service,
            "replicas": REPLICAS,
            // All at once: members need each other before they are ready.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": name,
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": labels},
                        },
                    }]}},
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532},
                    "containers": [container(settings, &ports)],
                },
            },
        },
    });
    let mounts = &mut Vec::new();
    if let Some(directory) = &raft.data_dir {
        mounts.push(json!({"name": VOLUME, "mountPath": directory}));
        let storage = format!("{}Gi", raft.volume_bytes.div_ceil(1 << 30));
        set["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": {"name": VOLUME},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
        }]);
    }
    if let Some(directory) = &raft.tls_dir {
        mounts.push(json!({"name": CERTIFICATES, "mountPath": directory, "readOnly": true}));
        set["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": CERTIFICATES, "secret": {"secretName": format!("{name}-raft-tls")}}]);
    }
    if !mounts.is_empty() {
        set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = mounts.clone().into();
    }
    let open: Vec<Value> = ports[1..].iter().map(|(_, port)| json!({"port": port, "protocol": "TCP"})).collect();
    let mut ingress = vec![json!({
        "from": [{"podSelector": {"matchLabels": labels}}],
        "ports": [{"port": raft.port, "protocol": "TCP"}],
    })];
    if !open.is_empty() {
        ingress.push(json!({"ports": open}));
    }
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(&service),
            "spec": {
                "clusterIP": "None",
                // Members find each other before they are ready.
                "publishNotReadyAddresses": true,
                "selector": labels,
                "ports": [{"name": "raft", "port": raft.port, "protocol": "TCP"}],
            },
        }),
        set,
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(name),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(name),
            "spec": {"podSelector": {"matchLabels": labels}, "policyTypes": ["Ingress"], "ingress": ingress},
        }),
    ]
}

/// The ports of the container by name, that of Raft first.
fn ports(settings: &Settings, raft: &RaftDeployment) -> Vec<(&'static str, u16)> {
    let port = |address: &BindAddress| match address {
        BindAddress::All(port) => Some(*port),
        BindAddress::At(address) if !address.ip().is_loopback() => Some(address.port()),
        _ => None,
    };
    let mut ports = vec![("raft", raft.port)];
    let mut add = |name, enabled: bool, address: &BindAddress| {
        if let Some(port) = port(address).filter(|port| enabled && *port != 0)
            && ports.iter().all(|(_, known)| *known != port)
        {
            ports.push((name, port));
        }
    };
    add("probes", settings.health.enabled, &settings.health.address);
    add("metrics", settings.metrics.enabled, &settings.metrics.address);
    add("webhook", settings.webhook.enabled, &settings.webhook.address);
    ports
}

fn container(settings: &Settings, ports: &[(&'static str, u16)]) -> Value {
    let from = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let listed: Vec<Value> =
        ports.iter().map(|(name, port)| json!({"name": name, "containerPort": port, "protocol": "TCP"})).collect();
    let mut container = json!({
        "name": "operator",
        "image": format!("{}:latest", settings.name),
        "ports": listed,
        "env": [
            {"name": "POD_NAME", "valueFrom": from("metadata.name")},
            {"name": "POD_NAMESPACE", "valueFrom": from("metadata.namespace")},
        ],
    });
    if ports.iter().any(|(name, _)| *name == "probes") {
        let probe = |path: &str| json!({"httpGet": {"path": path, "port": "probes"}});
        container["livenessProbe"] = probe(&settings.health.liveness_path);
        container["readinessProbe"] = probe(&settings.health.readiness_path);
    }
    container
}
