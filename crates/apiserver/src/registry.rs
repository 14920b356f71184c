//! The registry of resources: built-in ones, and those that custom resource definitions add while the server runs. In:
//! resources. Out: the resource that a path, a kind or a key names, and which names are taken. A change of one definition
//! costs as much as its own resources, however many others there are; only a snapshot costs as much as all of them, and it
//! is shared until the registry changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;

use konverge_core::GroupVersion;
use konverge_store::Revision;

use crate::digest::Digest;
use crate::lifetime::Lifetime;
use crate::resource::Resource;

/// All resources at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    resources: Vec<Arc<Resource>>,
    /// Grows with every change of the registry, so that documents made from a snapshot can be cached until it does.
    pub generation: u64,
}

impl Snapshot {
    /// Every resource: built-in ones first, in the order clients prefer, then custom ones by group.
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// One resource for each place in the store: preferably of the version that objects are stored in, so that nothing has to
    /// be converted.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let mut seen = HashSet::new();
        let is_direct = |resource: &&Arc<Resource>| resource.is_api_version(&resource.storage.api_version);
        let direct = self.resources.iter().filter(is_direct);
        direct.chain(&self.resources).filter(move |resource| seen.insert(&*resource.storage.prefix))
    }
}

/// All resources, as they change.
#[derive(Debug)]
pub(crate) struct Registry {
    builtin: Vec<Arc<Resource>>,
    state: RwLock<State>,
}

/// Group, version and plural.
type ResourceKey = (Box<str>, Box<str>, Box<str>);

/// The same without being copied.
#[derive(Hash)]
struct ResourceKeyRef<'a>(&'a str, &'a str, &'a str);

impl Equivalent<ResourceKey> for ResourceKeyRef<'_> {
    fn equivalent(&self, (group, version, plural): &ResourceKey) -> bool {
        (self.0, self.1, self.2) == (&**group, &**version, &**plural)
    }
}

/// Group, what the name is for, the name, and the plural of the kind that has it.
type Claim = (Box<str>, NameScope, Box<str>, Box<str>);

/// What a name is for. A resource and a kind may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameScope {
    /// Plural, singular and short names.
    Resource,
    /// Kind and list kind.
    Kind,
}

#[derive(Debug, Default)]
struct State {
    /// The resources of each definition, by group and plural, which is also their order in a snapshot.
    custom: BTreeMap<(Box<str>, Box<str>), Installed>,
    by_path: HashMap<ResourceKey, Arc<Resource>>,
    /// One resource for each place in the store, by the prefix of its keys.
    by_prefix: HashMap<Box<str>, Arc<Resource>>,
    /// The first resource of each kind, by group and kind.
    by_kind: HashMap<(Box<str>, Box<str>), Arc<Resource>>,
    claims: BTreeSet<Claim>,
    generation: u64,
    /// The snapshot, once somebody has asked for it since the last change.
    all: Option<Arc<Snapshot>>,
}

/// The resources of one definition.
#[derive(Debug)]
struct Installed {
    /// Of the definition's spec: watches go on when resources of the same spec replace each other.
    spec: Digest,
    /// Of what decides how objects are stored, and since which revision that is so.
    stored_as: Digest,
    since: Revision,
    /// Whether the definition is being deleted.
    terminating: bool,
    lifetime: Lifetime,
    resources: Vec<Arc<Resource>>,
}

impl Registry {
    pub(crate) fn new(builtin: Vec<Arc<Resource>>) -> Self {
        let mut state = State::default();
        builtin.iter().for_each(|resource| state.add(resource));
        Self { builtin, state: RwLock::new(state) }
    }

