//! What is known of an operator that is to be deployed. In: what the operator prints about itself (`--print-config`, `--print-crds`,
//! `--print-rbac`, `--print-webhooks`), and its package. Out: one description, from which manifests and charts are made by pure functions.
//! `ask` runs the operator.

mod ask;
mod project;
mod raft;

use konverge::{BindAddress, Settings};
use serde_json::Value;

pub(crate) use ask::AskError;
pub(crate) use project::{DeployTarget, ProjectArgs, ProjectError, here};
pub(crate) use raft::RaftPods;

/// An operator, as manifests are made of it.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    /// The name of the operator and of its objects.
    pub name: String,
    /// The namespace that it runs in.
    pub namespace: String,
    /// The image of its Pods, with a tag or a digest.
    pub image: String,
    /// The version of its package.
    pub version: String,
    /// What the package says it is.
    pub summary: String,
    pub settings: Settings,
    /// Its CRDs, by name.
    pub definitions: Vec<Value>,
    /// The rules that it needs with its own settings.
    pub rules: OwnRules,
    /// The rules for one watched namespace; none if the code of the operator decides which namespaces it watches.
    pub scoped: Option<ScopedRules>,
    /// The namespace of the Lease, and the rules for it.
    pub leader_election: (String, Vec<Value>),
    /// What its webhooks and conversions need; none if it has neither.
    pub webhooks: Option<Webhooks>,
    /// What its Pods need if its leader is elected by Raft; they are those of a StatefulSet then.
    pub raft: Option<RaftPods>,
}

/// Rules as the operator declares them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnRules {
    pub cluster: Vec<Value>,
    /// By namespace, for an operator that watches some namespaces only.
    pub namespaces: Vec<(String, Vec<Value>)>,
}

/// Rules of an operator that watches some namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScopedRules {
    /// For kinds without a namespace.
    pub cluster: Vec<Value>,
    /// For each namespace.
    pub namespaced: Vec<Value>,
}

/// What API servers and the operator need to know of its webhooks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Webhooks {
    /// The webhook configurations.
    pub configurations: Vec<Value>,
    /// The Service; none if the operator's code gives a URL instead.
    pub service: Option<String>,
    /// For the Secret with the certificates.
    pub namespaced_rules: Vec<Value>,
    /// For the configurations and CRDs that have the CA.
    pub cluster_rules: Vec<Value>,
}

/// What an operator printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed {
    pub definitions: Vec<Value>,
    pub rbac: Vec<Value>,
    /// With a flag that names one namespace, which is [`PROBED`].
    pub scoped_rbac: Vec<Value>,
    pub webhooks: Vec<Value>,
    /// What runs it if its leader is elected by Raft; empty otherwise.
    pub stateful: Vec<Value>,
}

/// A namespace that nobody has: whether the operator heeds the flag that restricts it to some namespaces.
pub(crate) const PROBED: &str = "konverge-probes-the-watched-namespaces";

/// The package that an operator is built from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub version: String,
    pub summary: String,
}

impl Description {
    /// Brings together what an operator printed.
    pub(crate) fn new(package: Package, target: DeployTarget, mut settings: Settings, mut printed: Printed) -> Self {
        let raft = RaftPods::of(&printed.stateful);
        if let Some(raft) = &raft {
            raft.adjust(&mut settings);
        }
        let name = object_name(&settings.name);
        printed.definitions.sort_by_key(|definition| text(&definition["metadata"]["name"]));
        let (cluster, namespaces) = roles(&printed.rbac, &settings.name);
        let scoped = match roles(&printed.scoped_rbac, &settings.name) {
            (cluster, namespaces) if namespaces.iter().any(|(namespace, _)| namespace == PROBED) => {
                Some(ScopedRules { cluster, namespaced: namespaces.into_iter().flat_map(|(_, rules)| rules).collect() })
            }
            _ => None,
        };
        let is_election = |manifest: &&Value| {
            manifest["kind"] == "Role" && text(&manifest["metadata"]["name"]).ends_with("-leader-election")
        };
        // Members of Raft have no Lease.
        let election = printed.rbac.iter().filter(|_| raft.is_none()).find(is_election);
        let leader_election = election.map_or_else(
            || (target.namespace.clone(), Vec::new()),
            |role| (text(&role["metadata"]["namespace"]), rules_of(role)),
        );
        let DeployTarget { namespace, image, .. } = target;
        Self {
            name,
            namespace,
            image,
            version: package.version,
            summary: package.summary,
            definitions: printed.definitions,
            rules: OwnRules { cluster, namespaces },
            scoped,
            leader_election,
            webhooks: webhooks(&printed.webhooks),
            raft,
            settings,
        }
    }

