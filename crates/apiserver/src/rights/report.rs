//! What a user may do beside what the user did. In: the roles that are bound to a user, and the requests that were noted. Out: the
//! rights that were used, those that nobody used, those that are lacking, what is dangerous among them, and the roles that
//! would have been enough. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE, RIGHTS_TOGETHER};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::authorize::{Attributes, ResourceAttributes};
use crate::rbac::{Grant, Rule};
use crate::user::UserInfo;

use super::{MAX_NAMES, Outcome, Right, UserRights};

/// What a user may do, beside what the user did. Its text is for people; `konverge permissions` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PermissionReport {
    /// The name of the user: `system:serviceaccount:default:web`.
    pub user: String,
    /// The rights by roles that are bound to the user, as far as requests needed them.
    pub used: Vec<ScopedRule>,
    /// The rights by such roles that no request needed, and wildcards, which always give more than is needed.
    pub unused: Vec<ScopedRule>,
    /// The rights that no request needed, of roles that say that their rights are needed rarely, such as those for renewing certificates, or
    /// that they belong to others which were used.
    #[serde(default)]
    pub kept: Vec<ScopedRule>,
    /// The rights for which requests were denied, and still would be.
    pub lacking: Vec<ScopedRule>,
    /// What is dangerous about the rights, in sentences.
    pub risks: Vec<String>,
    /// Roles that allow what was used, what is kept and what was lacking, and nothing else: as manifests, under the names of those that are bound.
    pub least: Vec<Value>,
    /// Whether there were more requests than are noted, so that `unused` may have rights that were used.
    pub incomplete: bool,
}

/// Verbs on a resource or a path, in a namespace or in the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct ScopedRule {
    /// Where; empty for the whole cluster.
    pub namespace: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name, with its subresource; empty for a path.
    pub resource: String,
    /// The path of requests that are about no resource.
    pub path: String,
    /// The only objects that are meant; all if there are none.
    pub names: Vec<String>,
    /// `get`, `list`, …
    pub verbs: Vec<String>,
}

impl PermissionReport {
    /// Whether the user has the rights that were needed and no others.
    pub fn is_least(&self) -> bool {
        self.unused.is_empty() && self.lacking.is_empty()
    }
}

/// `get, patch deployments.apps in the namespace shop`
impl fmt::Display for ScopedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, group, resource, path, names, verbs } = self;
        let (plural, part) = resource.split_once('/').map_or((&**resource, ""), |(plural, part)| (plural, part));
        write!(f, "{} {plural}{path}", verbs.join(", "))?;
        for (mark, text) in [(".", &**group), ("/", part)] {
            if !text.is_empty() {
                write!(f, "{mark}{text}")?;
            }
        }
        if !names.is_empty() {
            write!(f, " named {}", names.join(", "))?;
        }
        match &**namespace {
            "" => Ok(()),
            namespace => write!(f, " in the namespace {namespace}"),
        }
    }
}

impl fmt::Display for PermissionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.user)?;
        let sections = [
            ("used", &self.used, "nothing"),
            ("allowed beyond what was used", &self.unused, "nothing"),
            ("needed and not allowed", &self.lacking, "nothing"),
        ];
        for (title, rules, none) in sections {
            writeln!(f, "\n{title}:")?;
            if rules.is_empty() {
                writeln!(f, "  {none}")?;
            }
            for rule in rules {
                writeln!(f, "  {rule}")?;
            }
        }
        if !self.kept.is_empty() {
            writeln!(f, "\nnot used so far, and kept because it is needed rarely:")?;
        }
        for rule in &self.kept {
            writeln!(f, "  {rule}")?;
        }
        for risk in &self.risks {
            writeln!(f, "\nwarning: {risk}")?;
        }
        if self.incomplete {
            writeln!(f, "\nThere were more requests than are noted: some of what was never used may have been used.")?;
        }
        Ok(())
    }
}

