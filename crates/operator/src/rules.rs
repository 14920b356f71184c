//! Who has to be allowed what. In: what an operator declares, and the requests a run of it made. Out: RBAC rules with no
//! verb too many, as manifests. Never asks a cluster.

mod manifests;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::builders::PolicyRule;
use crate::kind::{Kind, Scope};

/// What is allowed, or was used: verbs by resource.
///
/// ```
/// use konverge::prelude::*;
/// use konverge::Rules;
/// let declared = Rules::new().allow::<ConfigMap>(["get", "list", "watch"]);
/// let used = Rules::new().allow::<ConfigMap>(["list", "patch"]);
/// assert_eq!(used.without(&declared).to_string(), "patch configmaps");
/// assert_eq!(declared.without(&used).to_string(), "get, watch configmaps");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<Resource, Allowed>);

/// A resource as RBAC names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Resource {
    group: String,
    /// With its subresource: `deployments`, `webapps/status`.
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Allowed {
    verbs: BTreeSet<Verb>,
    /// Whether only a ClusterRole can allow it: its objects are in no namespace, or in any.
    cluster: bool,
}

/// What can be done, in the order in which people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    const ALL: [(Verb, &'static str); 8] = [
        (Verb::Get, "get"),
        (Verb::List, "list"),
        (Verb::Watch, "watch"),
        (Verb::Create, "create"),
        (Verb::Update, "update"),
        (Verb::Patch, "patch"),
        (Verb::Delete, "delete"),
        (Verb::DeleteCollection, "deletecollection"),
    ];

    fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(verb, _)| *verb)
    }
}

impl Rules {
    /// Nothing is allowed.
    pub fn new() -> Self {
        Self::default()
    }

    /// These verbs on objects of a kind, too. Words that are no verbs of objects are left out.
    pub fn allow<T: Kind>(self, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.allow_part::<T>("", verbs)
    }

    /// These verbs on a part of the objects of a kind, too: `status`, `scale`, `finalizers`, `log`.
    pub fn allow_part<T: Kind>(mut self, part: &str, verbs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let api = T::resource();
        let name = if part.is_empty() { api.plural } else { format!("{}/{part}", api.plural) };
        let verbs = verbs.into_iter().filter_map(|verb| Verb::parse(verb.as_ref()));
        self.put(Resource { group: api.group, name }, T::scope() == Scope::Cluster, verbs);
        self
    }

    /// The same in all namespaces, also for an operator that looks at some.
    pub fn everywhere(mut self) -> Self {
        self.0.values_mut().for_each(|allowed| allowed.cluster = true);
        self
    }

    /// All of both.
    pub fn and(mut self, other: Rules) -> Self {
        self.extend(other);
        self
    }

    /// These as well.
    pub fn extend(&mut self, other: Rules) {
        for (resource, allowed) in other.0 {
            self.put(resource, allowed.cluster, allowed.verbs);
        }
    }

    /// What is in these and not in those. `used.without(&declared)` is what would be forbidden, `declared.without(&used)`
    /// is more than was needed.
    pub fn without(&self, other: &Rules) -> Rules {
        let mut left = Rules::new();
        for (resource, allowed) in &self.0 {
            let there = other.0.get(resource).map(|allowed| &allowed.verbs);
            let verbs = allowed.verbs.iter().copied().filter(|verb| !there.is_some_and(|there| there.contains(verb)));
            left.put(resource.clone(), allowed.cluster, verbs);
        }
        left
    }

    /// Whether nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the rules of a role: what allows the same in one group is one rule.
    pub fn policy(&self) -> Vec<PolicyRule> {
        self.gathered(|_| true)
    }

    fn gathered(&self, is_meant: impl Fn(&Allowed) -> bool) -> Vec<PolicyRule> {
        let mut rules: BTreeMap<(&str, &BTreeSet<Verb>), Vec<&str>> = BTreeMap::new();
        for (resource, allowed) in self.0.iter().filter(|(_, allowed)| is_meant(allowed)) {
            rules.entry((&resource.group, &allowed.verbs)).or_default().push(&resource.name);
        }
        let rule = |((group, verbs), names): ((&str, &BTreeSet<Verb>), Vec<&str>)| {
            PolicyRule::new().api_groups([group]).resources(names).verbs(verbs.iter().map(|verb| verb.word()))
        };
        rules.into_iter().map(rule).collect()
    }

    fn put(&mut self, resource: Resource, cluster: bool, verbs: impl IntoIterator<Item = Verb>) {
        let mut verbs = verbs.into_iter().peekable();
        if verbs.peek().is_some() {
            let allowed = self.0.entry(resource).or_default();
            allowed.verbs.extend(verbs);
            allowed.cluster |= cluster;
        }
    }
}

/// `get, list pods; patch webapps.example.com/status`, for people who read a failed test.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (Resource { group, name }, allowed)) in self.0.iter().enumerate() {
            let verbs: Vec<&str> = allowed.verbs.iter().map(|verb| verb.word()).collect();
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