    /// All resources as they are now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        if let Some(all) = &self.state.read().all {
            return all.clone();
        }
        let mut state = self.state.write();
        let generation = state.generation;
        let custom = state.custom.values().flat_map(|installed| &installed.resources);
        let resources = self.builtin.iter().chain(custom).cloned().collect();
        // Two requests may make the same snapshot at once, which does no harm.
        state.all.insert(Arc::new(Snapshot { resources, generation })).clone()
    }

    /// Whether somebody has asked for a snapshot since the last change.
    #[cfg(test)]
    pub(crate) fn is_listed(&self) -> bool {
        self.state.read().all.is_some()
    }

    /// The resource that a path names.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.state.read().by_path.get(&ResourceKeyRef(group, version, plural)).cloned()
    }

    /// A resource of the kind of this name, in any version.
    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        self.state.read().by_kind.get(&(group.into(), kind.into())).cloned()
    }

    /// A resource that the object under this key can be read and written through.
    pub(crate) fn of_key(&self, key: &str) -> Option<Arc<Resource>> {
        // `/registry/GROUP/PLURAL/`, and then the object.
        let (end, _) = key.match_indices('/').nth(3)?;
        self.state.read().by_prefix.get(&key[..=end]).cloned()
    }

    /// The other resources that show the same objects: in another version, or in another group.
    pub(crate) fn sharing_storage(&self, resource: &Resource) -> Vec<Arc<Resource>> {
        let same = |other: &&Arc<Resource>| {
            other.storage.prefix == resource.storage.prefix
                && (&other.group, &other.version) != (&resource.group, &resource.version)
        };
        self.snapshot().resources().iter().filter(same).cloned().collect()
    }

    /// Whether a group has built-in kinds.
    pub(crate) fn builds_in(&self, group: &str) -> bool {
        self.builtin.iter().any(|resource| &*resource.group == group)
    }

    /// Whether this is a built-in kind.
    pub(crate) fn builds_kind(&self, of: &GroupVersion, kind: &str) -> bool {
        let same = |resource: &&Arc<Resource>| *resource.group == *of.group && *resource.version == *of.version;
        self.builtin.iter().filter(same).any(|resource| *resource.kind == *kind)
    }

    /// Whether another kind of the group than that of `plural` has this name.
    pub(crate) fn is_taken(&self, group: &str, scope: NameScope, name: &str, plural: &str) -> bool {
        let state = self.state.read();
        let from: Claim = (group.into(), scope, name.into(), "".into());
        let same = |claim: &&Claim| (&claim.0, claim.1, &claim.2) == (&from.0, from.1, &from.2);
        state.claims.range(&from..).take_while(same).any(|claim| &*claim.3 != plural)
    }

    /// The names of the definitions that have resources here.
    pub(crate) fn definitions(&self) -> BTreeSet<String> {
        self.state.read().custom.keys().map(|(group, plural)| format!("{plural}.{group}")).collect()
    }

    /// Notes that the definition of `revision` stands for the same resources as before; false if it does not.
    pub(crate) fn confirm(&self, crd: &str, revision: Revision, spec: Digest, terminating: bool) -> bool {
        let state = self.state.read();
        let same = state
            .custom
            .get(&group_and_plural(crd))
            .filter(|before| before.spec == spec && before.terminating == terminating);
        if let Some(same) = same {
            same.lifetime.confirm(revision);
        }
        same.is_some()
    }

    /// The revision since which the objects of a definition are stored like this, if that has not changed.
    pub(crate) fn stored_since(&self, crd: &str, stored_as: Digest) -> Option<Revision> {
        let state = self.state.read();
        let before = state.custom.get(&group_and_plural(crd)).filter(|before| before.stored_as == stored_as);
        before.map(|before| before.since)
    }

    /// Sets the resources of one definition as of `revision`, made from the spec of this digest.
    pub(crate) fn install(
        &self,
        crd: &str,
        revision: Revision,
        spec: Digest,
        stored_as: Digest,
        terminating: bool,
        mut resources: Vec<Arc<Resource>>,
    ) {
        let at = group_and_plural(crd);
        let mut state = self.state.write();
        let before = state.take(&at);
        let same = before.as_ref().filter(|before| before.spec == spec);
        let lifetime = same.map_or_else(Lifetime::default, |before| before.lifetime.continued());
        lifetime.confirm(revision);
        for resource in &mut resources {
            // Nobody else holds the resource yet, so nothing is cloned.
            Arc::make_mut(resource).lifetime = Some(lifetime.clone());
            state.add(resource);
        }
        let since = resources.first().map_or(revision, |resource| resource.storage.since);
        state.custom.insert(at, Installed { spec, stored_as, since, terminating, lifetime, resources });
        drop(state);
        // Only now: a watch that ends and starts again must find the new resources.
        if let Some(before) = before.filter(|before| before.spec != spec) {
            before.lifetime.end(revision);
        }
    }

    /// Removes the resources of one definition as of `revision`.
    pub(crate) fn remove(&self, crd: &str, revision: Revision) {
        let before = self.state.write().take(&group_and_plural(crd));
        if let Some(before) = before {
            before.lifetime.end(revision);
        }
    }
}

impl State {
    fn add(&mut self, resource: &Arc<Resource>) {
        self.by_path.insert(path(resource), resource.clone());
        // Preferably through the version that objects are stored in, so that nothing has to be converted.
        let stored_as = resource.is_api_version(&resource.storage.api_version);
        let by_prefix = self.by_prefix.entry(resource.storage.prefix.clone());
        by_prefix
            .and_modify(|known| {
                if stored_as {
                    known.clone_from(resource)
                }
            })
            .or_insert_with(|| resource.clone());
        self.by_kind.entry((resource.group.clone(), resource.kind.clone())).or_insert_with(|| resource.clone());
        self.claims.extend(claims(resource));
        self.changed();
    }

    /// Removes the resources of one definition.
    fn take(&mut self, at: &(Box<str>, Box<str>)) -> Option<Installed> {
        let installed = self.custom.remove(at)?;
        for resource in &installed.resources {
            self.by_path.remove(&path(resource));
            self.by_prefix.remove(&resource.storage.prefix);
            self.by_kind.remove(&(resource.group.clone(), resource.kind.clone()));
            for claim in claims(resource) {
                self.claims.remove(&claim);
            }
        }
        self.changed();
        Some(installed)
    }

    fn changed(&mut self) {
        self.generation += 1;
        self.all = None;
    }
}

/// Group and plural of a CRD's name.
fn group_and_plural(crd: &str) -> (Box<str>, Box<str>) {
    let (plural, group) = crd.split_once('.').unwrap_or((crd, ""));
    (group.into(), plural.into())
}

fn path(resource: &Resource) -> ResourceKey {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}

fn claims(resource: &Resource) -> impl Iterator<Item = Claim> + '_ {
    let names = [&resource.plural, &resource.singular].into_iter().chain(&resource.short_names);
    let names = names.map(|name| (NameScope::Resource, name));
    let kinds = [&resource.kind, &resource.list_kind].map(|name| (NameScope::Kind, name));
    // No definition can have a name of a built-in kind, not even under the same plural.
    let owner: Box<str> = if resource.custom { resource.plural.clone() } else { "".into() };
    names.chain(kinds).map(move |(scope, name)| (resource.group.clone(), scope, name.clone(), owner.clone()))
}
