//! Plans the EndpointSlices of a Service. In: the Service, the pods that it selects, the existing slices. Out: slices to create,
//! to change and to delete. An endpoint stays in its slice, so that a change of one pod changes one slice. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::meta::{HasMeta, Meta, StringMap};
use crate::pods::Pod;
use crate::service::{EndpointPort, Family, Service, addresses, target_ref};

/// The label with the name of the Service of a slice.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label that names the controller of a slice, and its value for this controller.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const OURS: &str = "endpointslice-controller.k8s.io";

/// The most endpoints in a slice.
const MAX_ENDPOINTS: usize = 100;

/// An EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Slice {
    pub metadata: Meta,
    pub address_type: Family,
    pub endpoints: Option<Vec<Endpoint>>,
    pub ports: Option<Vec<EndpointPort>>,
}

/// A pod behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Endpoint {
    pub addresses: Vec<String>,
    pub conditions: Conditions,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    pub target_ref: Value,
}

/// The conditions of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Conditions {
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub create: Vec<Content>,
    pub change: Vec<(Arc<Slice>, Content)>,
    pub delete: Vec<Arc<Slice>>,
}

/// The content of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Content {
    pub family: Family,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
    pub labels: StringMap,
}

/// What all endpoints of a slice have in common.
type Group = (Family, Vec<EndpointPort>);

impl HasMeta for Slice {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Slice {
    /// Whether this controller manages it.
    pub(super) fn is_ours(&self) -> bool {
        self.metadata.labels.get(MANAGED_BY).is_some_and(|owner| owner == OURS) && !self.metadata.is_terminating()
    }

    fn content(&self) -> Content {
        Content {
            family: self.address_type,
            ports: self.ports.clone().unwrap_or_default(),
            endpoints: self.endpoints.clone().unwrap_or_default(),
            labels: self.metadata.labels.clone(),
        }
    }
}

impl Content {
    /// A new slice with this content, without its owner reference and without a name.
    pub(super) fn object(&self, service: &Service) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{}-", service.metadata.name),
                "namespace": service.metadata.namespace,
                "labels": self.labels,
            },
            "addressType": self.family,
            "endpoints": self.endpoints,
            "ports": self.ports,
        })
    }
}

/// Makes the plan. `slices` are those of the Service that this controller manages.
pub(crate) fn plan(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<Slice>]) -> Plan {
    let labels = service.endpoint_labels(&[(SERVICE_NAME, &service.metadata.name), (MANAGED_BY, OURS)]);
    let mut groups: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for family in service.families() {
        for pod in pods.iter().filter(|pod| !pod.is_finished()) {
            if let Some(endpoint) = endpoint(service, pod, family) {
                groups.entry((family, service.ports(pod))).or_default().push(endpoint);
            }
        }
        // A Service without pods has one slice without endpoints.
        if !groups.keys().any(|(of, _)| *of == family) {
            groups.insert((family, Vec::new()), Vec::new());
        }
    }
    let mut plan = Plan::default();
    let mut left: HashMap<&str, &Arc<Slice>> = slices.iter().map(|slice| (&*slice.metadata.uid, slice)).collect();
    for ((family, ports), endpoints) in groups {
        let matches = |slice: &&Arc<Slice>| {
            (slice.address_type, slice.ports.as_deref().unwrap_or_default()) == (family, &ports[..])
        };
        let existing: Vec<&Arc<Slice>> = slices.iter().filter(matches).collect();
        existing.iter().for_each(|slice| {
            left.remove(&*slice.metadata.uid);
        });
        plan.fill(&Content { family, ports, endpoints, labels: labels.clone() }, &existing);
    }
    let mut left: Vec<&Arc<Slice>> = slices.iter().filter(|slice| left.contains_key(&*slice.metadata.uid)).collect();
    // A slice that is no longer needed is reused for a new one.
    let create = std::mem::take(&mut plan.create);
    for content in create {
        match left.iter().position(|slice| slice.address_type == content.family) {
            Some(at) => plan.change.push((left.remove(at).clone(), content)),
            None => plan.create.push(content),
        }
    }
    plan.delete.extend(left.into_iter().cloned());
    plan
}

impl Plan {
    /// Distributes endpoints over the slices of their group: they stay where they are, fill slices with room, then new ones.
    fn fill(&mut self, wanted: &Content, existing: &[&Arc<Slice>]) {
        let mut unplaced: BTreeMap<&str, &Endpoint> = BTreeMap::new();
        for endpoint in &wanted.endpoints {
            unplaced.insert(endpoint.uid(), endpoint);
        }
        let mut contents: Vec<(&Arc<Slice>, Vec<Endpoint>)> = Vec::new();
        for slice in existing {
            let kept = slice.endpoints.iter().flatten().filter_map(|endpoint| unplaced.remove(endpoint.uid()).cloned());
            let mut kept: Vec<Endpoint> = kept.collect();
            // The endpoints beyond the limit of a slice move to another one.
            for surplus in kept.split_off(kept.len().min(MAX_ENDPOINTS)) {
                let again = wanted.endpoints.iter().find(|endpoint| endpoint.uid() == surplus.uid());
                unplaced.extend(again.map(|endpoint| (endpoint.uid(), endpoint)));
            }
            contents.push((slice, kept));
        }
        let mut new =
            wanted.endpoints.iter().filter(|endpoint| unplaced.contains_key(endpoint.uid())).cloned().peekable();
        let mut by_room: Vec<usize> = (0..contents.len()).collect();
        by_room.sort_by_key(|at| std::cmp::Reverse(contents[*at].1.len()));
        for at in by_room {
            let kept = &mut contents[at].1;
            let room = MAX_ENDPOINTS.saturating_sub(kept.len());
            kept.extend(new.by_ref().take(room));
        }
        let with = |endpoints: Vec<Endpoint>| Content { endpoints, ..wanted.clone() };
        while new.peek().is_some() {
            self.create.push(with(new.by_ref().take(MAX_ENDPOINTS).collect()));
        }
        let keeps_one = wanted.endpoints.is_empty();
        for (at, (slice, endpoints)) in contents.into_iter().enumerate() {
            match endpoints.is_empty() && !(keeps_one && at == 0) {
                true => self.delete.push(slice.clone()),
                false => {
                    let content = with(endpoints);
                    if content != slice.content() {
                        self.change.push((slice.clone(), content));
                    }
                }
            }
        }
        if keeps_one && existing.is_empty() {
            self.create.push(with(Vec::new()));
        }
    }
}

impl Endpoint {
    fn uid(&self) -> &str {
        self.target_ref["uid"].as_str().unwrap_or_default()
    }
}

/// The endpoint of a pod; `None` if it has no address of the family.
fn endpoint(service: &Service, pod: &Pod, family: Family) -> Option<Endpoint> {
    let addresses = addresses(pod, family);
    let (serving, terminating) = (pod.is_ready(), pod.metadata.is_terminating());
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Conditions { ready, serving, terminating },
        hostname: service.hostname(pod),
        node_name: Some(pod.spec.node_name.clone()).filter(|node| !node.is_empty()),
        target_ref: target_ref(&pod.metadata),
    })
}

#[cfg(test)]
mod tests;
