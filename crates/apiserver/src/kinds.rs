//! The table of kinds: built-in rows, and the rows that CRDs add while the server runs. In: rows. Out: the row
//! a request is about, and who has which name. What a CRD changes costs as much as its own rows, however many others there
//! are; only those who want all rows pay for all, and share what they get until the table changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use konverge_store::Revision;

use crate::digest::Digest;
use crate::resource::Resource;
use crate::tenure::Tenure;

/// All rows at one moment.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    rows: Vec<Arc<Resource>>,
    /// Grows with every change of the table, so that documents made from it can be kept until it does.
    pub generation: u64,
}

impl Kinds {
    /// Every row: built-in kinds first, in the order clients prefer, then custom ones by group.
    pub fn rows(&self) -> &[Arc<Resource>] {
        &self.rows
    }

    /// One row for each place where objects are kept, whichever versions serve it: preferably of the version that objects are
    /// stored in, so that nothing has to be converted.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let mut seen = std::collections::HashSet::new();
        let is_direct = |row: &&Arc<Resource>| row.is_api_version(&row.storage.api_version);
        let direct = self.rows.iter().filter(is_direct);
        direct.chain(&self.rows).filter(move |row| seen.insert(&*row.storage.prefix))
    }
}

/// The table, changing.
#[derive(Debug)]
pub(crate) struct KindTable {
    builtin: Vec<Arc<Resource>>,
    state: RwLock<State>,
}

/// Group, version and plural.
type Path = (Box<str>, Box<str>, Box<str>);

/// Group, what the name is for, the name, and the plural of the kind that has it.
type Claim = (Box<str>, Named, Box<str>, Box<str>);

/// What a name is for. A resource and a kind may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Named {
    /// Plural, singular and short names.
    Resource,
    /// Kind and list kind.
    Kind,
}

#[derive(Debug, Default)]
struct State {
    /// What each CRD brought: by group and plural, which is also the order of rows.
    custom: BTreeMap<(Box<str>, Box<str>), Installed>,
    by_path: HashMap<Path, Arc<Resource>>,
    /// One row for each shelf, by what its keys begin with.
    by_prefix: HashMap<Box<str>, Arc<Resource>>,
    /// The first row of each kind, by group and kind.
    by_kind: HashMap<(Box<str>, Box<str>), Arc<Resource>>,
    claims: BTreeSet<Claim>,
    generation: u64,
    /// All rows, once somebody has asked for them since the last change.
    all: Option<Arc<Kinds>>,
}

/// The rows of one CRD.
#[derive(Debug)]
struct Installed {
    /// Of its spec: rows that come from the same one replace each other unnoticed.
    spec: Digest,
    /// What decides how its objects are kept, and since when.
    kept_as: Digest,
    since: Revision,
    /// Whether the CRD is being deleted.
    going: bool,
    tenure: Tenure,
    rows: Vec<Arc<Resource>>,
}

impl KindTable {
    pub fn new(builtin: Vec<Arc<Resource>>) -> Self {
        let mut state = State::default();
        builtin.iter().for_each(|row| state.add(row));
        Self { builtin, state: RwLock::new(state) }
    }

    /// All rows as they are now.
    pub fn snapshot(&self) -> Arc<Kinds> {
        if let Some(all) = &self.state.read().all {
            return all.clone();
        }
        let mut state = self.state.write();
        let generation = state.generation;
        let custom = state.custom.values().flat_map(|installed| &installed.rows);
        let rows = self.builtin.iter().chain(custom).cloned().collect();
        // Another may have been as fast, which does no harm.
        state.all.insert(Arc::new(Kinds { rows, generation })).clone()
    }

    /// Whether somebody has gone through all rows since the last change.
    #[cfg(test)]
    pub fn is_listed(&self) -> bool {
        self.state.read().all.is_some()
    }

