//! The one number that orders everything: comes from a commit, goes to readers and watchers, never goes back.

use std::fmt;

/// A point in the store's life. Grows by one with each commit that changes something; zero is before the first.
///
/// ```
/// use konverge_store::Revision;
/// assert!(Revision(7).next() > Revision(7));
/// assert_eq!(Revision(7).to_string(), "7");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// Before anything was written.
    pub const ZERO: Revision = Revision(0);

    /// The revision of the commit after this one.
    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// The revision of the commit before this one; zero has none and stays zero.
    #[must_use]
    pub fn previous(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
