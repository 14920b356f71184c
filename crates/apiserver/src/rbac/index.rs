//! Roles and bindings, found by who is bound. In: roles and bindings as they are stored, each whenever it changes. Out:
//! decisions and the rules of a user, without looking at bindings of others. Pure: never reads the store.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use konverge_core::{KEEP_RIGHTS, KEEP_RIGHTS_VALUE, LabelSelector, RIGHTS_TOGETHER};
use konverge_schema::go_quote;

use crate::authorize::{Attributes, Decision};
use crate::user::UserInfo;

use super::rule::Rule;
use super::stored::{StoredBinding, StoredMetadata, StoredRole, Subject};

/// Everything that decisions are made by.
#[derive(Default)]
pub(crate) struct Index {
    roles: Roles,
    /// The bindings as they are stored, by namespace and name. Cluster role bindings have an empty namespace.
    bindings: HashMap<(Box<str>, Box<str>), Arc<Binding>>,
    /// Who is bound in a namespace, or by cluster role bindings in the empty one.
    bound: HashMap<Box<str>, Bound>,
    hasher: DefaultHashBuilder,
}

/// A role or a cluster role.
pub(crate) struct Role {
    pub name: Box<str>,
    pub rules: Vec<Rule>,
    pub labels: BTreeMap<String, String>,
    /// Those that are read: [`KEEP_RIGHTS`] and [`RIGHTS_TOGETHER`].
    annotations: BTreeMap<String, String>,
    /// Selects the cluster roles whose rules this one gets; none if it has rules of its own.
    pub aggregates: Option<Vec<LabelSelector>>,
    /// Quickly rules out most roles that do not allow a request.
    hint: Hint,
}

/// The resources and verbs that a role mentions, as bits that several names may share. Most roles do not mention what a request
/// asks for, and this rules out nearly all of them without a look at their rules.
#[derive(Clone, Copy, Default)]
struct Hint {
    resources: Names,
    verbs: Names,
}

/// A set of names that may seem to have more than were added: four bits of 128 for each.
#[derive(Clone, Copy, Default)]
struct Names(u128);

/// A role binding or cluster role binding.
struct Binding {
    name: Box<str>,
    namespace: Box<str>,
    role_kind: Box<str>,
    role_name: Box<str>,
    /// Where the role is; none for a kind that cannot be bound.
    role: Option<usize>,
    subjects: Vec<Subject>,
}

/// The rules of a role that is bound to a user.
pub(crate) struct Grant {
    /// Where the rules hold; empty for the whole cluster.
    pub namespace: String,
    role_kind: Box<str>,
    role_name: Box<str>,
    /// Whether the role says that its rights are needed, used or not.
    pub is_kept: bool,
    /// What the role says of rights that belong together, as JSON; empty if it says nothing.
    pub together: String,
    pub rules: Vec<Rule>,
}

impl Grant {
    #[cfg(test)]
    pub(crate) fn new(namespace: &str, role_kind: &str, role_name: &str, rules: Vec<Rule>) -> Self {
        let (namespace, role_kind, role_name) = (namespace.to_owned(), role_kind.into(), role_name.into());
        Self { namespace, role_kind, role_name, is_kept: false, together: String::new(), rules }
    }

    /// Namespace and name of the role; a cluster role has no namespace.
    pub(crate) fn role(&self) -> (String, String) {
        let namespace = if &*self.role_kind == "Role" { self.namespace.clone() } else { String::new() };
        (namespace, self.role_name.to_string())
    }

    /// `the ClusterRole web`
    pub(crate) fn describe(&self) -> String {
        format!("the {} {}", self.role_kind, self.role_name)
    }
}

/// Who is bound, and by what. A service account is the user of its name.
#[derive(Default)]
struct Bound {
    users: BindingsByName,
    groups: BindingsByName,
}

type BindingsByName = HashMap<Box<str>, Vec<Arc<Binding>>>;