/// Compares what roles give to a user with what the user asked for.
pub(super) fn report(user: &UserInfo, grants: &[Grant], rights: &UserRights, incomplete: bool) -> PermissionReport {
    // A watch that begins with all objects does the work of a list, and a server that knows no such watches is asked for a list.
    let by_now: Vec<(Right, Outcome)> = rights.asked.iter().map(|asked| allowed_by_now(user, grants, asked)).collect();
    let watched = by_now.iter().filter(|(right, _)| right.verb == "watch");
    let listed = watched.map(|(right, outcome)| {
        (Right { verb: "list".to_owned(), ..right.clone() }, Outcome { denied: BTreeSet::new(), ..outcome.clone() })
    });
    let listed: Vec<(Right, Outcome)> = listed.collect();
    let asked: Vec<Asked<'_>> =
        by_now.iter().chain(&listed).map(|(right, outcome)| Asked { user, right, outcome }).collect();
    let [mut used, mut unused, mut kept, mut lacking] = std::array::from_fn(|_| Rows::default());
    let mut risks = Vec::new();
    let mut roles: BTreeMap<(String, String), Rows> = BTreeMap::new();
    for grant in grants {
        let role = roles.entry(grant.role()).or_default();
        let together = used_together(grant, &asked);
        for right in grant.rules.iter().flat_map(Rule::break_down) {
            risks.extend(risk(grant, &right));
            let mut needed = false;
            for asked in asked.iter().filter(|asked| asked.is_allowed_by(grant, &right)) {
                needed = !is_wildcard(&right);
                let row = asked.row(&right);
                used.add(row.clone());
                role.add(ScopedRule { namespace: String::new(), ..row });
            }
            let row = granted(grant, &right);
            // Only clusters with OwnerReferencesPermissionEnforcement ask for this, when an owner reference blocks deletion.
            let is_for_finalizers = row.resource.ends_with("/finalizers") && row.verbs == ["update"];
            let belongs = || together.iter().any(|kept| kept.is_same_right(&right));
            if is_for_finalizers || grant.is_kept || (!needed && belongs()) {
                role.add(ScopedRule { namespace: String::new(), ..row.clone() });
                if !needed && !is_for_finalizers {
                    kept.add(row);
                }
            } else if !needed {
                unused.add(row);
            }
        }
    }
    // What a role that is kept does not have yet is no such right.
    let others = || grants.iter().filter(|grant| !grant.is_kept);
    let cluster_role = others().find(|grant| grant.namespace.is_empty()).map(Grant::role);
    for asked in asked.iter().filter(|asked| !asked.outcome.denied.is_empty()) {
        let row = asked.denied_row();
        lacking.add(row.clone());
        let own = others().find(|grant| grant.namespace == row.namespace).map(Grant::role);
        let place = own
            .or_else(|| cluster_role.clone())
            .unwrap_or_else(|| (row.namespace.clone(), short_name(&user.name).to_owned()));
        roles.entry(place).or_default().add(ScopedRule { namespace: String::new(), ..row.clone() });
    }
    risks.sort();
    risks.dedup();
    let marks: BTreeMap<(String, String), &Grant> = grants.iter().map(|grant| (grant.role(), grant)).collect();
    let least = roles.into_iter().map(|(role, rows)| manifest(&role, rows, marks.get(&role).copied())).collect();
    let [used, unused, kept, lacking] = [used, unused, kept, lacking].map(Rows::list);
    PermissionReport { user: user.name.clone(), used, unused, kept, lacking, risks, least, incomplete }
}

/// The single rights of the sets of a role that belong together and of which at least one was used. What cannot be read says nothing.
fn used_together(grant: &Grant, asked: &[Asked<'_>]) -> Vec<Rule> {
    let sets: Vec<Vec<Rule>> = serde_json::from_str(&grant.together).unwrap_or_default();
    let rights = |set: Vec<Rule>| set.iter().flat_map(Rule::break_down).collect::<Vec<Rule>>();
    let is_used = |right: &Rule| asked.iter().any(|asked| asked.is_allowed_by(grant, right));
    sets.into_iter().map(rights).filter(|set| set.iter().any(is_used)).flatten().collect()
}

/// A right that was asked for, with what was denied before and what roles allow by now counted as allowed.
fn allowed_by_now(user: &UserInfo, grants: &[Grant], (right, outcome): (&Right, &Outcome)) -> (Right, Outcome) {
    let asked = Asked { user, right, outcome };
    let (allowed, denied) = outcome.denied.iter().cloned().partition(|name| asked.would_be_allowed(grants, name));
    let outcome = Outcome { allowed: &outcome.allowed | &allowed, denied };
    (right.clone(), outcome)
}

/// The last part of a user's name, as the name of a role.
fn short_name(user: &str) -> &str {
    user.rsplit(':').next().unwrap_or(user)
}

/// A right that was asked for.
struct Asked<'a> {
    user: &'a UserInfo,
    right: &'a Right,
    outcome: &'a Outcome,
}

impl Asked<'_> {
    /// Whether a single right of a grant allows at least one of the requests.
    fn is_allowed_by(&self, grant: &Grant, right: &Rule) -> bool {
        let with_name = |name: &str| right.allows(&self.attributes(name));
        // Of more names than are noted, any may have been the one of the right.
        let with_any = || right.resource_names.iter().any(|name| with_name(name));
        let names = &self.outcome.allowed;
        self.is_reached_by(grant)
            && (names.iter().any(|name| with_name(name)) || (names.len() > MAX_NAMES && with_any()))
    }

    /// Whether roles allow it now, for the object of this name.
    fn would_be_allowed(&self, grants: &[Grant], name: &str) -> bool {
        let reaching = grants.iter().filter(|grant| self.is_reached_by(grant));
        reaching.flat_map(|grant| &grant.rules).any(|rule| rule.allows(&self.attributes(name)))
    }

    fn is_reached_by(&self, grant: &Grant) -> bool {
        grant.namespace.is_empty() || grant.namespace == self.right.namespace
    }

    fn attributes<'b>(&'b self, name: &'b str) -> Attributes<'b> {
        let Right { namespace, group, resource, path, verb } = self.right;
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let resource =
            ResourceAttributes { group, version: "", resource: plural, subresource, namespace, name, fields: None };
        let resource = (!plural.is_empty()).then_some(resource);
        Attributes { user: self.user, verb, path, resource }
    }

    /// What was denied, as a rule: with the names of objects if the same was allowed for others, so that names tell them apart.
    fn denied_row(&self) -> ScopedRule {
        let Outcome { allowed, denied } = self.outcome;
        let by_name = !allowed.is_empty() && denied.len() <= MAX_NAMES && !denied.contains("");
        let names = if by_name { denied.iter().cloned().collect() } else { Vec::new() };
        ScopedRule { names, ..self.row(&Rule::default()) }
    }

    /// What was asked for, as a rule: with names if the right that allowed it has some.
    fn row(&self, right: &Rule) -> ScopedRule {
        let Right { namespace, group, resource, path, verb } = self.right.clone();
        let names = right.resource_names.iter().map(|name| name.to_string()).collect();
        ScopedRule { namespace, group, resource, path, names, verbs: vec![verb] }
    }
}

