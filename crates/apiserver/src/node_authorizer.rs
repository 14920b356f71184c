//! The authorization mode `Node`: what a kubelet may do. In: what is stored of pods, volumes, attachments and resource slices, and
//! requests of users that are nodes. Out: decisions with the reasons of Kubernetes. A node may read what the pods on it refer to,
//! and what every kubelet needs; what else it may write is for the admission plugin NodeRestriction. Never denies: who is no node,
//! and what a node is not allowed, is left to the next authorizer.
//!
//! ```text
//! store ─▶ follow ─▶ graph ─▶ decide
//! ```

mod follow;
mod graph;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::admission::AdmissionPlugins;
use crate::authorize::{Attributes, AuthorizationMode, Authorizer, Decision, ResourceAttributes};
use crate::rbac::{self, Rule};
use crate::user::UserInfo;

use follow::Follower;
use graph::{Graph, Kind, Start};

pub(crate) use follow::{load, run};

/// The group of all nodes.
const NODES: &str = "system:nodes";

/// What the names of nodes begin with.
const NODE_PREFIX: &str = "system:node:";

/// Where the leases of nodes are.
pub(crate) const LEASES: &str = "kube-node-lease";

/// What the server knows of nodes and of what belongs to them. A decision knows everything that was committed before it.
#[derive(Default)]
pub(crate) struct Nodes {
    graph: RwLock<Graph>,
    /// None before the store is open.
    follower: Mutex<Option<Follower>>,
}

/// The node that a user is: none if the user is no node. The name may be empty.
pub(crate) fn node_of(user: &UserInfo) -> Option<&str> {
    let name = user.name.strip_prefix(NODE_PREFIX)?;
    user.groups.iter().any(|group| group == NODES).then_some(name)
}

/// What is missing beside this mode: without the admission plugin a node may bind a pod to itself that refers to any Secret, and
/// then read that Secret. kube-apiserver says nothing; kubeadm always sets both.
pub(crate) fn warning(modes: &[AuthorizationMode], plugins: &AdmissionPlugins) -> Option<&'static str> {
    let is_on = modes.iter().any(|mode| matches!(mode, AuthorizationMode::Node));
    (is_on && !plugins.is_enabled("NodeRestriction")).then_some(
        "the authorization mode Node without the admission plugin NodeRestriction lets every kubelet read every Secret: it may \
         create pods for itself that refer to them; add NodeRestriction to --enable-admission-plugins",
    )
}

/// Allows nodes what they need.
pub(crate) struct NodeAuthorizer {
    nodes: Arc<Nodes>,
    /// What every node may do, as far as that does not depend on the node.
    rules: Vec<Rule>,
}

impl NodeAuthorizer {
    pub(crate) fn new(nodes: &Arc<Nodes>) -> Self {
        Self { nodes: nodes.clone(), rules: rbac::initial_rules("system:node") }
    }
}

impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, attributes: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let Some(node) = node_of(attributes.user) else { return Box::pin(ready(no(""))) };
        self.nodes.catch_up();
        Box::pin(ready(decide(&self.nodes.graph.read(), &self.rules, node, &attributes)))
    }
}

fn no(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion { reason: reason.into() }
}

fn yes() -> Decision {
    Decision::Allow { reason: String::new() }
}