    /// The row that a path names.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.state.read().by_path.get(&(group.into(), version.into(), plural.into())).cloned()
    }

    /// A row of the kind of this name, in whichever version.
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        self.state.read().by_kind.get(&(group.into(), kind.into())).cloned()
    }

    /// A row that the object under this key can be reached through.
    pub fn of_key(&self, key: &str) -> Option<Arc<Resource>> {
        // `/registry/GROUP/PLURAL/`, and then the object.
        let (end, _) = key.match_indices('/').nth(3)?;
        self.state.read().by_prefix.get(&key[..=end]).cloned()
    }

    /// Whether this version of a group has built-in kinds.
    pub fn builds_in(&self, group: &str, version: &str) -> bool {
        self.builtin.iter().any(|row| &*row.group == group && &*row.version == version)
    }

    /// Whether another kind of the group than that of `plural` has this name.
    pub fn is_taken(&self, group: &str, named: Named, name: &str, plural: &str) -> bool {
        let state = self.state.read();
        let from: Claim = (group.into(), named, name.into(), "".into());
        let same = |claim: &&Claim| (&claim.0, claim.1, &claim.2) == (&from.0, from.1, &from.2);
        state.claims.range(&from..).take_while(same).any(|claim| &*claim.3 != plural)
    }

    /// The names of the CRDs that have rows.
    pub fn definitions(&self) -> BTreeSet<String> {
        self.state.read().custom.keys().map(|(group, plural)| format!("{plural}.{group}")).collect()
    }

    /// Notes that the CRD of `revision` says the same as the one before; false if it does not.
    pub fn confirm(&self, crd: &str, revision: Revision, spec: Digest, going: bool) -> bool {
        let state = self.state.read();
        let same = state.custom.get(&place(crd)).filter(|before| before.spec == spec && before.going == going);
        if let Some(same) = same {
            same.tenure.confirm(revision);
        }
        same.is_some()
    }

    /// Since when the objects of a CRD are kept like this, if that has not changed.
    pub fn kept_since(&self, crd: &str, kept_as: Digest) -> Option<Revision> {
        let state = self.state.read();
        let before = state.custom.get(&place(crd)).filter(|before| before.kept_as == kept_as);
        before.map(|before| before.since)
    }

    /// Sets the rows of one CRD as of `revision`, made from the spec of this digest.
    pub fn install(
        &self,
        crd: &str,
        revision: Revision,
        spec: Digest,
        kept_as: Digest,
        going: bool,
        mut rows: Vec<Arc<Resource>>,
    ) {
        let at = place(crd);
        let mut state = self.state.write();
        let before = state.take(&at);
        let same = before.as_ref().filter(|before| before.spec == spec);
        let tenure = same.map_or_else(Tenure::default, |before| before.tenure.again());
        tenure.confirm(revision);
        for row in &mut rows {
            // Nobody else has them yet, so nothing is cloned.
            Arc::make_mut(row).tenure = Some(tenure.clone());
            state.add(row);
        }
        let since = rows.first().map_or(revision, |row| row.storage.since);
        state.custom.insert(at, Installed { spec, kept_as, since, going, tenure, rows });
        drop(state);
        // Only now: who is told and asks again must find the new rows.
        if let Some(before) = before.filter(|before| before.spec != spec) {
            before.tenure.end(revision);
        }
    }

    /// Takes the rows of one CRD out as of `revision`.
    pub fn remove(&self, crd: &str, revision: Revision) {
        let before = self.state.write().take(&place(crd));
        if let Some(before) = before {
            before.tenure.end(revision);
        }
    }
}

impl State {
    fn add(&mut self, row: &Arc<Resource>) {
        self.by_path.insert(path(row), row.clone());
        // Preferably through the version that objects are stored in, so that nothing has to be converted.
        let stored_as = row.is_api_version(&row.storage.api_version);
        let by_prefix = self.by_prefix.entry(row.storage.prefix.clone());
        by_prefix
            .and_modify(|known| {
                if stored_as {
                    known.clone_from(row)
                }
            })
            .or_insert_with(|| row.clone());
        self.by_kind.entry((row.group.clone(), row.kind.clone())).or_insert_with(|| row.clone());
        self.claims.extend(claims(row));
        self.changed();
    }

    /// Takes out what a CRD brought.
    fn take(&mut self, at: &(Box<str>, Box<str>)) -> Option<Installed> {
        let installed = self.custom.remove(at)?;
        for row in &installed.rows {
            self.by_path.remove(&path(row));
            self.by_prefix.remove(&row.storage.prefix);
            self.by_kind.remove(&(row.group.clone(), row.kind.clone()));
            for claim in claims(row) {
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
fn place(crd: &str) -> (Box<str>, Box<str>) {
    let (plural, group) = crd.split_once('.').unwrap_or((crd, ""));
    (group.into(), plural.into())
}

fn path(row: &Resource) -> Path {
    (row.group.clone(), row.version.clone(), row.plural.clone())
}

fn claims(row: &Resource) -> impl Iterator<Item = Claim> + '_ {
    let resource = [&row.plural, &row.singular].into_iter().chain(&row.short_names);
    let resource = resource.map(|name| (Named::Resource, name));
    let kind = [&row.kind, &row.list_kind].map(|name| (Named::Kind, name));
    // Nobody can have the names of a built-in kind, not even under its own plural.
    let owner: Box<str> = if row.custom { row.plural.clone() } else { "".into() };
    resource.chain(kind).map(move |(named, name)| (row.group.clone(), named, name.clone(), owner.clone()))
}