    /// The port of the metrics, if they can be reached from other Pods.
    pub(crate) fn metrics_port(&self) -> Option<u16> {
        self.settings.metrics.listen().and_then(reachable)
    }

    /// The port of the probes, if the kubelet can reach it.
    pub(crate) fn health_port(&self) -> Option<u16> {
        self.settings.health.listen().and_then(reachable)
    }

    /// The port of the webhooks, if there are some.
    pub(crate) fn webhook_port(&self) -> Option<u16> {
        self.webhooks.as_ref()?;
        self.settings.webhook.listen().and_then(reachable)
    }

    /// The kinds that it defines.
    pub(crate) fn kinds(&self) -> Vec<DefinedKind> {
        let mut kinds: Vec<DefinedKind> = self.definitions.iter().map(DefinedKind::of).collect();
        // Two kinds of one name are told apart by their groups.
        let clash: Vec<bool> =
            kinds.iter().map(|kind| kinds.iter().filter(|other| other.short == kind.short).count() > 1).collect();
        for (kind, clash) in kinds.iter_mut().zip(clash) {
            if clash {
                kind.short = format!("{}.{}", kind.short, kind.group);
            }
        }
        kinds
    }
}

/// A kind that the operator defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DefinedKind {
    pub group: String,
    pub plural: String,
    /// What its roles and files are called after.
    pub short: String,
    pub is_namespaced: bool,
    pub has_status: bool,
}

impl DefinedKind {
    fn of(definition: &Value) -> Self {
        let spec = &definition["spec"];
        let plural = text(&spec["names"]["plural"]);
        let short = match text(&spec["names"]["singular"]) {
            none if none.is_empty() => plural.clone(),
            singular => singular,
        };
        let versions = spec["versions"].as_array().into_iter().flatten();
        let has_status = versions.clone().any(|version| version["subresources"]["status"].is_object());
        Self { group: text(&spec["group"]), plural, short, is_namespaced: spec["scope"] == "Namespaced", has_status }
    }
}

/// The main rules among what was printed: of the cluster, and of namespaces.
fn roles(manifests: &[Value], name: &str) -> (Vec<Value>, Vec<(String, Vec<Value>)>) {
    let (mut cluster, mut namespaces) = (Vec::new(), Vec::new());
    for manifest in manifests.iter().filter(|manifest| manifest["metadata"]["name"] == name) {
        match manifest["kind"].as_str() {
            Some("ClusterRole") => cluster.extend(rules_of(manifest)),
            Some("Role") => namespaces.push((text(&manifest["metadata"]["namespace"]), rules_of(manifest))),
            _ => {}
        }
    }
    (cluster, namespaces)
}

fn webhooks(manifests: &[Value]) -> Option<Webhooks> {
    if manifests.is_empty() {
        return None;
    }
    let mut webhooks = Webhooks::default();
    for manifest in manifests {
        match manifest["kind"].as_str().unwrap_or_default() {
            "Service" => webhooks.service = Some(text(&manifest["metadata"]["name"])),
            "Role" => webhooks.namespaced_rules.extend(rules_of(manifest)),
            "ClusterRole" => webhooks.cluster_rules.extend(rules_of(manifest)),
            kind if kind.ends_with("WebhookConfiguration") => webhooks.configurations.push(manifest.clone()),
            _ => {}
        }
    }
    Some(webhooks)
}

fn rules_of(role: &Value) -> Vec<Value> {
    role["rules"].as_array().cloned().unwrap_or_default()
}

