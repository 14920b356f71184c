//! Plans the Endpoints of a Service, for clients that do not read EndpointSlices. In: the Service and the pods that it selects.
//! Out: subsets of addresses with the same ports, and the labels. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::meta::{HasMeta, Meta, StringMap};
use crate::pods::Pod;
use crate::service::{EndpointPort, Service, addresses, target_ref};

/// The label that names the controller of an Endpoints object, and its value for this controller.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OURS: &str = "endpoint-controller";

/// The annotation of truncated Endpoints, and the limit of their addresses.
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const CAPACITY: usize = 1000;

/// An Endpoints object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Endpoints {
    pub metadata: Meta,
    pub subsets: Option<Vec<Subset>>,
}

/// Addresses that have the same ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Subset {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready_addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
}

/// A port. An empty name is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Port {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub port: i32,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// The address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Address {
    pub ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    pub target_ref: Value,
}

/// The desired content of the Endpoints of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub labels: StringMap,
    pub subsets: Vec<Subset>,
    /// Whether addresses are left out.
    pub truncated: bool,
}

impl HasMeta for Endpoints {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Endpoints {
    /// Whether this controller manages them.
    pub(super) fn is_ours(&self) -> bool {
        self.metadata.labels.get(MANAGED_BY).is_some_and(|owner| owner == OURS)
    }

    /// Whether they have this content.
    pub(super) fn has(&self, content: &Content) -> bool {
        self.metadata.labels == content.labels
            && self.subsets.as_deref().unwrap_or_default() == content.subsets
            && self.metadata.annotations.contains_key(OVER_CAPACITY) == content.truncated
    }
}

impl From<EndpointPort> for Port {
    fn from(port: EndpointPort) -> Self {
        Self { name: port.name, port: port.port, protocol: port.protocol, app_protocol: port.app_protocol }
    }
}

/// The content of the Endpoints of a Service with these pods.
pub(crate) fn content(service: &Service, pods: &[Arc<Pod>]) -> Content {
    let publishes = service.spec.publish_not_ready_addresses;
    let family = service.families().first().copied().unwrap_or_default();
    let mut groups: BTreeMap<Vec<EndpointPort>, Subset> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_finished() && (publishes || !pod.metadata.is_terminating())) {
        let ports = service.ports(pod);
        // A pod without any of the ports cannot be reached, unless a headless Service has no ports at all.
        if ports.is_empty() && !(service.spec.ports.is_empty() && service.is_headless()) {
            continue;
        }
        let Some(ip) = addresses(pod, family).pop() else { continue };
        let subset = groups.entry(ports).or_default();
        let list = if publishes || pod.is_ready() { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.push(Address {
            ip,
            hostname: service.hostname(pod),
            node_name: Some(pod.spec.node_name.clone()).filter(|node| !node.is_empty()),
            target_ref: target_ref(&pod.metadata),
        });
    }
    let in_order = |list: &mut Vec<Address>| list.sort_by_key(|address| address.ip.parse::<IpAddr>().ok());
    let mut subsets: Vec<Subset> = Vec::new();
    for (ports, mut subset) in groups {
        subset.ports = ports.into_iter().map(Port::from).collect();
        in_order(&mut subset.addresses);
        in_order(&mut subset.not_ready_addresses);
        subsets.push(subset);
    }
    let truncated = truncate(&mut subsets);
    Content { labels: service.endpoint_labels(&[(MANAGED_BY, OURS)]), subsets, truncated }
}

/// Drops addresses beyond the capacity, those that are not ready first. Returns whether any was dropped.
fn truncate(subsets: &mut Vec<Subset>) -> bool {
    let mut room = CAPACITY;
    let mut truncated = false;
    let mut cut = |list: &mut Vec<Address>| {
        truncated |= list.len() > room;
        list.truncate(room);
        room -= list.len();
    };
    subsets.iter_mut().for_each(|subset| cut(&mut subset.addresses));
    subsets.iter_mut().for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| !subset.addresses.is_empty() || !subset.not_ready_addresses.is_empty());
    truncated
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: Value) -> Service {
        let mut all = json!({"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": all})).unwrap()
    }

    /// A pod by number: `+` is ready, `-` is not, `t` is on its way out, `f` has failed.
    fn pod(number: usize, how: char) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "name": format!("p{number}"), "deletionTimestamp": (how == 't').then_some("2026-01-01T00:00:00Z"),
                },
                "status": {
                    "phase": if how == 'f' { "Failed" } else { "Running" },
                    "podIP": format!("10.0.{}.{}", number / 250, number % 250),
                    "conditions": [{"type": "Ready", "status": if how == '+' { "True" } else { "False" }}],
                },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn who_is_ready_and_who_is_not() {
        let check = |spec: Value, how: &str, expect: Value| {
            let pods: Vec<Arc<Pod>> = how.chars().enumerate().map(|(number, how)| pod(number, how)).collect();
            let ips = |list: &[Address]| list.iter().map(|address| address.ip.clone()).collect::<Vec<_>>();
            let content = content(&service(spec.clone()), &pods);
            let got = content.subsets.iter().map(|one| json!([ips(&one.addresses), ips(&one.not_ready_addresses)]));
            assert_eq!(Value::Array(got.collect()), expect, "{spec} {how}");
        };
        check(json!({}), "", json!([]));
        check(json!({}), "+-tf+", json!([[["10.0.0.0", "10.0.0.4"], ["10.0.0.1"]]]));
        let publishes = json!({"publishNotReadyAddresses": true});
        check(publishes, "+-tf", json!([[["10.0.0.0", "10.0.0.1", "10.0.0.2"], []]]));
        check(json!({"ports": [{"port": 80, "targetPort": "web"}]}), "+", json!([]));
        check(json!({"ports": [], "clusterIP": "None"}), "+", json!([[["10.0.0.0"], []]]));
        check(json!({"ports": []}), "+", json!([]));
    }

    #[test]
    fn so_many_and_no_more() {
        let many = |ready: usize, unready: usize| -> Content {
            let pods: Vec<Arc<Pod>> =
                (0..ready + unready).map(|at| pod(at, if at < ready { '+' } else { '-' })).collect();
            content(&service(json!({})), &pods)
        };
        let check = |ready: usize, unready: usize, expect: (usize, usize, bool)| {
            let content = many(ready, unready);
            let subset = &content.subsets[0];
            assert_eq!((subset.addresses.len(), subset.not_ready_addresses.len(), content.truncated), expect);
        };
        check(3, 2, (3, 2, false));
        check(900, 200, (900, 100, true));
        check(1001, 5, (1000, 0, true));
    }
}
