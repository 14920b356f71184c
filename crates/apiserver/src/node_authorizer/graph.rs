//! Which objects a node has to do with. In: pods that are bound to nodes, persistent volumes, volume attachments and resource
//! slices, each whenever it changes. Out: whether an object belongs to a pod on a node, without looking at other pods. Pure: never
//! reads the store.
//!
//! ```text
//! node ◀─ pod ◀─ secret, config map, service account, resource claim, claim ◀─ volume ◀─ secret
//! node ◀─ volume attachment, resource slice
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::pod_references;

/// A namespace and a name.
type Key = (Box<str>, Box<str>);

/// What pods refer to by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    ResourceClaim,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Pod,
    Referred(Kind),
    Volume,
    Attachment,
    Slice,
}

/// Everything that decisions are made by.
#[derive(Default)]
pub(super) struct Graph {
    /// The pods that are bound to a node.
    pods: HashMap<Key, Pod>,
    /// For each object that pods refer to, the nodes of these pods, and how many pods of each node there are.
    nodes: HashMap<(Kind, Key), BTreeMap<Box<str>, usize>>,
    /// The volumes that are bound to a claim.
    volumes: HashMap<Box<str>, Volume>,
    /// The volumes whose drivers need a secret.
    volumes_of_secrets: HashMap<Key, BTreeSet<Box<str>>>,
    /// The nodes of volume attachments and resource slices.
    attachments: HashMap<Box<str>, Box<str>>,
    slices: HashMap<Box<str>, Box<str>>,
}

struct Pod {
    node: Box<str>,
    uid: Box<str>,
    ephemeral_containers: usize,
    claim_statuses: Vec<(Box<str>, Option<Box<str>>)>,
    refers: BTreeSet<(Kind, Box<str>)>,
}

struct Volume {
    claim: Key,
    secrets: Vec<Key>,
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

impl Graph {
    /// Whether an object has to do with a node.
    pub(super) fn reaches(&self, node: &str, start: Start, namespace: &str, name: &str) -> bool {
        let of_cluster = |nodes: &HashMap<Box<str>, Box<str>>| {
            namespace.is_empty() && nodes.get(name).is_some_and(|known| **known == *node)
        };
        match start {
            Start::Pod => self.pods.get(&key(namespace, name)).is_some_and(|pod| *pod.node == *node),
            Start::Attachment => of_cluster(&self.attachments),
            Start::Slice => of_cluster(&self.slices),
            Start::Volume => namespace.is_empty() && self.has_volume(node, name),
            Start::Referred(kind) => {
                let key = key(namespace, name);
                let by_volume = |key: &Key| {
                    let volumes = self.volumes_of_secrets.get(key).into_iter().flatten();
                    volumes.into_iter().any(|volume| self.has_volume(node, volume))
                };
                // Most secrets are of no volume.
                self.refers(node, kind, key.clone()) || (kind == Kind::Secret && by_volume(&key))
            }
        }
    }

    /// Whether a pod on the node refers to an object.
    fn refers(&self, node: &str, kind: Kind, key: Key) -> bool {
        self.nodes.get(&(kind, key)).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// Whether a pod on the node refers to the claim of a volume.
    fn has_volume(&self, node: &str, volume: &str) -> bool {
        let claim = self.volumes.get(volume).map(|volume| volume.claim.clone());
        claim.is_some_and(|claim| self.refers(node, Kind::Claim, claim))
    }

    /// Takes a pod as it is now. One that is bound to no node does not matter.
    pub(super) fn set_pod(&mut self, namespace: &str, name: &str, pod: &Value) {
        let node = text(&pod["spec"]["nodeName"]);
        if node.is_empty() {
            return;
        }
        let uid = text(&pod["metadata"]["uid"]);
        let ephemeral_containers = items(&pod["spec"]["ephemeralContainers"]).count();
        let status =
            |status: &Value| (text(&status["name"]).into(), status["resourceClaimName"].as_str().map(Box::from));
        let claim_statuses: Vec<_> = items(&pod["status"]["resourceClaimStatuses"]).map(status).collect();
        // What else changes in a pod that is bound refers to no object, and most changes are of its status.
        if let Some(known) = self.pods.get(&key(namespace, name))
            && *known.node == *node
            && *known.uid == *uid
            && ephemeral_containers <= known.ephemeral_containers
            && claim_statuses == known.claim_statuses
        {
            return;
        }
        self.remove_pod(namespace, name);
        let mut refers: BTreeSet<(Kind, Box<str>)> = BTreeSet::new();
        // A kubelet makes mirror pods itself, and would give itself rights by what they refer to.
        if !pod_references::is_mirror(pod) {
            references(name, pod, |kind, referred| {
                refers.insert((kind, referred.into()));
            });
        }
        for (kind, referred) in &refers {
            let at = (*kind, (namespace.into(), referred.clone()));
            *self.nodes.entry(at).or_default().entry(node.into()).or_default() += 1;
        }
        let (node, uid) = (node.into(), uid.into());
        self.pods.insert(key(namespace, name), Pod { node, uid, ephemeral_containers, claim_statuses, refers });
    }

    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(pod) = self.pods.remove(&key(namespace, name)) else { return };
        for (kind, referred) in pod.refers {
            let at = (kind, (namespace.into(), referred));
            let Some(nodes) = self.nodes.get_mut(&at) else { continue };
            if let Some(pods) = nodes.get_mut(&pod.node) {
                *pods -= 1;
                if *pods == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&at);
            }
        }
    }

