//! A Service as the controllers of its endpoints read it. In: JSON, and pods. Out: which pods it selects, with which ports and
//! addresses. Pure.

use k8s_openapi::api::core::v1 as core;
use konverge_core::LabelSelector;
use konverge_runtime::Target;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::meta::{HasMeta, Meta, StringMap};
use crate::pods::Pod;

/// The label of endpoints whose Service has no address of its own.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub metadata: Meta,
    pub spec: ServiceSpec,
}

/// The spec of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type")]
    pub type_: String,
    pub selector: StringMap,
    pub ports: Vec<ServicePort>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    pub ip_families: Vec<Family>,
    pub publish_not_ready_addresses: bool,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ServicePort {
    pub name: String,
    pub port: i32,
    /// A number, or the name of a container's port; the same number if it does not say.
    pub target_port: Option<Value>,
    pub protocol: Option<String>,
    pub app_protocol: Option<String>,
}

/// A port of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndpointPort {
    pub name: String,
    pub port: i32,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Family {
    #[default]
    IPv4,
    IPv6,
}

impl HasMeta for Service {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Family {
    /// The family of an address.
    pub(crate) fn of(address: &str) -> Self {
        if address.contains(':') { Self::IPv6 } else { Self::IPv4 }
    }
}

impl Service {
    /// Whether its endpoints are ours to find: it says whom it selects, and stands for no name elsewhere.
    pub(crate) fn has_endpoints(&self) -> bool {
        !self.spec.selector.is_empty() && self.spec.type_ != "ExternalName" && !self.metadata.is_terminating()
    }

    /// Whether it selects what has these labels.
    pub(crate) fn selects(&self, labels: &StringMap) -> bool {
        !self.spec.selector.is_empty() && self.spec.selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }

    /// Selects its pods. One of a Service that has endpoints names at least one label.
    pub(crate) fn selector(&self) -> LabelSelector {
        LabelSelector::of_labels(&self.spec.selector)
    }

    /// Whether it has no address of its own.
    pub(crate) fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// The families of addresses its endpoints have.
    pub(crate) fn families(&self) -> Vec<Family> {
        match self.spec.ip_families.is_empty() {
            true => vec![Family::of(&self.spec.cluster_ip)],
            false => self.spec.ip_families.clone(),
        }
    }

    /// The ports under which a pod is reached: those it has, in order.
    pub(crate) fn ports(&self, pod: &Pod) -> Vec<EndpointPort> {
        let port = |port: &ServicePort| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let number = match &port.target_port {
                None => Some(port.port),
                Some(Value::String(name)) if !name.is_empty() => port_named(pod, name, protocol),
                Some(number) => number.as_i64().and_then(|number| i32::try_from(number).ok()).filter(|port| *port != 0),
            };
            let number = number.or_else(|| port.target_port.as_ref().is_none_or(|to| *to == 0).then_some(port.port));
            Some(EndpointPort {
                name: port.name.clone(),
                port: number?,
                protocol: protocol.to_owned(),
                app_protocol: port.app_protocol.clone(),
            })
        };
        let mut ports: Vec<EndpointPort> = self.spec.ports.iter().filter_map(port).collect();
        ports.sort();
        ports
    }

    /// The name a pod has under it, if it is one of those it gives names.
    pub(crate) fn hostname(&self, pod: &Pod) -> Option<String> {
        let named = !pod.spec.hostname.is_empty() && pod.spec.subdomain == self.metadata.name;
        named.then(|| pod.spec.hostname.clone())
    }

    /// The labels of its endpoints: its own and those that say whose they are.
    pub(crate) fn endpoint_labels(&self, more: &[(&str, &str)]) -> StringMap {
        let mut labels = self.metadata.labels.clone();
        labels.remove(HEADLESS);
        if self.is_headless() {
            labels.insert(HEADLESS.into(), String::new());
        }
        labels.extend(more.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        labels
    }
}

/// The addresses of a pod of a family.
pub(crate) fn addresses(pod: &Pod, family: Family) -> Vec<String> {
    let all = pod.status.pod_ips.iter().map(|address| &address.ip).chain(Some(&pod.status.pod_ip));
    let mut found: Vec<String> = all.filter(|ip| !ip.is_empty() && Family::of(ip) == family).cloned().collect();
    found.dedup();
    found.truncate(1);
    found
}

/// A pod as endpoints refer to it.
pub(crate) fn target_ref(pod: &Meta) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid})
}

/// The kind.
pub(crate) fn api() -> ApiResource {
    ApiResource::erase::<core::Service>(&())
}

/// All Services.
pub(crate) fn target() -> Target {
    Target::of::<core::Service>()
}

fn port_named(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    let mut named = ports.filter(|port| port.name == name && port.protocol.as_deref().unwrap_or("TCP") == protocol);
    named.next().map(|port| port.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_in_pods() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "side"},
            {"name": "main", "ports": [
                {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                {"name": "web", "containerPort": 8080},
            ]},
        ]}}))
        .unwrap();
        let check = |port: Value, expect: Option<i32>| {
            let service: Service = serde_json::from_value(json!({"spec": {"ports": [port]}})).unwrap();
            assert_eq!(service.ports(&pod).first().map(|port| port.port), expect, "{port}");
        };
        check(json!({"port": 80}), Some(80));
        check(json!({"port": 80, "targetPort": 0}), Some(80));
        check(json!({"port": 80, "targetPort": 8080}), Some(8080));
        check(json!({"port": 80, "targetPort": "web"}), Some(8080));
        check(json!({"port": 53, "targetPort": "dns"}), None);
        check(json!({"port": 53, "targetPort": "dns", "protocol": "UDP"}), Some(53));
        check(json!({"port": 80, "targetPort": "other"}), None);
    }

    #[test]
    fn addresses_are_of_a_family() {
        let check = |status: Value, family: Family, expect: &[&str]| {
            let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
            assert_eq!(addresses(&pod, family), expect, "{status}");
        };
        check(json!({}), Family::IPv4, &[]);
        check(json!({"podIP": "10.0.0.1"}), Family::IPv4, &["10.0.0.1"]);
        check(json!({"podIP": "10.0.0.1"}), Family::IPv6, &[]);
        check(
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}),
            Family::IPv6,
            &["fd00::1"],
        );
    }
}
