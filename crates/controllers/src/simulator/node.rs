//! How a simulated node looks. In: a node or its name, and the time. Out: the node to create, its status, its taints and its
//! Lease. A node is ready unless an annotation says that it is lost. Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use konverge_core::KUBERNETES_VERSION;
use konverge_core::simulate::PREFIX;

use super::kind::SIMULATED;
use super::schedule::UNREACHABLE;
use super::settings::SimulationSettings;
use crate::meta::stamp;

/// The duration of a node's Lease, as kubelet's default.
const LEASE_SECONDS: u64 = 40;

/// The name of a node; numbers begin with 1.
pub(super) fn name(number: usize) -> String {
    format!("konverge-node-{number}")
}

/// The node to create.
pub(super) fn new(name: &str, settings: &SimulationSettings, now: Timestamp) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            SIMULATED: "true",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }},
        "spec": {"providerID": format!("konverge-sim://{name}")},
    });
    node["status"] = status(&node, settings, now);
    node
}

/// Whether an annotation makes the node unreachable.
fn is_lost(node: &Value) -> bool {
    node["metadata"]["annotations"][format!("{PREFIX}lost")] == "true"
}

/// The taint that a server gives to a new node until the node is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taints that a node should have; `None` if it has them.
pub(super) fn taints(node: &Value, now: Timestamp) -> Option<Value> {
    let there: Vec<Value> = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let lost = is_lost(node);
    let is_ours = |taint: &Value| taint["key"] == UNREACHABLE || (!lost && taint["key"] == NOT_READY);
    let has = there.iter().any(is_ours);
    match lost {
        true if !has => {
            let taint = |effect: &str| json!({"key": UNREACHABLE, "effect": effect, "timeAdded": stamp(now)});
            let both = ["NoSchedule", "NoExecute"].map(taint);
            Some(there.into_iter().chain(both).collect())
        }
        false if has => Some(there.into_iter().filter(|taint| !is_ours(taint)).collect()),
        _ => None,
    }
}

/// The status of a node. Fields of other writers stay.
pub(super) fn status(node: &Value, settings: &SimulationSettings, now: Timestamp) -> Value {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let mut status = node["status"].as_object().cloned().unwrap_or_default();
    let pod_capacity = json!({
        "cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": settings.pods_per_node.to_string(),
    });
    let defaults = [
        ("capacity", pod_capacity.clone()),
        ("allocatable", pod_capacity),
        (
            "addresses",
            json!([
                {"type": "InternalIP", "address": address(name)},
                {"type": "Hostname", "address": name},
            ]),
        ),
        (
            "nodeInfo",
            json!({
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "simulated",
                "osImage": "Konverge simulator", "containerRuntimeVersion": "konverge-sim://1",
                "kubeletVersion": format!("v{KUBERNETES_VERSION}-konverge-simulator"), "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            }),
        ),
        ("daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}})),
    ];
    for (field, value) in defaults {
        let empty = status.get(field).is_none_or(is_blank);
        if empty {
            status.insert(field.into(), value);
        }
    }
    let before = status.remove("conditions").unwrap_or_default();
    status.insert("conditions".into(), conditions(&before, is_lost(node), now));
    Value::Object(status)
}

/// When a node is reconciled again: at its next heartbeat.
pub(super) fn requeue_after(settings: &SimulationSettings) -> Duration {
    settings.heartbeat
}

/// The Lease of a node.
pub(super) fn lease(name: &str, node_uid: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name, "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed(now)},
    })
}

/// The `renewTime` of a Lease.
pub(super) fn renewed(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(is_blank),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_u64() == Some(0),
        other => other.is_null(),
    }
}

fn conditions(before: &Value, lost: bool, now: Timestamp) -> Value {
    let fine = |type_: &'static str, reason, message| (type_, "False", reason, message);
    let silent = |type_: &'static str| (type_, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
    let wanted = match lost {
        true => ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(silent),
        false => [
            fine("MemoryPressure", "KubeletHasSufficientMemory", "nothing runs here"),
            fine("DiskPressure", "KubeletHasNoDiskPressure", "nothing runs here"),
            fine("PIDPressure", "KubeletHasSufficientPID", "nothing runs here"),
            ("Ready", "True", "KubeletReady", "the simulator is posting ready status"),
        ],
    };
    let mut list: Vec<Value> = before.as_array().cloned().unwrap_or_default();
    for (type_, status, reason, message) in wanted {
        let at = list.iter().position(|condition| condition["type"] == type_);
        let there = at.map(|at| &list[at]);
        let same = there.is_some_and(|there| there["status"] == status);
        // The heartbeat is in the Lease. The status is written only when it changes, so an idle cluster writes nothing else.
        if same {
            continue;
        }
        let mut condition = Map::new();
        // A lost node keeps the time of its last heartbeat.
        let heard = match lost {
            true => there.map_or_else(|| stamp(now).into(), |there| there["lastHeartbeatTime"].clone()),
            false => stamp(now).into(),
        };
        condition.insert("type".into(), type_.into());
        condition.insert("status".into(), status.into());
        condition.insert("lastHeartbeatTime".into(), heard);
        condition.insert("lastTransitionTime".into(), stamp(now).into());
        condition.insert("reason".into(), reason.into());
        condition.insert("message".into(), message.into());
        match at {
            Some(at) => list[at] = Value::Object(condition),
            None => list.push(Value::Object(condition)),
        }
    }
    list.into()
}

/// The address of a node: from the number in its name, else from a hash of the name.
fn address(name: &str) -> String {
    let number = name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok());
    let number =
        number.unwrap_or_else(|| name.bytes().fold(7, |sum: u32, byte| sum.wrapping_mul(31) + u32::from(byte)));
    format!("10.240.{}.{}", number >> 8 & 255, number & 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_ready_until_they_are_lost() {
        let settings = SimulationSettings::default();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let born = at("2026-01-01T00:00:00Z");
        let mut node = new("konverge-node-1", &settings, born);
        assert_eq!(node["status"]["addresses"][0]["address"], "10.240.0.1");
        let ready = |node: &Value| {
            let list = node["status"]["conditions"].as_array().unwrap();
            list.iter().find(|condition| condition["type"] == "Ready").unwrap().clone()
        };
        assert_eq!(ready(&node)["status"], "True");

        // However much later, a node that is as it was needs no write.
        assert_eq!(status(&node, &settings, at("2026-01-02T00:00:00Z")), node["status"]);
        assert_eq!(taints(&node, born), None);
        // A server may taint a new node.
        node["spec"]["taints"] =
            json!([{"key": NOT_READY, "effect": "NoSchedule"}, {"key": "mine", "effect": "NoSchedule"}]);
        let own = json!([{"key": "mine", "effect": "NoSchedule"}]);
        assert_eq!(taints(&node, born), Some(own));
        node["spec"]["taints"] = json!([]);

        node["metadata"]["annotations"] = json!({"simulate.konverge.dev/lost": "true"});
        let lost = at("2026-01-01T00:06:00Z");
        node["spec"]["taints"] = taints(&node, lost).expect("a lost node is tainted");
        node["status"] = status(&node, &settings, lost);
        assert_eq!(
            (&ready(&node)["status"], &ready(&node)["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown"))
        );
        assert_eq!(taints(&node, lost), None);
        assert_eq!(status(&node, &settings, at("2026-01-01T01:00:00Z")), node["status"]);

        node["metadata"]["annotations"] = json!({});
        assert_eq!(taints(&node, lost), Some(json!([])));
        node["status"] = status(&node, &settings, lost);
        assert_eq!(ready(&node)["status"], "True");
    }
}
