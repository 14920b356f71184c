//! Resource quotas: what an object uses of them, and which of them apply to it. In: a ResourceQuota and objects. Out: amounts
//! by the names that quotas limit. The API server charges by these rules, and the controller recalculates by the same ones.

mod pod;
mod scope;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::nulls::from_stored_value;
use crate::quantity::{Quantity, ResourceList, resource_list};
use scope::Scope;

pub use pod::{pod_limits, pod_requests};

/// What comes between a storage class and what is limited of it.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Resources that are never stored, and events, which no quota counts.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("events.k8s.io", "events"),
];

/// Kinds that quotas also count under a plain name.
const PLAIN_COUNTS: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// A kind of object, as quotas see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaKind {
    /// `count/deployments.apps`
    count: String,
    rule: Rule,
}

/// What quotas limit besides the number of all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Pod,
    Service,
    Claim,
    /// Only the number, also under this name.
    Count(Option<&'static str>),
}

impl QuotaKind {
    /// How quotas see a resource; `None` for those that no quota counts.
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        if IGNORED.contains(&(group, plural)) {
            return None;
        }
        let count = if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
        let rule = match (group, plural) {
            ("", "pods") => Rule::Pod,
            ("", "services") => Rule::Service,
            ("", "persistentvolumeclaims") => Rule::Claim,
            ("", plural) => Rule::Count(PLAIN_COUNTS.into_iter().find(|name| *name == plural)),
            _ => Rule::Count(None),
        };
        Some(Self { count, rule })
    }

    /// Whether only the number of objects counts, whatever is in them.
    pub fn is_only_counted(&self) -> bool {
        matches!(self.rule, Rule::Count(_))
    }

    /// Whether the status of an object decides what the object uses.
    pub fn uses_status(&self) -> bool {
        matches!(self.rule, Rule::Pod | Rule::Claim)
    }

    /// Whether an object of this kind can use what a quota limits under this name.
    pub fn tracks(&self, resource: &str) -> bool {
        resource == self.count
            || match self.rule {
                Rule::Pod => pod::tracks(resource),
                Rule::Service => matches!(resource, "services" | "services.nodeports" | "services.loadbalancers"),
                Rule::Claim => {
                    let of_class = resource.split_once(OF_STORAGE_CLASS).map_or(resource, |(_, rest)| rest);
                    matches!(of_class, "persistentvolumeclaims" | "requests.storage")
                }
                Rule::Count(plain) => plain == Some(resource),
            }
    }

    /// What an object uses. `expired` is whether it is a pod whose grace period is over: such a pod uses nothing but its place
    /// in the count of all pods.
    pub fn usage(&self, object: &Value, expired: bool) -> ResourceList {
        let one = Quantity::new(1);
        let mut used = ResourceList::from([(self.count.clone(), one)]);
        match self.rule {
            Rule::Pod if !expired && !pod::is_finished(object) => used.extend(pod::usage(object)),
            Rule::Pod => {}
            Rule::Service => used.extend(service_usage(&object["spec"])),
            Rule::Claim => used.extend(claim_usage(object)),
            Rule::Count(plain) => used.extend(plain.map(|plain| (plain.to_owned(), one))),
        }
        used
    }

    /// What an object has to say if a quota limits these: `must specify limits.cpu for: app`. `None` if it says all of it.
    pub fn missing<'n>(&self, limited: impl Iterator<Item = &'n str>, object: &Value) -> Option<String> {
        if self.rule == Rule::Pod { pod::missing(&limited.collect(), object) } else { None }
    }

    /// Whether an update of an object can change what it uses.
    pub fn can_change(&self, old: &Value, new: &Value) -> bool {
        match self.rule {
            Rule::Pod => scope::has_deadline(old) != scope::has_deadline(new),
            Rule::Service | Rule::Claim => true,
            Rule::Count(_) => false,
        }
    }
}

