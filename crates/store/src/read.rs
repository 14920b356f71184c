//! The types of a read: a range of keys goes in; a page of entries comes out, or why that revision cannot be read.

use thiserror::Error;

use crate::{Entry, Revision};

/// Which keys to read, and as of when. The default is all keys, now.
///
/// ```
/// use konverge_store::Range;
/// let first = Range { prefix: "/pods/", limit: Some(500), ..Range::default() };
/// let second = Range { after: Some("/pods/default/web-499"), ..first };
/// # assert_eq!(second.prefix, "/pods/");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'a> {
    /// Only keys that begin with this; empty: all.
    pub prefix: &'a str,
    /// Only keys after this one, which itself is left out: the last key of the page before.
    pub after: Option<&'a str>,
    /// At most so many entries; `None`: all.
    pub limit: Option<usize>,
    /// As of this revision; `None`: the newest.
    pub at: Option<Revision>,
}

/// The answer to a [`Range`]: entries in key order, all as of one revision.
#[derive(Clone, Debug)]
pub struct Page {
    /// What was found, ordered by key.
    pub entries: Vec<Entry>,
    /// The revision the page was read at: ask for the next page at the same one.
    pub revision: Revision,
    /// Whether the limit cut something off. How much, [`crate::Store::count`] tells those who need to know.
    pub more: bool,
}

/// Why a revision cannot be read or watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The requested revision is compacted: start again from the newest.
    #[error("revision {asked} is compacted: the oldest that can be read is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest that can still be read.
        oldest: Revision,
    },
    /// The revision was not reached yet.
    #[error("revision {asked} is in the future: the newest is {newest}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The newest there is.
        newest: Revision,
    },
}