/// A single right of a grant as a row.
fn granted(grant: &Grant, right: &Rule) -> ScopedRule {
    let texts = |list: &[Box<str>]| list.iter().map(|text| text.to_string()).collect::<Vec<String>>();
    let first = |list: &[Box<str>]| texts(list).into_iter().next().unwrap_or_default();
    ScopedRule {
        namespace: grant.namespace.clone(),
        group: first(&right.api_groups),
        resource: first(&right.resources),
        path: first(&right.non_resource_urls),
        names: texts(&right.resource_names),
        verbs: texts(&right.verbs),
    }
}

/// Whether a single right is for more than one verb, resource or path.
fn is_wildcard(right: &Rule) -> bool {
    let lists = [&right.verbs, &right.api_groups, &right.resources, &right.non_resource_urls];
    lists.into_iter().flatten().any(|text| text.contains('*'))
}

/// Why a single right is dangerous.
fn risk(grant: &Grant, right: &Rule) -> Option<String> {
    let row = granted(grant, right);
    let role = grant.describe();
    let verb = row.verbs.first().map(String::as_str).unwrap_or_default();
    if is_wildcard(right) {
        return Some(format!("{role} has a wildcard ({row}), which allows what future versions add, too"));
    }
    let reads = matches!(verb, "get" | "list" | "watch");
    match (verb, &*row.group, &*row.resource) {
        ("escalate" | "bind" | "impersonate", ..) => {
            Some(format!("{role} allows to {row}: who has it can get every other right"))
        }
        (_, "", "secrets") if reads && row.namespace.is_empty() && row.names.is_empty() => Some(format!(
            "{role} allows to read the Secrets of all namespaces; name the namespaces or the Secrets if they are known"
        )),
        _ => None,
    }
}

/// Rules that differ in their verbs only are one row.
#[derive(Default)]
struct Rows(BTreeMap<ScopedRule, BTreeSet<(usize, String)>>);

impl Rows {
    /// The order in which people write verbs.
    const ORDER: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

    fn add(&mut self, mut row: ScopedRule) {
        let verbs = std::mem::take(&mut row.verbs)
            .into_iter()
            .map(|verb| (Self::ORDER.iter().position(|known| **known == verb).unwrap_or(Self::ORDER.len()), verb));
        self.0.entry(row).or_default().extend(verbs);
    }

    fn list(self) -> Vec<ScopedRule> {
        let with_verbs = |(row, verbs): (ScopedRule, BTreeSet<(usize, String)>)| ScopedRule {
            verbs: verbs.into_iter().map(|(_, verb)| verb).collect(),
            ..row
        };
        self.0.into_iter().map(with_verbs).collect()
    }
}

/// A role (namespace and name) with these rules, and with what the role that is there says about its rights. Resources of a group with the
/// same verbs are one rule.
fn manifest((namespace, name): &(String, String), rows: Rows, there: Option<&Grant>) -> Value {
    let mut rules: BTreeMap<(String, Vec<String>, Vec<String>), Vec<String>> = BTreeMap::new();
    let mut paths: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for row in rows.list() {
        match row.path.is_empty() {
            true => rules.entry((row.group, row.verbs, row.names)).or_default().push(row.resource),
            false => paths.entry(row.verbs).or_default().push(row.path),
        }
    }
    let rules = rules.into_iter().map(|((group, verbs, names), resources)| {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = names.into();
        }
        rule
    });
    let paths = paths.into_iter().map(|(verbs, paths)| json!({"nonResourceURLs": paths, "verbs": verbs}));
    let rules: Vec<Value> = rules.chain(paths).collect();
    let api_version = "rbac.authorization.k8s.io/v1";
    let (kind, mut metadata) = match namespace.as_str() {
        "" => ("ClusterRole", json!({"name": name})),
        namespace => ("Role", json!({"name": name, "namespace": namespace})),
    };
    if there.is_some_and(|there| there.is_kept) {
        metadata["annotations"][KEEP_RIGHTS] = KEEP_RIGHTS_VALUE.into();
    }
    if let Some(there) = there.filter(|there| !there.together.is_empty()) {
        metadata["annotations"][RIGHTS_TOGETHER] = there.together.clone().into();
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules})
}

#[cfg(test)]
mod tests;
