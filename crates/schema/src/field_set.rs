//! A set of fields of an object: what server-side apply calls ownership.
//! In: paths, an object, FieldsV1. Out: unions and differences, FieldsV1, paths as conflicts print them.
//! It never looks at values, but for those that tell list items apart.

mod codec;
mod element;

use std::fmt;

use serde_json::Value;

pub use codec::FieldsV1Error;
pub use element::PathElement;
pub(crate) use element::equal_values;

/// A set of paths, as a tree: each entry is one step, whether the path ending there is in the set,
/// and what is in the set below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; no entry is both no member and without children.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) element: PathElement,
    pub(crate) member: bool,
    pub(crate) children: FieldSet,
}

/// A path, printed as Kubernetes prints it: `.spec.ports[port=80,protocol="TCP"].targetPort`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl FieldSet {
    /// The set of these paths of field names: `[&["spec"], &["metadata", "labels"]]`.
    pub fn of_fields<'a>(paths: impl IntoIterator<Item = &'a [&'a str]>) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// The set of these entries, in any order.
    pub(crate) fn from_entries(mut entries: Vec<Entry>) -> Self {
        entries.retain(|entry| entry.member || !entry.children.is_empty());
        if !entries.is_sorted_by(|a, b| a.element < b.element) {
            entries.sort_by(|a, b| a.element.cmp(&b.element));
            let mut unique: Vec<Entry> = Vec::with_capacity(entries.len());
            let mut joined = Vec::new();
            for entry in entries {
                match unique.last_mut() {
                    Some(last) if last.element == entry.element => {
                        last.member |= entry.member;
                        last.children.entries.extend(entry.children.entries);
                        joined.push(unique.len() - 1);
                    }
                    _ => unique.push(entry),
                }
            }
            // Sorted once for all that share an element: to merge them one after the other is quadratic.
            joined.dedup();
            for at in joined {
                let children = std::mem::take(&mut unique[at].children.entries);
                unique[at].children = Self::from_entries(children);
            }
            entries = unique;
        }
        Self { entries }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds a path. The path to the whole object cannot be owned, so it adds nothing.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                let entry = Entry { element: first.clone(), member: false, children: Self::default() };
                self.entries.insert(at, entry);
                at
            }
        };
        if rest.is_empty() {
            self.entries[at].member = true;
        } else {
            self.entries[at].children.insert(rest);
        }
    }

    /// Whether this very path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.member(last),
            [first, rest @ ..] => self.below(first).is_some_and(|set| set.has(rest)),
        }
    }

    /// Whether there is no path in the set.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the path of this one step is in the set.
    pub(crate) fn member(&self, element: &PathElement) -> bool {
        self.find(element).is_ok_and(|at| self.entries[at].member)
    }

    /// What is in the set below this step.
    pub(crate) fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.find(element).ok().map(|at| &self.entries[at].children).filter(|set| !set.is_empty())
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.element.cmp(element))
    }

    /// The same, where elements are asked for in their order: `from` is where the search begins and then ends.
    fn find_from(&self, from: &mut usize, element: &PathElement) -> Option<usize> {
        match self.entries[*from..].binary_search_by(|entry| entry.element.cmp(element)) {
            Ok(at) => {
                *from += at + 1;
                Some(*from - 1)
            }
            Err(at) => {
                *from += at;
                None
            }
        }
    }

    /// Paths in either set.
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add_all(other.clone());
        all
    }

    /// Paths in any of these sets, in one go: one union after the other copies the first set as often as there are others.
    pub fn union_all<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let entries: Vec<Entry> = sets.into_iter().flat_map(|set| &set.entries).cloned().collect();
        Self::from_entries(entries)
    }

    /// Adds every path of the other set.
    pub fn add_all(&mut self, other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        let mut merged = Vec::with_capacity(self.entries.len() + other.entries.len());
        let mut mine = std::mem::take(&mut self.entries).into_iter().peekable();
        for theirs in other.entries {
            while let Some(entry) = mine.next_if(|entry| entry.element < theirs.element) {
                merged.push(entry);
            }
            match mine.next_if(|entry| entry.element == theirs.element) {
                Some(mut entry) => {
                    entry.member |= theirs.member;
                    entry.children.add_all(theirs.children);
                    merged.push(entry);
                }
                None => merged.push(theirs),
            }
        }
        merged.extend(mine);
        self.entries = merged;
    }

    /// Paths in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        // The smaller level is looked up in the larger one, so that many small sets against a large one stay cheap.
        let (few, many) = if self.entries.len() <= other.entries.len() { (self, other) } else { (other, self) };
        let mut entries = Vec::new();
        let mut from = 0;
        for a in &few.entries {
            let Some(b) = many.find_from(&mut from, &a.element) else { continue };
            let b = &many.entries[b];
            push(&mut entries, &a.element, a.member && b.member, a.children.intersection(&b.children));
        }
        Self { entries }
    }

    /// Paths in this set and not in the other, each path for itself: taking `a` away leaves `a.b`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.remove_all(other);
        rest
    }

    /// Removes every path of the other set, each path for itself.
    pub fn remove_all(&mut self, other: &Self) {
        self.subtract(other, |mine, theirs| {
            mine.member &= !theirs.member;
            mine.children.remove_all(&theirs.children);
        });
    }

    /// Paths in this set that are neither in the other nor below a path that is: taking `a` away takes
    /// `a.b` too.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.remove_all_below(other);
        rest
    }

    /// Removes every path of the other set with all below it.
    pub fn remove_all_below(&mut self, other: &Self) {
        self.subtract(other, |mine, theirs| {
            if theirs.member {
                mine.member = false;
                mine.children = Self::default();
            } else {
                mine.children.remove_all_below(&theirs.children);
            }
        });
    }

    /// Lets `subtract` work on every entry both sets have, and drops those left with nothing to say.
    fn subtract(&mut self, other: &Self, mut subtract: impl FnMut(&mut Entry, &Entry)) {
        let mut emptied = false;
        let mut from = 0;
        let mut visit = |mine: &mut Entry, theirs: &Entry| {
            subtract(mine, theirs);
            emptied |= !mine.member && mine.children.is_empty();
        };
        if self.entries.len() <= other.entries.len() {
            for mine in &mut self.entries {
                if let Some(at) = other.find_from(&mut from, &mine.element) {
                    visit(mine, &other.entries[at]);
                }
            }
        } else {
            for theirs in &other.entries {
                if let Some(at) = self.find_from(&mut from, &theirs.element) {
                    visit(&mut self.entries[at], theirs);
                }
            }
        }
        if emptied {
            self.entries.retain(|entry| entry.member || !entry.children.is_empty());
        }
    }

    /// The paths in the set that have no path below them in it.
    pub fn leaves(&self) -> Self {
        let leaf = |entry: &Entry| Entry {
            element: entry.element.clone(),
            member: entry.children.is_empty(),
            children: entry.children.leaves(),
        };
        Self { entries: self.entries.iter().map(leaf).collect() }
    }

    /// Every path in the set, in the order Kubernetes reports them: at each level first what is owned
    /// there, then what is owned deeper.
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Path>) {
        for entry in self.entries.iter().filter(|entry| entry.member) {
            let mut path = prefix.clone();
            path.push(entry.element.clone());
            out.push(Path(path));
        }
        for entry in &self.entries {
            prefix.push(entry.element.clone());
            entry.children.collect(prefix, out);
            prefix.pop();
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// One path a line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, path) in self.paths().iter().enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            write!(f, "{newline}{path}")?;
        }
        Ok(())
    }
}

impl TryFrom<&Value> for FieldSet {
    type Error = FieldsV1Error;

    fn try_from(fields_v1: &Value) -> Result<Self, FieldsV1Error> {
        Self::from_fields_v1(fields_v1)
    }
}

/// Adds an entry unless it would say nothing.
fn push(entries: &mut Vec<Entry>, element: &PathElement, member: bool, children: FieldSet) {
    if member || !children.is_empty() {
        entries.push(Entry { element: element.clone(), member, children });
    }
}

#[cfg(test)]
mod tests;