/// A decision about a request of a node.
fn decide(graph: &Graph, rules: &[Rule], node: &str, attributes: &Attributes<'_>) -> Decision {
    if node.is_empty() {
        return no(format!("unknown node for user {:?}", attributes.user.name));
    }
    let verb = attributes.verb;
    let by_rules = || if rules.iter().any(|rule| rule.allows(attributes)) { yes() } else { no("") };
    let Some(asked) = attributes.resource else { return by_rules() };
    let question = Question { graph, node, verb, asked };
    match (asked.group, asked.resource) {
        ("", "secrets") => question.read(Kind::Secret),
        ("", "configmaps") => question.read(Kind::ConfigMap),
        ("", "persistentvolumeclaims") if asked.subresource == "status" => match verb {
            "update" | "patch" => question.related(Start::Referred(Kind::Claim)),
            _ => no("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => question.get(Start::Referred(Kind::Claim)),
        ("", "persistentvolumes") => question.get(Start::Volume),
        ("resource.k8s.io", "resourceclaims") => question.get(Start::Referred(Kind::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments") => question.get(Start::Attachment),
        ("", "serviceaccounts") => question.service_account(),
        ("coordination.k8s.io", "leases") => question.lease(),
        ("storage.k8s.io", "csinodes") => question.csi_node(),
        ("resource.k8s.io", "resourceslices") => question.resource_slice(),
        ("", "nodes") => question.node(),
        ("", "pods") => question.pod(),
        // Their feature is off.
        ("certificates.k8s.io", "podcertificaterequests") => no(""),
        _ => by_rules(),
    }
}

/// What a node asks for.
struct Question<'a> {
    graph: &'a Graph,
    node: &'a str,
    verb: &'a str,
    asked: ResourceAttributes<'a>,
}

impl Question<'_> {
    /// Whether the object belongs to a pod on the node, or to the node itself.
    fn related(&self, start: Start) -> Decision {
        if self.asked.name.is_empty() {
            return no("No Object name found");
        }
        match self.graph.reaches(self.node, start, self.asked.namespace, self.asked.name) {
            true => yes(),
            false => no(format!("no relationship found between node '{}' and this object", self.node)),
        }
    }

    fn get(&self, start: Start) -> Decision {
        if self.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !self.asked.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(start)
    }

    fn read(&self, kind: Kind) -> Decision {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !self.asked.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if self.asked.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(Start::Referred(kind))
    }

    fn service_account(&self) -> Decision {
        let ResourceAttributes { subresource, name, .. } = self.asked;
        if self.verb == "get" && subresource.is_empty() {
            return self.read(Kind::ServiceAccount);
        }
        if self.verb != "create" || name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(Start::Referred(Kind::ServiceAccount))
    }

    /// Whether a verb is one for an object of one's own. The name of a new object is checked by NodeRestriction.
    fn own(&self) -> Option<bool> {
        match self.verb {
            "create" => Some(true),
            "get" | "update" | "patch" | "delete" => Some(self.asked.name == self.node),
            _ => None,
        }
    }

    fn lease(&self) -> Decision {
        let Some(own) = self.own() else {
            return no("can only get, create, update, patch, or delete a node lease");
        };
        if self.asked.namespace != LEASES {
            return no(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        if own { yes() } else { no("can only access node lease with the same name as the requesting node") }
    }

    fn csi_node(&self) -> Decision {
        let Some(own) = self.own() else { return no("can only get, create, update, patch, or delete a CSINode") };
        if !self.asked.subresource.is_empty() {
            return no("cannot authorize CSINode subresources");
        }
        if own { yes() } else { no("can only access CSINode with the same name as the requesting node") }
    }

    /// Whether the objects that are asked for are only those of the node.
    fn selects_own(&self) -> bool {
        self.asked.fields.is_some_and(|fields| fields.requires("spec.nodeName", self.node))
    }

    fn resource_slice(&self) -> Decision {
        if !self.asked.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => yes(),
            "get" | "update" | "patch" | "delete" => self.related(Start::Slice),
            "watch" | "list" | "deletecollection" if self.selects_own() => yes(),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                     delete, deletecollection",
            ),
        }
    }

    fn node(&self) -> Decision {
        let (node, name) = (self.node, self.asked.name);
        match (self.asked.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => yes(),
            // By its name, so that a kubelet can look whether its node is there.
            ("", "get" | "list" | "watch") if name == node => yes(),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                no(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                no(format!("node '{node}' cannot read '{name}', only its own Node object"))
            }
            _ => no(""),
        }
    }

    fn pod(&self) -> Decision {
        match (self.asked.subresource, self.verb) {
            ("", "get") => self.get(Start::Pod),
            ("", "list" | "watch") if self.selects_own() => yes(),
            ("", "list" | "watch") if !self.asked.name.is_empty() => self.related(Start::Pod),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => yes(),
            _ => no(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_without_its_plugin_is_warned_of() {
        let node = || [AuthorizationMode::Node, AuthorizationMode::Rbac];
        for (modes, enable, expect) in [
            (&node()[..], &[][..], true),
            (&node()[..], &["NodeRestriction"], false),
            (&[AuthorizationMode::Rbac], &[], false),
        ] {
            let plugins = AdmissionPlugins::default().with(enable, &[]).expect("known plugins");
            assert_eq!(warning(modes, &plugins).is_some(), expect, "{modes:?} {enable:?}");
        }
    }
}