fn service_usage(spec: &Value) -> ResourceList {
    let ports = || spec["ports"].as_array().into_iter().flatten();
    let balanced = spec["type"] == "LoadBalancer";
    let node_ports = match spec["type"].as_str() {
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            ports().filter(|port| port["nodePort"].as_i64().unwrap_or_default() != 0).count()
        }
        Some("LoadBalancer" | "NodePort") => ports().count(),
        _ => 0,
    };
    ResourceList::from([
        ("services".to_owned(), Quantity::new(1)),
        ("services.loadbalancers".to_owned(), Quantity::new(i64::from(balanced))),
        ("services.nodeports".to_owned(), Quantity::new(node_ports as i64)),
    ])
}

fn claim_usage(claim: &Value) -> ResourceList {
    let annotated = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = annotated.or_else(|| claim["spec"]["storageClassName"].as_str()).filter(|class| !class.is_empty());
    let requested = Quantity::of(&claim["spec"]["resources"]["requests"]["storage"]);
    let allocated = Quantity::of(&claim["status"]["allocatedResources"]["storage"]);
    let storage = requested.map(|requested| allocated.map_or(requested, |allocated| allocated.max(requested)));
    let mut used = ResourceList::from([("persistentvolumeclaims".to_owned(), Quantity::new(1))]);
    used.extend(storage.map(|storage| ("requests.storage".to_owned(), storage.rounded_up())));
    let of_class: Vec<(String, Quantity)> = class
        .into_iter()
        .flat_map(|class| used.iter().map(move |(name, used)| (format!("{class}{OF_STORAGE_CLASS}{name}"), *used)))
        .collect();
    used.extend(of_class);
    used
}

/// A ResourceQuota, with what the server decides by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceQuota {
    /// Its name.
    pub name: String,
    /// The limits that its author wants.
    pub wanted: ResourceList,
    /// The limits in force: those that the controller has measured the use of.
    pub hard: ResourceList,
    /// What is used.
    pub used: ResourceList,
    scopes: Vec<Scope>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    hard: Value,
    scopes: Vec<String>,
    scope_selector: ScopeSelector,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScopeSelector {
    match_expressions: Vec<Scope>,
}

impl ResourceQuota {
    /// The quota in an object.
    pub fn read(object: &Value) -> Self {
        let spec = from_stored_value::<Spec>(&object["spec"]).unwrap_or_default();
        let named = spec.scopes.into_iter().map(Scope::named);
        Self {
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            wanted: resource_list(&spec.hard),
            hard: resource_list(&object["status"]["hard"]),
            used: resource_list(&object["status"]["used"]),
            scopes: named.chain(spec.scope_selector.match_expressions).collect(),
        }
    }

    /// Whether an object counts for this quota: it is in all of its scopes.
    pub fn covers(&self, kind: &QuotaKind, object: &Value) -> bool {
        self.scopes.iter().all(|scope| match kind.rule {
            Rule::Pod => scope.has_pod(object),
            Rule::Claim => scope.has_claim(object),
            Rule::Service | Rule::Count(_) => false,
        })
    }

    /// Whether no object of this kind can count for this quota, whatever is in it.
    pub fn excludes(&self, kind: &QuotaKind) -> bool {
        !self.scopes.is_empty() && matches!(kind.rule, Rule::Service | Rule::Count(_))
    }

    /// What of the limits in force an object of this kind can use.
    pub fn limits<'q>(&'q self, kind: &'q QuotaKind) -> impl Iterator<Item = &'q str> {
        self.hard.keys().map(String::as_str).filter(|name| kind.tracks(name))
    }

    /// The resources and kinds that the wanted limits are about: `count/X.G` names a kind itself.
    pub fn counted(&self) -> BTreeSet<(String, String)> {
        let counted = self.wanted.keys().filter_map(|name| name.strip_prefix("count/"));
        counted
            .map(|resource| resource.split_once('.').unwrap_or((resource, "")))
            .map(|(plural, group)| (group.to_owned(), plural.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
