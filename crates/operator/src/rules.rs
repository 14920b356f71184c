//! RBAC rules. In: what an operator declares, and the requests that it made in a test. Out: rules without a superfluous verb,
//! as manifests. Never asks a cluster.

mod manifests;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::core::ApiResource;

use crate::api_kind::ApiKind;
use crate::builders::PolicyRule;
use crate::kind::{Kind, Scope};

/// RBAC rules: the verbs that are allowed, or were used, by resource.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::Rules;
/// let declared = Rules::new().allow::<ConfigMap>(["get", "list", "watch"]);
/// let used = Rules::new().allow::<ConfigMap>(["list", "patch"]);
/// assert_eq!(used.without(&declared).to_string(), "patch configmaps");
/// assert_eq!(declared.without(&used).to_string(), "get, watch configmaps");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rules {
    allowed: BTreeMap<Resource, Allowed>,
    /// What single declarations bring: those that belong together. They say nothing about what is allowed.
    together: Vec<BTreeMap<Resource, BTreeSet<RbacVerb>>>,
}

/// Rules are equal if they allow the same.
impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.allowed == other.allowed
    }
}

impl Eq for Rules {}

/// A resource as RBAC names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Resource {
    group: String,
    /// With its subresource: `deployments`, `webapps/status`.
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Allowed {
    verbs: BTreeSet<RbacVerb>,
    /// Whether only a ClusterRole can allow it: its objects are in no namespace, or in all.
    cluster: bool,
}

/// A verb as RBAC spells it. The common ones are ordered as people write them; others (`bind`, `escalate`, `*`) follow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RbacVerb {
    /// The place among the common verbs.
    rank: usize,
    word: String,
}

impl RbacVerb {
    const COMMON: [&'static str; 8] =
        ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

    /// Allows every other verb.
    const ALL: &'static str = "*";

    fn new(word: &str) -> Self {
        let rank = Self::COMMON.iter().position(|known| *known == word).unwrap_or(Self::COMMON.len());
        Self { rank, word: word.to_owned() }
    }
}

impl Rules {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows these verbs on objects of a kind, too. Every verb is kept as it is written, also `bind`, `impersonate` or `*`.
    pub fn allow<T: Kind>(self, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.allow_part::<T>("", verbs)
    }

    /// Allows these verbs on a subresource of a kind, too: `status`, `scale`, `finalizers`, `log`.
    pub fn allow_part<T: Kind>(self, subresource: &str, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.allow_dynamic(&ApiKind::of::<T>(), subresource, verbs)
    }

    /// Allows these verbs on a kind that is known only at run time, or on a subresource of it; `""` is the objects themselves.
    pub fn allow_dynamic(
        mut self,
        kind: &ApiKind,
        subresource: &str,
        verbs: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let ApiResource { group, plural, .. } = kind.resource();
        let name = if subresource.is_empty() { plural.clone() } else { format!("{plural}/{subresource}") };
        let verbs = verbs.into_iter().map(|verb| RbacVerb::new(verb.as_ref()));
        self.put(Resource { group: group.clone(), name }, kind.scope() == Scope::Cluster, verbs);
        self
    }

    /// Allows these verbs on a resource by its plural name, too, with its subresource if there is one: `pods`, `webapps/status`.
    pub fn allow_resource(
        mut self,
        group: &str,
        resource: &str,
        verbs: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let verbs = verbs.into_iter().map(|verb| RbacVerb::new(verb.as_ref()));
        self.put(Resource { group: group.to_owned(), name: resource.to_owned() }, false, verbs);
        self
    }

    /// Whether these rules, as an operator that watches `namespaces` has them printed, allow a verb on a resource in a namespace; none
    /// is the whole cluster. Without `namespaces`, all rules are those of a ClusterRole.
    pub fn allows(
        &self,
        verb: &str,
        (group, resource): (&str, &str),
        namespace: Option<&str>,
        namespaces: &[String],
    ) -> bool {
        let resource = Resource { group: group.to_owned(), name: resource.to_owned() };
        let Some(Allowed { verbs, cluster }) = self.allowed.get(&resource) else { return false };
        let has_verb = [verb, RbacVerb::ALL].into_iter().any(|word| verbs.contains(&RbacVerb::new(word)));
        let is_there = || namespace.is_some_and(|namespace| namespaces.iter().any(|one| one == namespace));
        has_verb && (*cluster || namespaces.is_empty() || is_there())
    }

    /// The rules but for those of a subresource: `finalizers`.
    pub fn without_part(mut self, subresource: &str) -> Rules {
        self.allowed.retain(|resource, _| resource.name.split_once('/').is_none_or(|(_, part)| part != subresource));
        self
    }

    /// The same rules for all namespaces, also for an operator that watches only some.
    pub fn everywhere(mut self) -> Self {
        self.allowed.values_mut().for_each(|allowed| allowed.cluster = true);
        self
    }

    /// The rules of both.
    pub fn and(mut self, other: Rules) -> Self {
        self.extend(other);
        self
    }

