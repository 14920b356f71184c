//! Under which name fields are owned. In: the name of a controller. Out: a name that servers accept, and the annotation that
//! goes with it.

use std::fmt;
use std::sync::Arc;

use super::digest::digest_of;

/// The name under which a controller owns fields: each controller has its own, which is the same after every restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldManager {
    name: Arc<str>,
    /// The annotation that holds the digest of what this manager applied: each has its own, or two controllers that
    /// apply to one object would see each other's.
    pub(super) mark: Arc<str>,
}

impl FieldManager {
    /// The longest name a server takes.
    const MOST_BYTES: usize = 128;

    /// A name, cut to what servers accept: printable, at most 128 bytes.
    ///
    /// ```
    /// use konverge_runtime::FieldManager;
    /// assert_eq!(FieldManager::new("webapp-operator").as_str(), "webapp-operator");
    /// ```
    pub fn new(name: &str) -> Self {
        let mut printable: String = name.chars().filter(|c| !c.is_control()).collect();
        let cut = (0..=Self::MOST_BYTES.min(printable.len())).rev().find(|at| printable.is_char_boundary(*at));
        printable.truncate(cut.unwrap_or_default());
        if printable.is_empty() {
            printable.push_str("konverge");
        }
        Self { mark: mark(&printable).into(), name: printable.into() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The annotation of a manager of this name.
fn mark(name: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends_fine = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 63 && name.chars().all(is_fine) && ends_fine(name.chars().next()) && ends_fine(name.chars().last())
    {
        return format!("applied.konverge.dev/{name}");
    }
    format!("applied.konverge.dev/{}", digest_of(&[name]))
}

impl fmt::Display for FieldManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
