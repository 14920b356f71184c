//! Who may do what. In: a description. Out: the operator's ServiceAccount with the rules that it declares, those of its leader election and of
//! its certificates, and roles for the people who use its kinds.

use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE};
use serde_json::{Value, json};

use super::{Manifest, Part, manifest, object};
use crate::description::{DefinedKind, Description};

const API: &str = "rbac.authorization.k8s.io";

/// What the names of the operator's own roles end with. Its bare name is that of the roles which `konverge dev` makes.
const MANAGER_ROLE: &str = "manager";

/// The roles of people: the end of the name, the verbs, and the role of every cluster that has these rights, too.
const PEOPLE: [(&str, &[&str], &str); 3] = [
    ("admin", &["*"], "admin"),
    ("editor", &["create", "delete", "get", "list", "patch", "update", "watch"], "edit"),
    ("viewer", &["get", "list", "watch"], "view"),
];

pub(super) fn manifests(operator: &Description) -> Vec<Manifest> {
    let account = object("v1", "ServiceAccount", &operator.name, operator);
    let mut manifests = vec![manifest(Part::Rbac, "service_account.yaml", account)];
    let manager = format!("{}-{MANAGER_ROLE}", operator.name);
    manifests.extend(role(operator, &manager, None, &operator.rules.cluster, "role"));
    for (namespace, rules) in &operator.rules.namespaces {
        manifests.extend(role(operator, &manager, Some(namespace), rules, "role"));
    }
    let (namespace, rules) = &operator.leader_election;
    let name = format!("{}-leader-election", operator.name);
    manifests.extend(rarely_used(role(operator, &name, Some(namespace), rules, "leader_election_role")));
    if let Some(webhooks) = &operator.webhooks {
        let name = format!("{}-webhook-certificates", operator.name);
        let inside = role(operator, &name, Some(&operator.namespace), &webhooks.namespaced_rules, "webhook_role");
        manifests.extend(rarely_used(inside));
        manifests.extend(rarely_used(role(operator, &name, None, &webhooks.cluster_rules, "webhook_role")));
    }
    for kind in operator.kinds() {
        for (who, verbs, aggregated) in PEOPLE {
            let file = format!("{}_{who}_role.yaml", kind.short);
            let name = format!("{}-{}-{who}", operator.name, kind.short);
            manifests.push(manifest(Part::Rbac, &file, role_of_people(&name, &kind, verbs, aggregated)));
        }
    }
    manifests
}

/// A role of the operator in one of the namespaces that it watches, and its binding.
pub(crate) fn scoped_role(operator: &Description, namespace: &str, rules: &[Value]) -> Vec<Value> {
    let name = format!("{}-{MANAGER_ROLE}", operator.name);
    role(operator, &name, Some(namespace), rules, "role").into_iter().map(|manifest| manifest.object).collect()
}

/// A role with its binding to the operator's ServiceAccount; nothing if there are no rules. Without a namespace it is a ClusterRole.
fn role(operator: &Description, name: &str, namespace: Option<&str>, rules: &[Value], file: &str) -> Vec<Manifest> {
    if rules.is_empty() {
        return Vec::new();
    }
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let api = format!("{API}/v1");
    let role = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": api, "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": API, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": operator.name, "namespace": operator.namespace}],
    });
    vec![
        manifest(Part::Rbac, &format!("{file}.yaml"), role),
        manifest(Part::Rbac, &format!("{file}_binding.yaml"), binding),
    ]
}

/// Marks rights that a short run does not use, so that nobody is advised to take them away.
fn rarely_used(mut manifests: Vec<Manifest>) -> Vec<Manifest> {
    for manifest in manifests.iter_mut().filter(|manifest| manifest.object["rules"].is_array()) {
        manifest.object["metadata"]["annotations"][KEEP_RIGHTS] = KEEP_RIGHTS_VALUE.into();
    }
    manifests
}

/// A role for people. Rights for objects in namespaces are added to the roles `admin`, `edit` and `view` that every cluster has: who may change
/// Deployments in a namespace may change these objects, too, and nobody has to bind roles again for each kind. Rights for objects without a
/// namespace are for administrators to give.
fn role_of_people(name: &str, kind: &DefinedKind, verbs: &[&str], aggregated: &str) -> Value {
    let mut rules = vec![json!({"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs})];
    if kind.has_status {
        let status = format!("{}/status", kind.plural);
        rules.push(json!({"apiGroups": [kind.group], "resources": [status], "verbs": ["get"]}));
    }
    let mut role =
        json!({"apiVersion": format!("{API}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    if kind.is_namespaced {
        role["metadata"]["labels"][format!("{API}/aggregate-to-{aggregated}")] = "true".into();
    }
    role
}
