//! The table of kinds: built-in rows, and the rows that CRDs add while the server runs. In: rows. Out: the row
//! a request is about. A reader takes a snapshot and is not disturbed by later changes.

use std::collections::{BTreeMap, HashMap};
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
    by_path: HashMap<Path, Arc<Resource>>,
    /// Grows with every change of the table, so that documents made from it can be kept until it does.
    pub generation: u64,
}

type Path = (Box<str>, Box<str>, Box<str>);

impl Kinds {
    fn new(rows: Vec<Arc<Resource>>, generation: u64) -> Self {
        let path = |row: &Resource| (row.group.clone(), row.version.clone(), row.plural.clone());
        let by_path = rows.iter().map(|row| (path(row), row.clone())).collect();
        Self { rows, by_path, generation }
    }

    /// Every row: built-in kinds first, in the order clients prefer, then custom ones by group.
    pub fn rows(&self) -> &[Arc<Resource>] {
        &self.rows
    }

    /// The row that a path names.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(&(group.into(), version.into(), plural.into()))
    }

    /// Whether this version of a group has built-in kinds.
    pub fn builds_in(&self, group: &str, version: &str) -> bool {
        self.rows.iter().any(|row| !row.custom && &*row.group == group && &*row.version == version)
    }

    /// One row for each place where objects are kept, whichever versions serve it.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let mut seen = std::collections::HashSet::new();
        self.rows.iter().filter(move |row| seen.insert(&*row.shelf.prefix))
    }
}

/// The table, changing.
#[derive(Debug)]
pub(crate) struct KindTable {
    builtin: Vec<Arc<Resource>>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What each CRD brought.
    custom: BTreeMap<String, Installed>,
    current: Arc<Kinds>,
}

/// The rows of one CRD.
#[derive(Debug)]
struct Installed {
    /// Of the CRD they were made from.
    revision: Revision,
    /// Of its spec: rows that come from the same one replace each other unnoticed.
    spec: Option<Digest>,
    tenure: Tenure,
    rows: Vec<Arc<Resource>>,
}

impl KindTable {
    pub fn new(builtin: Vec<Arc<Resource>>) -> Self {
        let current = Arc::new(Kinds::new(builtin.clone(), 0));
        Self { builtin, state: RwLock::new(State { current, ..State::default() }) }
    }

    /// The table as it is now.
    pub fn snapshot(&self) -> Arc<Kinds> {
        self.state.read().current.clone()
    }

    /// Sets the rows of one CRD as of `revision`, made from the spec of this digest. News that comes late changes nothing.
    pub fn install(&self, crd: &str, revision: Revision, spec: Digest, rows: Vec<Arc<Resource>>) {
        self.set(crd, revision, Some(spec), rows);
    }

    /// Takes the rows of one CRD out as of `revision`.
    pub fn remove(&self, crd: &str, revision: Revision) {
        self.set(crd, revision, None, Vec::new());
    }

    fn set(&self, crd: &str, revision: Revision, spec: Option<Digest>, mut rows: Vec<Arc<Resource>>) {
        let mut state = self.state.write();
        let before = state.custom.get(crd);
        if before.is_some_and(|before| before.revision > revision) {
            return;
        }
        let same = before.filter(|before| before.spec == spec);
        let tenure = same.map(|before| before.tenure.clone()).unwrap_or_default();
        for row in &mut rows {
            // Nobody else has them yet, so nothing is cloned.
            Arc::make_mut(row).tenure = Some(tenure.clone());
        }
        let before = state.custom.insert(crd.to_owned(), Installed { revision, spec, tenure, rows });
        let mut custom: Vec<_> = state.custom.values().flat_map(|crd| crd.rows.iter().cloned()).collect();
        custom.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
        let rows = self.builtin.iter().cloned().chain(custom).collect();
        state.current = Arc::new(Kinds::new(rows, state.current.generation + 1));
        drop(state);
        // Only now: who is told and asks again must find the new rows.
        if let Some(before) = before.filter(|before| before.spec != spec) {
            before.tenure.end(revision);
        }
    }
}
