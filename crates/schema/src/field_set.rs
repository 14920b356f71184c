//! A set of fields of an object: what server-side apply calls ownership.
//! In: paths, an object, FieldsV1. Out: unions and differences, FieldsV1, paths as conflicts print them.
//! It never looks at values, but for those that tell list items apart.

mod codec;
mod element;

use std::cmp::Ordering;
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
            for entry in entries {
                match unique.last_mut() {
                    Some(last) if last.element == entry.element => {
                        last.member |= entry.member;
                        last.children = last.children.union(&entry.children);
                    }
                    _ => unique.push(entry),
                }
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

    /// Paths in either set.
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add_all(other.clone());
        all
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
        let mut entries = Vec::new();
        zip(self, other, |a, b| {
            let (Some(a), Some(b)) = (a, b) else { return };
            push(&mut entries, &a.element, a.member && b.member, a.children.intersection(&b.children));
        });
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
        for theirs in &other.entries {
            match self.entries[from..].binary_search_by(|mine| mine.element.cmp(&theirs.element)) {
                Ok(at) => {
                    let mine = &mut self.entries[from + at];
                    subtract(mine, theirs);
                    emptied |= !mine.member && mine.children.is_empty();
                    from += at + 1;
                }
                Err(at) => from += at,
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

/// Walks two sorted levels side by side.
fn zip<'a>(a: &'a FieldSet, b: &'a FieldSet, mut visit: impl FnMut(Option<&'a Entry>, Option<&'a Entry>)) {
    let (mut a, mut b) = (a.entries.iter().peekable(), b.entries.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(&b.element),
        };
        match order {
            Ordering::Less => visit(a.next(), None),
            Ordering::Greater => visit(None, b.next()),
            Ordering::Equal => visit(a.next(), b.next()),
        }
    }
}

#[cfg(test)]
mod tests;