impl Index {
    /// Whether a user may do what a request asks for.
    pub(crate) fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let (user, namespace) = (attributes.user, attributes.resource.map_or("", |resource| resource.namespace));
        let asked = self.asked(attributes);
        let mut errors: Vec<String> = Vec::new();
        for binding in self.bindings_of(user, namespace) {
            match self.role_of(binding) {
                Ok(role) => {
                    if role.hint.may_match(&asked) && role.rules.iter().any(|rule| rule.allows(attributes)) {
                        return Decision::Allow { reason: format!("RBAC: allowed by {}", binding.describe(user)) };
                    }
                }
                Err(error) if errors.contains(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        Decision::NoOpinion { reason: errors_text(&errors).map_or(String::new(), |text| format!("RBAC: {text}")) }
    }

    /// All rules of a user in a namespace, and the text about roles that are bound but do not exist.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        // In the order of names, and a binding that names the user twice counts once.
        let bindings: BTreeMap<(&str, &str), &Binding> =
            self.bindings_of(user, namespace).map(|binding| ((&*binding.namespace, &*binding.name), binding)).collect();
        for binding in bindings.values() {
            match self.role_of(binding) {
                Ok(role) => rules.extend_from_slice(&role.rules),
                Err(error) => errors.push(error),
            }
        }
        errors.dedup();
        (rules, errors_text(&errors))
    }

    /// The roles that are bound to a user by name, in the order of their bindings. Those of groups are left out.
    pub(crate) fn grants_to(&self, user: &UserInfo) -> Vec<Grant> {
        let by_name = self.bound.values().filter_map(|bound| bound.users.get(&*user.name)).flatten();
        let bindings: BTreeMap<(&str, &str), &Binding> =
            by_name.map(|binding| ((&*binding.namespace, &*binding.name), &**binding)).collect();
        let grant = |binding: &Binding| {
            let role = self.role_of(binding).ok()?;
            let Binding { namespace, role_kind, role_name, .. } = binding;
            Some(Grant {
                namespace: namespace.to_string(),
                role_kind: role_kind.clone(),
                role_name: role_name.clone(),
                is_kept: role.annotations.get(KEEP_RIGHTS).is_some_and(|value| value == KEEP_RIGHTS_VALUE),
                together: role.annotations.get(RIGHTS_TOGETHER).cloned().unwrap_or_default(),
                rules: role.rules.clone(),
            })
        };
        bindings.values().filter_map(|binding| grant(binding)).collect()
    }

    /// The rules of a role that a binding in a namespace refers to.
    pub(crate) fn role(&self, namespace: &str, name: &str) -> Option<&Role> {
        self.roles.find(namespace, name)
    }

    /// Every cluster role, in no order.
    pub(crate) fn cluster_roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.slots.iter().filter(|slot| slot.namespace.is_empty()).filter_map(|slot| slot.role.as_ref())
    }

    /// Takes a role as it is stored now.
    pub(crate) fn set_role(&mut self, namespace: &str, name: &str, stored: StoredRole) {
        let mut hint = Hint::default();
        for rule in &stored.rules {
            rule.resources.iter().for_each(|resource| hint.resources.add(self.name(resource)));
            rule.verbs.iter().for_each(|verb| hint.verbs.add(self.name(verb)));
            if !rule.non_resource_urls.is_empty() {
                // Paths are few, and patterns; a request for one looks at the verbs only.
                hint.resources.add(self.name(""));
            }
        }
        let StoredRole { metadata: StoredMetadata { labels, mut annotations }, rules, aggregates } = stored;
        annotations.retain(|key, _| key == KEEP_RIGHTS || key == RIGHTS_TOGETHER);
        let role = Role { name: name.into(), rules, labels, annotations, aggregates, hint };
        self.roles.set(namespace, name, Some(role));
    }

