//! The one number that orders everything: comes from a commit, goes to readers and watchers, never goes back.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

/// A point in the store's life. Grows by one with each commit that changes something.
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

    /// The first revision of a store that is created at this time: the microseconds since 1970.
    ///
    /// Clients remember revisions for longer than stores live. A store makes fewer than one revision a microsecond, so
    /// every revision of an earlier store is before this one, and a client with such a revision gets an error instead of a
    /// different history. This is not true if the clock was set back in between. The number
    /// stays below 2^53, which every JSON reader can hold, until the year 2255.
    #[must_use]
    pub fn begin(now: SystemTime) -> Revision {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Revision(u64::try_from(since.as_micros()).unwrap_or(u64::MAX / 2))
    }

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
