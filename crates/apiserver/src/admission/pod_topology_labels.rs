//! PodTopologyLabels: a pod that has a node also has the labels with the zone and the region of the node. A pod gets its node
//! when it is created, or by a Binding.

use serde::Deserialize;
use serde_json::{Map, Value};

use konverge_core::Status;

use super::{Admission, Attributes, Operation, Plugin, Verdict, decided, lookup};
use crate::meta;
use crate::subresource::Subresource;

const NODES: lookup::Kind = ("", "nodes");

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(super) struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(Operation::Create, "", "pods") || attributes.subresource == Subresource::Binding
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, pod: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        decided(label(attributes, pod))
    }
}

#[derive(Deserialize)]
struct Node {
    metadata: NodeMetadata,
}

#[derive(Deserialize)]
struct NodeMetadata {
    #[serde(default)]
    labels: Map<String, Value>,
}

/// Copies the labels of the node to the pod.
fn label(attributes: &Attributes<'_>, pod: &mut Value) -> Result<(), Status> {
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return Ok(()) };
    let Some((_, node)) = lookup::get::<Node>(attributes.server, NODES, None, node)? else { return Ok(()) };
    let mut copied = node.metadata.labels;
    copied.retain(|key, _| LABELS.contains(&key.as_str()));
    if !copied.is_empty() {
        let labels = meta::of_mut(pod).entry("labels").or_insert_with(|| Map::new().into());
        if let Some(labels) = labels.as_object_mut() {
            labels.extend(copied);
        }
    }
    Ok(())
}