    /// Takes a persistent volume as it is now. One that is bound to no claim does not matter.
    pub(super) fn set_volume(&mut self, name: &str, volume: &Value) {
        self.remove_volume(name);
        let claim = &volume["spec"]["claimRef"];
        if !claim.is_object() {
            return;
        }
        let claim = key(text(&claim["namespace"]), text(&claim["name"]));
        let secrets = secrets_of_volume(&volume["spec"], &claim.0);
        for secret in &secrets {
            self.volumes_of_secrets.entry(secret.clone()).or_default().insert(name.into());
        }
        self.volumes.insert(name.into(), Volume { claim, secrets });
    }

    pub(super) fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_of_secrets.get_mut(&secret) {
                volumes.remove(name);
                if volumes.is_empty() {
                    self.volumes_of_secrets.remove(&secret);
                }
            }
        }
    }

    /// Takes a volume attachment or a resource slice as it is now, or that it is gone. One of no node does not matter.
    pub(super) fn set_attachment(&mut self, name: &str, attachment: Option<&Value>) {
        set_node(&mut self.attachments, name, attachment);
    }

    pub(super) fn set_slice(&mut self, name: &str, slice: Option<&Value>) {
        set_node(&mut self.slices, name, slice);
    }
}

fn set_node(nodes: &mut HashMap<Box<str>, Box<str>>, name: &str, object: Option<&Value>) {
    match object.map(|object| text(&object["spec"]["nodeName"])).filter(|node| !node.is_empty()) {
        Some(node) => drop(nodes.insert(name.into(), node.into())),
        None => drop(nodes.remove(name)),
    }
}

