//! The field manager of a controller. In: the name of a controller. Out: a name that servers accept, and the annotation of
//! that manager.

use std::fmt;
use std::sync::Arc;

use super::digest::digest_of;

/// The name under which a controller owns fields. Each controller has its own, which is the same after every restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldManager {
    name: Arc<str>,
    /// The annotation that holds the digest of the configuration that this manager applied last. Each manager has its own,
    /// because two controllers may apply to one object.
    pub(super) digest_annotation: Arc<str>,
}

impl FieldManager {
    /// The longest name that a server accepts.
    const MAX_BYTES: usize = 128;

    /// A field manager with this name, cut to what servers accept: printable, at most 128 bytes.
    ///
    /// ```
    /// use konverge_runtime::FieldManager;
    /// assert_eq!(FieldManager::new("webapp-operator").as_str(), "webapp-operator");
    /// ```
    pub fn new(name: &str) -> Self {
        let mut printable: String = name.chars().filter(|c| !c.is_control()).collect();
        let cut = (0..=Self::MAX_BYTES.min(printable.len())).rev().find(|at| printable.is_char_boundary(*at));
        printable.truncate(cut.unwrap_or_default());
        if printable.is_empty() {
            printable.push_str("konverge");
        }
        Self { digest_annotation: digest_annotation(&printable).into(), name: printable.into() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }
}

/// The annotation of the manager with this name.
fn digest_annotation(name: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_allowed_end = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 63
        && name.chars().all(is_allowed)
        && is_allowed_end(name.chars().next())
        && is_allowed_end(name.chars().last())
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