fn reachable(address: BindAddress) -> Option<u16> {
    match address {
        BindAddress::All(port) if port > 0 => Some(port),
        BindAddress::At(address) if !address.ip().is_loopback() && address.port() > 0 => Some(address.port()),
        _ => None,
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A name as objects may have it: `My_Operator` is `my-operator`.
pub(crate) fn object_name(name: &str) -> String {
    let plain = |character: char| match character.to_ascii_lowercase() {
        character @ ('a'..='z' | '0'..='9') => character,
        _ => '-',
    };
    let name: String = name.chars().map(plain).take(40).collect();
    match name.trim_matches('-') {
        "" => "operator".to_owned(),
        name if name.starts_with(|first: char| first.is_ascii_digit()) => format!("operator-{name}"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A description as an operator with everything gives it.
    pub(crate) fn example() -> Description {
        described(Vec::new())
    }

    /// The same, and its leader is elected by Raft.
    pub(crate) fn raft_example() -> Description {
        described(super::raft::tests::printed())
    }

    fn described(stateful: Vec<Value>) -> Description {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "shops.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
                "conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": {"service": {"namespace": "shop-system", "name": "shop-webhook", "path": "/convert", "port": 443}},
                    "conversionReviewVersions": ["v1"],
                }},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "description": "A shop.\nIt has {{ braces }}.", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9.0}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }}},
                }],
            },
        });
        let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]}]);
        let role = |kind: &str, name: &str, namespace: &str| json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": rules});
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "shop"},
            "webhooks": [{
                "name": "validate.shop.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"namespace": "shop-system", "name": "shop-webhook", "path": "/validate", "port": 443}},
                "namespaceSelector": {"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["shop-system"]},
                ]},
                "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["shops"]}],
            }],
        });
        let printed = Printed {
            definitions: vec![definition],
            rbac: vec![role("ClusterRole", "shop", ""), role("Role", "shop-leader-election", "shop-system")],
            scoped_rbac: vec![role("Role", "shop", PROBED)],
            webhooks: vec![
                webhook,
                json!({"kind": "Service", "metadata": {"name": "shop-webhook"}}),
                role("Role", "shop-webhook", "shop-system"),
                role("ClusterRole", "shop-webhook", ""),
            ],
            stateful,
        };
        let target = DeployTarget {
            name: "shop".into(),
            namespace: "shop-system".into(),
            image: "example.com/shop:1.2.3".into(),
        };
        let settings = Settings { name: "shop".into(), ..Settings::default() };
        Description::new(Package { version: "1.2.3".into(), summary: "Shops".into() }, target, settings, printed)
    }

    #[test]
    fn what_is_printed_is_understood() {
        let shop = example();
        assert_eq!(shop.rules.cluster.len(), 1);
        assert_eq!(shop.scoped.as_ref().map(|scoped| (scoped.cluster.len(), scoped.namespaced.len())), Some((0, 1)));
        assert_eq!(shop.leader_election.0, "shop-system");
        let webhooks = shop.webhooks.clone().expect("it has some");
        assert_eq!((webhooks.configurations.len(), webhooks.service.as_deref()), (1, Some("shop-webhook")));
        assert_eq!(
            (shop.metrics_port(), shop.health_port(), shop.webhook_port()),
            (Some(8080), Some(8081), Some(9443))
        );
        let raft = raft_example();
        // Raft has the port of the metrics, and there is no Lease.
        assert_eq!((raft.metrics_port(), raft.health_port()), (Some(8081), Some(8081)));
        assert!(raft.raft.is_some() && raft.leader_election.1.is_empty());
        let kinds = shop.kinds();
        assert_eq!((kinds[0].short.as_str(), kinds[0].is_namespaced, kinds[0].has_status), ("shop", true, true));
    }

    #[test]
    fn names_of_objects() {
        for (name, expect) in [
            ("shop", "shop"),
            ("My_Operator", "my-operator"),
            ("-x-", "x"),
            ("", "operator"),
            ("2fast", "operator-2fast"),
        ] {
            assert_eq!(object_name(name), expect);
        }
    }
}