/// What a pod refers to.
fn references(pod_name: &str, pod: &Value, mut found: impl FnMut(Kind, &str)) {
    let spec = &pod["spec"];
    let account = text(&spec["serviceAccountName"]);
    if !account.is_empty() {
        found(Kind::ServiceAccount, account);
    }
    pod_references::secrets(pod).into_iter().for_each(|name| found(Kind::Secret, name));
    pod_references::config_maps(pod).into_iter().for_each(|name| found(Kind::ConfigMap, name));
    for volume in items(&spec["volumes"]) {
        if volume["persistentVolumeClaim"].is_object() {
            let claim = text(&volume["persistentVolumeClaim"]["claimName"]);
            if !claim.is_empty() {
                found(Kind::Claim, claim);
            }
        } else if volume["ephemeral"].is_object() {
            found(Kind::Claim, &format!("{pod_name}-{}", text(&volume["name"])));
        }
    }
    let statuses = &pod["status"]["resourceClaimStatuses"];
    for claim in items(&spec["resourceClaims"]) {
        let made = || items(statuses).find(|status| status["name"] == claim["name"]);
        let named = match (claim["resourceClaimName"].as_str(), claim["resourceClaimTemplateName"].as_str()) {
            (Some(name), _) => Some(name),
            (None, Some(_)) => made().and_then(|status| status["resourceClaimName"].as_str()),
            (None, None) => None,
        };
        named.into_iter().for_each(|name| found(Kind::ResourceClaim, name));
    }
    let extended = text(&pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
    if !extended.is_empty() {
        found(Kind::ResourceClaim, extended);
    }
}

/// The secrets that a kubelet needs to mount a volume.
fn secrets_of_volume(spec: &Value, claim_namespace: &str) -> Vec<Key> {
    let mut secrets = Vec::new();
    let mut add = |namespace: &str, name: &str| {
        if !name.is_empty() {
            secrets.push(key(namespace, name));
        }
    };
    // Volumes of some sources are older than the namespace in their reference, which then is that of the claim.
    let sources = [
        ("cephfs", true),
        ("cinder", false),
        ("flexVolume", true),
        ("rbd", true),
        ("scaleIO", true),
        ("iscsi", true),
        ("storageos", false),
    ];
    if spec["azureFile"].is_object() {
        let given = text(&spec["azureFile"]["secretNamespace"]);
        add(if given.is_empty() { claim_namespace } else { given }, text(&spec["azureFile"]["secretName"]));
    } else if let Some((source, defaults)) = sources.iter().find(|(source, _)| spec[*source].is_object()) {
        let reference = &spec[*source]["secretRef"];
        let given = text(&reference["namespace"]);
        add(if given.is_empty() && *defaults { claim_namespace } else { given }, text(&reference["name"]));
    } else {
        for reference in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
            let reference = &spec["csi"][reference];
            add(text(&reference["namespace"]), text(&reference["name"]));
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str, spec: Value) -> Value {
        let mut pod = json!({"metadata": {"uid": "u"}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        pod
    }

    #[test]
    fn objects_follow_the_pods_that_refer_to_them() {
        let mut graph = Graph::default();
        let check = |graph: &Graph, node: &str, start: Start, place: &str, expect: bool| {
            let (namespace, name) = place.split_once('/').unwrap_or(("", place));
            assert_eq!(graph.reaches(node, start, namespace, name), expect, "{node} {start:?} {place}");
        };
        let secret = Start::Referred(Kind::Secret);
        let claim = Start::Referred(Kind::Claim);
        let spec = json!({
            "serviceAccountName": "robot", "imagePullSecrets": [{"name": "pull"}, {"name": "pull"}],
            "volumes": [{"name": "v", "ephemeral": {}}, {"persistentVolumeClaim": {"claimName": "data"}}],
        });
        graph.set_pod("ns", "a", &pod("one", spec.clone()));
        graph.set_pod("ns", "b", &pod("one", spec.clone()));
        graph.set_pod("ns", "unbound", &pod("", spec.clone()));
        for (start, place, expect) in [
            (Start::Pod, "ns/a", true),
            (Start::Pod, "ns/unbound", false),
            (Start::Pod, "a", false),
            (secret, "ns/pull", true),
            (secret, "other/pull", false),
            (Start::Referred(Kind::ConfigMap), "ns/pull", false),
            (Start::Referred(Kind::ServiceAccount), "ns/robot", true),
            (claim, "ns/data", true),
            (claim, "ns/a-v", true),
            (claim, "ns/v", false),
        ] {
            check(&graph, "one", start, place, expect);
            check(&graph, "two", start, place, false);
        }
        // As long as one pod is there.
        graph.remove_pod("ns", "a");
        check(&graph, "one", secret, "ns/pull", true);
        check(&graph, "one", claim, "ns/a-v", false);
        graph.remove_pod("ns", "b");
        check(&graph, "one", secret, "ns/pull", false);
        assert!(graph.nodes.is_empty() && graph.pods.is_empty());

        // A volume counts before and after the pod that uses its claim.
        let reference = |name: &str, namespace: &str| json!({"name": name, "namespace": namespace});
        let volume = json!({"spec": {
            "claimRef": {"namespace": "ns", "name": "data"},
            "csi": {"nodeStageSecretRef": reference("stage", "storage"), "controllerPublishSecretRef": reference("no", "storage")},
        }});
        graph.set_volume("vol", &volume);
        check(&graph, "one", Start::Volume, "vol", false);
        graph.set_pod("ns", "a", &pod("one", spec));
        for (start, place, expect) in [
            (Start::Volume, "vol", true),
            (Start::Volume, "ns/vol", false),
            (secret, "storage/stage", true),
            (secret, "storage/no", false),
        ] {
            check(&graph, "one", start, place, expect);
        }
        graph.set_volume("vol", &json!({"spec": {}}));
        check(&graph, "one", secret, "storage/stage", false);
        assert!(graph.volumes.is_empty() && graph.volumes_of_secrets.is_empty());

        let of = |node: &str| json!({"spec": {"nodeName": node}});
        graph.set_attachment("at", Some(&of("one")));
        graph.set_slice("slice", Some(&of("one")));
        check(&graph, "one", Start::Attachment, "at", true);
        check(&graph, "one", Start::Slice, "slice", true);
        graph.set_attachment("at", Some(&of("two")));
        graph.set_slice("slice", None);
        check(&graph, "one", Start::Attachment, "at", false);
        check(&graph, "one", Start::Slice, "slice", false);
    }

    #[test]
    fn mirror_pods_give_no_rights() {
        let mut graph = Graph::default();
        let mut mirror = pod("one", json!({"imagePullSecrets": [{"name": "pull"}]}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": ""});
        graph.set_pod("ns", "a", &mirror);
        assert!(graph.reaches("one", Start::Pod, "ns", "a"));
        assert!(!graph.reaches("one", Start::Referred(Kind::Secret), "ns", "pull"));
    }
}
