//! NodeRestriction: what nodes may write. The authorization mode `Node` cannot look into objects; this plugin does. A node writes its
//! own node, lease and CSI node, the status of pods on it, mirror pods that refer to nothing, and asks for tokens of these pods.
//! Requests of others pass. The texts are those of Kubernetes.

mod audience;
mod node;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use konverge_core::Status;
use konverge_schema::go_quote;

use crate::certificate::CertificateRequest;
use crate::meta;
use crate::node_authorizer::{LEASES, node_of};
use crate::pod_references::{self, MIRROR};
use crate::subresource::Subresource;

use super::lookup::{self, Kind};
use super::{Admission, Attributes, Operation, Plugin, Verdict};

const PODS: Kind = ("", "pods");
const NODES: Kind = ("", "nodes");

/// The signers of certificates of kubelets.
const KUBELET_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

pub(super) struct NodeRestriction;

impl Plugin for NodeRestriction {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && node_of(&attributes.context.user).is_some()
    }

    fn admit<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value, _: &'a mut Admission) -> Verdict<'a> {
        Box::pin(check(attributes, object))
    }
}

async fn check(attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    let user = &attributes.context.user;
    let Some(node) = node_of(user).filter(|node| !node.is_empty()) else {
        let why = format!("could not determine node from user {}", go_quote(&user.name));
        return Err(attributes.forbidden(why));
    };
    let request = Request { attributes, node, object };
    match (&*attributes.resource.group, &*attributes.resource.plural, attributes.subresource) {
        ("", "pods", Subresource::Main) => request.pod(),
        ("", "pods", Subresource::Status) => request.pod_status(),
        ("", "pods", Subresource::Eviction) => request.eviction(),
        ("", "pods", other) => {
            let name = go_quote(other.name());
            request.refuse(format!("unexpected pod subresource {name}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => request.node(),
        ("", "persistentvolumeclaims", Subresource::Status) => request.claim_status(),
        ("", "persistentvolumeclaims", _) => request.refuse("may only update PVC status"),
        ("", "serviceaccounts", Subresource::Token) if attributes.operation == Operation::Create => {
            request.token().await
        }
        ("coordination.k8s.io", "leases", _) => request.lease(),
        ("storage.k8s.io", "csinodes", _) => {
            request.named_like_node("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => request.resource_slice(),
        ("certificates.k8s.io", "certificatesigningrequests", _) => request.certificate(),
        _ => Ok(()),
    }
}

/// What a node asks for.
#[derive(Clone, Copy)]
struct Request<'a> {
    attributes: &'a Attributes<'a>,
    node: &'a str,
    /// The new object; null for a deletion.
    object: &'a Value,
}

impl Request<'_> {
    fn refuse(&self, why: impl AsRef<str>) -> Result<(), Status> {
        Err(self.attributes.forbidden(why))
    }

    fn unless(&self, allowed: bool, why: impl FnOnce() -> String) -> Result<(), Status> {
        if allowed { Ok(()) } else { self.refuse(why()) }
    }

    fn quoted(&self) -> String {
        go_quote(self.node)
    }

    /// The refusal of an operation that the subresource does not have for nodes.
    fn unexpected(&self) -> Result<(), Status> {
        self.refuse(format!("unexpected operation {}", go_quote(self.attributes.operation.name())))
    }

    /// An object that must be there.
    fn find(&self, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Value, Status> {
        let found = lookup::get::<Value>(self.attributes.server, kind, namespace, name)?;
        found.map(|(_, object)| object).ok_or_else(|| Status::not_found(kind.0, kind.1, name))
    }

    /// Whether the pod of this name is bound to the node.
    fn has_pod(&self, pod: &Value) -> bool {
        pod["spec"]["nodeName"] == self.node
    }

    fn pod(&self) -> Result<(), Status> {
        let node = self.quoted();
        match self.attributes.operation {
            Operation::Create => self.mirror_pod(),
            Operation::Delete => self.unless(self.has_pod(self.old()), || {
                format!("node {node} can only delete pods with spec.nodeName set to itself")
            }),
            other => self.refuse(format!(
                "unexpected operation {}, node {node} can only create and delete mirror pods",
                go_quote(other.name())
            )),
        }
    }

    fn old(&self) -> &Value {
        self.attributes.old.unwrap_or(&Value::Null)
    }

    fn mirror_pod(&self) -> Result<(), Status> {
        let (pod, node) = (self.object, self.quoted());
        self.unless(pod_references::is_mirror(pod), || {
            format!("pod does not have {} annotation, node {node} can only create mirror pods", go_quote(MIRROR))
        })?;
        self.unless(self.has_pod(pod), || {
            format!("node {node} can only create pods with spec.nodeName set to itself")
        })?;
        let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let owner = match owners {
            [] => {
                return self.refuse(format!("node {node} can only create pods with an owner reference set to itself"));
            }
            [owner] => owner,
            _ => {
                let why = format!("node {node} can only create pods with a single owner reference set to itself");
                return self.refuse(why);
            }
        };
        self.unless(owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == self.node, || {
            format!("node {node} can only create pods with an owner reference set to itself")
        })?;
        self.unless(owner["controller"] == true, || {
            format!("node {node} can only create pods with a controller owner reference set to itself")
        })?;
        self.unless(owner["blockOwnerDeletion"] != true, || {
            format!("node {node} must not set blockOwnerDeletion on an owner reference")
        })?;
        let stored = self.find(NODES, None, self.node)?;
        let (given, uid) = (owner["uid"].as_str().unwrap_or_default(), meta::text(&stored, "uid"));
        self.unless(given == uid, || format!("node {} UID mismatch: expected {given} got {uid}", self.node))?;
        match pod_references::first_reference(pod) {
            Ok(None) => Ok(()),
            Ok(Some(kind)) => self.refuse(format!("node {node} can not create pods that reference {kind}")),
            Err(why) => self.refuse(format!("error checking mirror pod for API references: {why}")),
        }
    }

    fn pod_status(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Update {
            return self.unexpected();
        }
        let (old, new, node) = (self.old(), self.object, self.quoted());
        self.unless(self.has_pod(old), || {
            format!("node {node} can only update pod status for pods with spec.nodeName set to itself")
        })?;
        let labels = |pod: &Value| pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        self.unless(labels(old) == labels(new), || format!("node {node} cannot update labels through pod status"))?;
        let claims = |pod: &Value| normalized(&pod["status"]["resourceClaimStatuses"]);
        self.unless(claims(old) == claims(new), || format!("node {node} cannot update resource claim statues"))?;
        let extended = |pod: &Value| normalized(&pod["status"]["extendedResourceClaimStatus"]);
        self.unless(extended(old) == extended(new), || {
            format!("node {node} cannot update extended resource claim status")
        })
    }

    fn eviction(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Create {
            return self.refuse(format!("unexpected operation {}", self.attributes.operation.name()));
        }
        let pod = self.find(PODS, self.attributes.namespace, self.attributes.name)?;
        self.unless(self.has_pod(&pod), || {
            format!("node {} can only evict pods with spec.nodeName set to itself", self.node)
        })
    }

    fn claim_status(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Update {
            return self.unexpected();
        }
        const OWN: [&str; 4] = ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"];
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            remove(&mut claim["metadata"], &["resourceVersion", "managedFields"]);
            remove(&mut claim["status"], &OWN);
            normalized(&claim)
        };
        let (old, new) = (rest(self.old()), rest(self.object));
        self.unless(old == new, || {
            format!(
                "node {} is not allowed to update fields other than status.quantity and status.conditions: {}",
                self.quoted(),
                changed(&old, &new).join(", ")
            )
        })
    }

    fn lease(&self) -> Result<(), Status> {
        self.unless(self.attributes.namespace == Some(LEASES), || {
            format!("can only access leases in the {} system namespace", go_quote(LEASES))
        })?;
        self.named_like_node("can only access node lease with the same name as the requesting node")
    }

    fn named_like_node(&self, why: &str) -> Result<(), Status> {
        let name = match self.attributes.operation {
            // In a deletion of many, each object is looked at.
            Operation::Delete => meta::text(self.old(), "name"),
            _ => self.attributes.name,
        };
        self.unless(name == self.node, || why.to_owned())
    }

    fn resource_slice(&self) -> Result<(), Status> {
        let (slice, verb) = match self.attributes.operation {
            Operation::Create => (self.object, "create"),
            Operation::Delete => (self.old(), "delete"),
            _ => return Ok(()),
        };
        self.unless(slice["spec"]["nodeName"] == self.node, || {
            format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")
        })
    }

    fn certificate(&self) -> Result<(), Status> {
        let spec = &self.object["spec"];
        let signer = spec["signerName"].as_str().unwrap_or_default();
        if self.attributes.operation != Operation::Create || !KUBELET_SIGNERS.contains(&signer) {
            return Ok(());
        }
        let request = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
        let request = CertificateRequest::of_pem(&request)
            .map_err(|why| self.attributes.forbidden(format!("unable to parse csr: {why}")))?;
        let name = format!("system:node:{}", self.node);
        self.unless(request.subject().common_name() == name, || format!("can only create a node CSR with CN={name}"))
    }
}

fn remove(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

/// A value without what is empty: Go does not tell it from what is not there.
fn normalized(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(name, value)| (name.clone(), normalized(value)));
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(normalized).collect(),
        other => other.clone(),
    }
}

/// The fields, two levels deep, in which two objects differ.
fn changed(old: &Value, new: &Value) -> Vec<String> {
    let fields = |object: &Value, other: &Value| {
        let both = [object, other].into_iter().filter_map(Value::as_object);
        let mut names: Vec<String> = both.flat_map(|fields| fields.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names.retain(|name| object[name.as_str()] != other[name.as_str()]);
        names
    };
    let inside = |name: &String| {
        let (old, new) = (&old[name.as_str()], &new[name.as_str()]);
        let inner = fields(old, new);
        match inner.is_empty() {
            true => vec![name.clone()],
            false => inner.into_iter().map(|inner| format!("{name}.{inner}")).collect(),
        }
    };
    fields(old, new).iter().flat_map(inside).collect()
}