    /// Gives a role other rules.
    pub(super) fn set_rules(&mut self, namespace: &str, name: &str, rules: Vec<Rule>) {
        let Some(role) = self.roles.find(namespace, name) else { return };
        let metadata = StoredMetadata { labels: role.labels.clone(), annotations: role.annotations.clone() };
        let stored = StoredRole { metadata, rules, aggregates: role.aggregates.clone() };
        self.set_role(namespace, name, stored);
    }

    /// Forgets a role. Bindings to it stay, and give nothing.
    pub(crate) fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.set(namespace, name, None);
    }

    /// Takes a binding as it is stored now.
    pub(crate) fn set_binding(&mut self, namespace: &str, name: &str, stored: StoredBinding) {
        self.remove_binding(namespace, name);
        let (role_kind, role_name) = (stored.role_ref.kind, stored.role_ref.name);
        let role = match &*role_kind {
            "ClusterRole" => Some(self.roles.refer("", &role_name)),
            "Role" if !namespace.is_empty() => Some(self.roles.refer(namespace, &role_name)),
            _ => None,
        };
        let (name, namespace): (Box<str>, Box<str>) = (name.into(), namespace.into());
        let subjects = stored.subjects;
        let binding = Arc::new(Binding { name, namespace, role_kind, role_name, role, subjects });
        let bound = self.bound.entry(binding.namespace.clone()).or_default();
        for subject in &binding.subjects {
            let Some((of, name)) = bound.place(subject, &binding.namespace) else { continue };
            let list = of.entry(name).or_default();
            if !list.iter().any(|known| Arc::ptr_eq(known, &binding)) {
                list.push(binding.clone());
            }
        }
        self.bindings.insert((binding.namespace.clone(), binding.name.clone()), binding);
    }

    /// Forgets a binding.
    pub(crate) fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.bindings.remove(&(namespace.into(), name.into())) else { return };
        if let Some(role) = binding.role {
            self.roles.release(role);
        }
        let Some(bound) = self.bound.get_mut(namespace) else { return };
        for subject in &binding.subjects {
            let Some((of, name)) = bound.place(subject, namespace) else { continue };
            if let Some(list) = of.get_mut(&name) {
                list.retain(|known| !Arc::ptr_eq(known, &binding));
                if list.is_empty() {
                    of.remove(&name);
                }
            }
        }
        if bound.users.is_empty() && bound.groups.is_empty() {
            self.bound.remove(namespace);
        }
    }

    /// The bindings of a user: those of the whole cluster first, then those of the namespace.
    fn bindings_of<'i>(&'i self, user: &'i UserInfo, namespace: &'i str) -> impl Iterator<Item = &'i Binding> {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let scopes = std::iter::once("").chain(namespace).filter_map(|namespace| self.bound.get(namespace));
        scopes.flat_map(|bound| {
            let groups = user.groups.iter().filter_map(|group| bound.groups.get(&**group));
            bound.users.get(&*user.name).into_iter().chain(groups).flatten().map(|binding| &**binding)
        })
    }

    fn role_of(&self, binding: &Binding) -> Result<&Role, String> {
        let role = binding.role.and_then(|at| self.roles.slots[at].role.as_ref());
        role.ok_or_else(|| match &*binding.role_kind {
            kind @ ("ClusterRole" | "Role") => {
                let kind = kind.to_ascii_lowercase();
                format!("{kind}.rbac.authorization.k8s.io {} not found", go_quote(&binding.role_name))
            }
            kind => format!("unsupported role reference kind: {}", go_quote(kind)),
        })
    }

    /// What a role has to mention to allow a request.
    fn asked(&self, attributes: &Attributes<'_>) -> Asked {
        let resources = match &attributes.resource {
            None => [self.name(""); 2],
            Some(asked) if asked.subresource.is_empty() => [self.name(asked.resource); 2],
            Some(asked) => {
                let sub = asked.subresource;
                [self.name(&format!("{}/{sub}", asked.resource)), self.name(&format!("*/{sub}"))]
            }
        };
        Asked { resources, verb: self.name(attributes.verb) }
    }

    /// The bits of a name; what stands for every name has all.
    fn name(&self, name: &str) -> Names {
        if name == "*" {
            return Names(u128::MAX);
        }
        let hash = self.hasher.hash_one(name);
        Names([0, 7, 14, 21].iter().fold(0, |bits, shift| bits | 1 << ((hash >> shift) % 128)))
    }
}

