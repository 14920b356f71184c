//! Who reaches the operator, and whom it reaches. In: a description. Out: Services of its metrics and webhooks, and
//! NetworkPolicies.
//!
//! The policy about requests to the operator is safe for every operator: its ports are known. One about requests of the operator is not: many
//! talk to systems outside of the cluster, and no selector names the API server. So it is a part of its own that nobody gets unasked.

use serde_json::{Value, json};

use super::{COMPONENT_LABEL, METRICS, Manifest, Part, container_ports, manifest, metrics_service, object, selector};
use crate::description::{Description, RaftPods};

/// The ports on which API servers listen, behind their Service and directly.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];
const DNS_PORT: u16 = 53;

pub(super) fn manifests(operator: &Description) -> Vec<Manifest> {
    let mut manifests = Vec::new();
    if let Some(port) = operator.metrics_port() {
        let service = service(operator, METRICS, &metrics_service(operator), port);
        manifests.push(manifest(Part::Manager, "metrics_service.yaml", service));
    }
    if let Some(raft) = &operator.raft {
        manifests.push(manifest(Part::Manager, "raft_service.yaml", raft_service(operator, raft)));
    }
    let webhook_service = operator.webhooks.as_ref().and_then(|webhooks| webhooks.service.as_ref());
    if let Some(name) = webhook_service.filter(|_| operator.webhook_port().is_some()) {
        manifests.push(manifest(Part::Webhook, "service.yaml", service(operator, "webhook", name, 443)));
    }
    manifests.push(manifest(Part::Manager, "network_policy.yaml", ingress_policy(operator)));
    manifests.push(manifest(Part::RestrictEgress, "network_policy.yaml", egress_policy(operator)));
    manifests
}

/// A Service of the port with this name.
fn service(operator: &Description, port_name: &'static str, name: &str, port: u16) -> Value {
    let mut service = object("v1", "Service", name, operator);
    service["metadata"]["labels"][COMPONENT_LABEL] = port_name.into();
    service["spec"] = json!({
        "selector": selector(operator),
        "ports": [{"name": port_name, "port": port, "targetPort": target_port(operator, port_name, port), "protocol": "TCP"}],
    });
    service
}

/// The name of the port of the container. Metrics may be served beside the probes.
fn target_port(operator: &Description, port_name: &'static str, port: u16) -> &'static str {
    let ports = container_ports(operator);
    let is_own = ports.iter().any(|(name, _)| *name == port_name);
    ports.iter().find(|(_, known)| !is_own && *known == port).map_or(port_name, |(name, _)| name)
}

/// By this Service members find each other, also before they are ready.
fn raft_service(operator: &Description, raft: &RaftPods) -> Value {
    let mut service = service(operator, "raft", &raft.service, raft.port);
    service["spec"]["clusterIP"] = "None".into();
    service["spec"]["publishNotReadyAddresses"] = true.into();
    service
}

/// The kubelet, Prometheus and API servers may call from anywhere: where they are differs from cluster to cluster.
fn ingress_policy(operator: &Description) -> Value {
    let mut policy = object("networking.k8s.io/v1", "NetworkPolicy", &operator.name, operator);
    let port = |(_, port): (&str, u16)| json!({"port": port, "protocol": "TCP"});
    let open = container_ports(operator).into_iter().filter(|(name, _)| *name != "raft");
    let ports: Vec<Value> = open.map(port).collect();
    policy["spec"] = json!({"podSelector": {"matchLabels": selector(operator)}, "policyTypes": ["Ingress"]});
    if !ports.is_empty() {
        policy["spec"]["ingress"] = json!([{"ports": ports}]);
    }
    if let Some(raft) = &operator.raft {
        let members = json!({
            "from": [{"podSelector": {"matchLabels": selector(operator)}}], "ports": [{"port": raft.port, "protocol": "TCP"}],
        });
        let rules = policy["spec"]["ingress"].as_array().cloned().unwrap_or_default();
        policy["spec"]["ingress"] = rules.into_iter().chain([members]).collect();
    }
    policy
}

fn egress_policy(operator: &Description) -> Value {
    let mut policy = object("networking.k8s.io/v1", "NetworkPolicy", &format!("{}-egress", operator.name), operator);
    let api_server = API_SERVER_PORTS.map(|port| json!({"port": port, "protocol": "TCP"}));
    let dns = ["TCP", "UDP"].map(|protocol| json!({"port": DNS_PORT, "protocol": protocol}));
    policy["spec"] = json!({
        "podSelector": {"matchLabels": selector(operator)},
        "policyTypes": ["Egress"],
        "egress": [{"ports": api_server}, {"ports": dns}],
    });
    if let Some(raft) = &operator.raft {
        let members = json!({
            "to": [{"podSelector": {"matchLabels": selector(operator)}}], "ports": [{"port": raft.port, "protocol": "TCP"}],
        });
        policy["spec"]["egress"].as_array_mut().into_iter().for_each(|rules| rules.push(members.clone()));
    }
    policy
}