    /// Allows what these rules allow, too, as one declaration that brings all of them: once one of them was used, none of them counts as
    /// [unused](Self::unused).
    ///
    /// ```
    /// use konverge::prelude::*;
    /// use konverge::Rules;
    /// let children = Rules::new().allow::<ConfigMap>(["create", "patch", "delete"]);
    /// let declared = Rules::new().and_together(children).allow::<Secret>(["get"]);
    /// let used = Rules::new().allow::<ConfigMap>(["create"]);
    /// assert_eq!(declared.unused(&used).to_string(), "get secrets");
    /// assert_eq!(declared.unused(&Rules::new()), declared);
    /// ```
    pub fn and_together(mut self, other: Rules) -> Self {
        let set = other.allowed.iter().map(|(resource, allowed)| (resource.clone(), allowed.verbs.clone())).collect();
        self.extend(other);
        if !self.together.contains(&set) {
            self.together.push(set);
        }
        self
    }

    /// The rules that were not needed: those that were not used, but for those that [belong to](Self::and_together) one that was.
    pub fn unused(&self, used: &Rules) -> Rules {
        let is_used = |(resource, verbs): (&Resource, &BTreeSet<RbacVerb>)| {
            used.allowed.get(resource).is_some_and(|used| !used.verbs.is_disjoint(verbs))
        };
        let mut unused = self.without(used);
        for set in self.together.iter().filter(|set| set.iter().any(is_used)) {
            for (resource, verbs) in set {
                if let Some(left) = unused.allowed.get_mut(resource) {
                    left.verbs.retain(|verb| !verbs.contains(verb));
                }
            }
        }
        unused.allowed.retain(|_, left| !left.verbs.is_empty());
        unused
    }

    /// Adds rules.
    pub fn extend(&mut self, other: Rules) {
        for (resource, allowed) in other.allowed {
            self.put(resource, allowed.cluster, allowed.verbs);
        }
        for set in other.together {
            if !self.together.contains(&set) {
                self.together.push(set);
            }
        }
    }

    /// The rules that the other does not have. `used.without(&declared)` would be forbidden on a cluster,
    /// `declared.without(&used)` was not needed.
    pub fn without(&self, other: &Rules) -> Rules {
        let mut left = Rules::new();
        for (resource, allowed) in &self.allowed {
            let there = other.allowed.get(resource).map(|allowed| &allowed.verbs);
            let is_there = |verb: &RbacVerb| {
                there.is_some_and(|there| there.contains(verb) || there.contains(&RbacVerb::new(RbacVerb::ALL)))
            };
            let verbs = allowed.verbs.iter().filter(|verb| !is_there(verb)).cloned();
            left.put(resource.clone(), allowed.cluster, verbs);
        }
        left
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty()
    }

    /// As the rules of a role. Resources of one group with the same verbs are one rule.
    pub fn policy(&self) -> Vec<PolicyRule> {
        self.gathered(|_| true)
    }

    fn gathered(&self, is_meant: impl Fn(&Allowed) -> bool) -> Vec<PolicyRule> {
        let meant = self.allowed.iter().filter(|(_, allowed)| is_meant(allowed));
        policy(meant.map(|(resource, allowed)| (resource, &allowed.verbs)))
    }

    /// The rules that belong together, as the annotation of roles has them: see [`konverge_core::RIGHTS_TOGETHER`]. Empty if there are
    /// none.
    fn together(&self) -> String {
        let sets: Vec<Vec<PolicyRule>> = self.together.iter().map(|set| policy(set.iter())).collect();
        if sets.is_empty() { String::new() } else { serde_json::to_string(&sets).expect("published types are JSON") }
    }

    fn put(&mut self, resource: Resource, cluster: bool, verbs: impl IntoIterator<Item = RbacVerb>) {
        let mut verbs = verbs.into_iter().peekable();
        if verbs.peek().is_some() {
            let allowed = self.allowed.entry(resource).or_default();
            allowed.verbs.extend(verbs);
            allowed.cluster |= cluster;
        }
    }
}

/// Rules of a role. Resources of one group with the same verbs are one rule.
fn policy<'a>(rights: impl Iterator<Item = (&'a Resource, &'a BTreeSet<RbacVerb>)>) -> Vec<PolicyRule> {
    let mut rules: BTreeMap<(&str, &BTreeSet<RbacVerb>), Vec<&str>> = BTreeMap::new();
    for (resource, verbs) in rights {
        rules.entry((&resource.group, verbs)).or_default().push(&resource.name);
    }
    let rule = |((group, verbs), names): ((&str, &BTreeSet<RbacVerb>), Vec<&str>)| {
        PolicyRule::new().api_groups([group]).resources(names).verbs(verbs.iter().map(|verb| verb.word.as_str()))
    };
    rules.into_iter().map(rule).collect()
}

/// `get, list pods; patch webapps.example.com/status`, for people who read a failed test.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (Resource { group, name }, allowed)) in self.allowed.iter().enumerate() {
            let verbs: Vec<&str> = allowed.verbs.iter().map(|verb| verb.word.as_str()).collect();
            let (plural, part) =
                name.split_once('/').map_or((name.as_str(), None), |(plural, part)| (plural, Some(part)));
            write!(f, "{}{} {plural}", if at == 0 { "" } else { "; " }, verbs.join(", "))?;
            if !group.is_empty() {
                write!(f, ".{group}")?;
            }
            if let Some(part) = part {
                write!(f, "/{part}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
