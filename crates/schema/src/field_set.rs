//! A set of fields of an object, in which server-side apply records ownership.
//! In: paths or FieldsV1. Out: unions and differences, FieldsV1, paths as conflicts print them.
//! It holds no values, except for those that identify list items.

mod codec;
mod element;

use std::fmt;

use serde_json::Value;

pub use codec::FieldsV1Error;
pub use element::PathElement;
pub(crate) use element::equal_values;

/// A set of paths, as a tree: each entry has one path element, whether the path that ends there is in the set, and the
/// set of the paths below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element. Every entry is a member or has children.
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
pub struct FieldSetPath(pub Vec<PathElement>);

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
            // The children of equal elements are sorted once for all: merging them one by one would be quadratic.
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

    /// Whether this path itself is in the set.
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

    /// Whether the path of this one element is in the set.
    pub(crate) fn member(&self, element: &PathElement) -> bool {
        self.find(element).is_ok_and(|at| self.entries[at].member)
    }

    /// The set of the paths below this element.
    pub(crate) fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.find(element).ok().map(|at| &self.entries[at].children).filter(|set| !set.is_empty())
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.element.cmp(element))
    }

    /// Like `find`, for elements in ascending order: the search begins at `from`, which is moved behind the result.
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

    /// Paths in any of these sets. This is faster than one union after the other, which would copy the first set each time.
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
        // Entries of the smaller set are looked up in the larger one, so that a small set against a large one stays cheap.
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

    /// Paths in this set that are not in the other. Each path counts by itself: removing `a` keeps `a.b`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.remove_all(other);
        rest
    }

    /// Removes every path of the other set. Each path counts by itself: removing `a` keeps `a.b`.
    pub fn remove_all(&mut self, other: &Self) {
        self.subtract(other, |mine, theirs| {
            mine.member &= !theirs.member;
            mine.children.remove_all(&theirs.children);
        });
    }

    /// Paths in this set that are neither in the other nor below one of its paths: removing `a` removes `a.b`, too.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.remove_all_below(other);
        rest
    }

    /// Removes every path of the other set and everything below it.
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

    /// Calls `subtract` with every entry that both sets have, and drops the entries that become empty.
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

    /// The paths that have no other path of the set below them.
    pub fn leaves(&self) -> Self {
        let leaf = |entry: &Entry| Entry {
            element: entry.element.clone(),
            member: entry.children.is_empty(),
            children: entry.children.leaves(),
        };
        Self { entries: self.entries.iter().map(leaf).collect() }
    }

    /// Every path in the set, in the order in which Kubernetes reports them: at each level first the paths that end there,
    /// then the longer ones.
    pub fn paths(&self) -> Vec<FieldSetPath> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<FieldSetPath>) {
        for entry in self.entries.iter().filter(|entry| entry.member) {
            let mut path = prefix.clone();
            path.push(entry.element.clone());
            out.push(FieldSetPath(path));
        }
        for entry in &self.entries {
            prefix.push(entry.element.clone());
            entry.children.collect(prefix, out);
            prefix.pop();
        }
    }
}

impl fmt::Display for FieldSetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// One path per line.
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

/// Adds an entry unless it is empty.
fn push(entries: &mut Vec<Entry>, element: &PathElement, member: bool, children: FieldSet) {
    if member || !children.is_empty() {
        entries.push(Entry { element: element.clone(), member, children });
    }
}

#[cfg(test)]
mod tests;