/// What a role has to mention to allow a request: one of these resources, and the verb.
struct Asked {
    resources: [Names; 2],
    verb: Names,
}

impl Hint {
    fn may_match(self, asked: &Asked) -> bool {
        self.verbs.may_have(asked.verb) && asked.resources.iter().any(|resource| self.resources.may_have(*resource))
    }
}

impl Names {
    fn add(&mut self, name: Names) {
        self.0 |= name.0;
    }

    fn may_have(self, name: Names) -> bool {
        self.0 & name.0 == name.0
    }
}

impl Binding {
    /// The binding as reasons name it, with the first subject that is the user.
    fn describe(&self, user: &UserInfo) -> String {
        let Self { name, namespace, role_kind, role_name, .. } = self;
        let subject = self.subjects.iter().find(|subject| subject.is(user, namespace));
        let subject = subject.map_or(String::new(), |subject| subject.describe(namespace));
        let (kind, name) = match &**namespace {
            "" => ("ClusterRoleBinding", go_quote(name)),
            namespace => ("RoleBinding", go_quote(&format!("{name}/{namespace}"))),
        };
        format!("{kind} {name} of {role_kind} {} to {subject}", go_quote(role_name))
    }
}

impl Bound {
    /// The map and the name under which a subject of a binding is found; none for one that is nobody.
    fn place(&mut self, subject: &Subject, namespace: &str) -> Option<(&mut BindingsByName, Box<str>)> {
        match &*subject.kind {
            "User" => Some((&mut self.users, subject.name.clone())),
            "Group" => Some((&mut self.groups, subject.name.clone())),
            "ServiceAccount" => Some((&mut self.users, subject.user_name(namespace)?)),
            _ => None,
        }
    }
}

/// Errors as Go's aggregate prints them.
fn errors_text(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// Roles in slots, so that a binding finds its role without a search. A slot stays while a role or a binding needs it.
#[derive(Default)]
struct Roles {
    places: HashMap<(Box<str>, Box<str>), usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Slot {
    namespace: Box<str>,
    name: Box<str>,
    role: Option<Role>,
    /// How many bindings refer to it.
    references: usize,
}

impl Roles {
    fn find(&self, namespace: &str, name: &str) -> Option<&Role> {
        self.slots[*self.places.get(&(namespace.into(), name.into()))?].role.as_ref()
    }

    fn set(&mut self, namespace: &str, name: &str, role: Option<Role>) {
        let at = self.place(namespace, name);
        self.slots[at].role = role;
        self.free_if_unused(at);
    }

    fn refer(&mut self, namespace: &str, name: &str) -> usize {
        let at = self.place(namespace, name);
        self.slots[at].references += 1;
        at
    }

    fn release(&mut self, at: usize) {
        self.slots[at].references -= 1;
        self.free_if_unused(at);
    }

    fn place(&mut self, namespace: &str, name: &str) -> usize {
        let key: (Box<str>, Box<str>) = (namespace.into(), name.into());
        if let Some(at) = self.places.get(&key) {
            return *at;
        }
        let slot = Slot { namespace: key.0.clone(), name: key.1.clone(), ..Slot::default() };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.places.insert(key, at);
        at
    }

    fn free_if_unused(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.role.is_none() && slot.references == 0 {
            let Slot { namespace, name, .. } = std::mem::take(slot);
            self.places.remove(&(namespace, name));
            self.free.push(at);
        }
    }
}
