//! The trait that every backend implements, and what it promises. [`crate::conformance`] is its definition in tests.

use std::{path::Path, pin::Pin, time::Instant};

use tokio::sync::watch;

use crate::{BackupError, Commit, CommitError, Entry, Health, Page, Range, ReadError, Revision, Watch};

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A revisioned, ordered, watchable key-value store.
///
/// Reads answer at once, from memory; only [`Store::commit`] waits. What a read or a watch shows is durable (as far as
/// the backend is) and has a revision.
///
/// ```
/// use konverge_store::{Commit, Memory, Range, Store};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Memory::default();
/// let first = store.commit(Commit::default().absent("/a").put("/a", "1")).await?;
/// store.commit(Commit::default().unchanged("/a", first).put("/a", "2").put("/b", "2")).await?;
///
/// assert_eq!(store.range(Range::default())?.entries.len(), 2);
/// assert_eq!(store.get("/a", Some(first))?.unwrap().value, "1");
///
/// let mut watch = store.watch("/a", first)?;
/// assert_eq!(watch.next(100).await?[0].after.as_ref().unwrap().value, "2");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Store: Send + Sync + 'static {
    /// The newest committed revision.
    fn revision(&self) -> Revision;

    /// The oldest revision that can be read, and the oldest a watch can begin after.
    fn oldest(&self) -> Revision;

    /// One key, now or as of a revision.
    fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError>;

    /// Some keys in order, now or as of a revision.
    fn range(&self, range: Range<'_>) -> Result<Page, ReadError>;

    /// How many keys a range has, whatever its limit. This visits all of them.
    fn count(&self, range: Range<'_>) -> Result<usize, ReadError>;

    /// Check and write in one step. Resolves when the commit is durable and visible, with its revision; with the
    /// newest revision if it changed nothing. Dropping the future does not undo the commit.
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Revision, CommitError>>;

    /// Every change of keys under `prefix` after `after`: each once, in order, or [`ReadError::Compacted`].
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError>;

    /// Forget what was before `before`: it becomes the oldest readable revision. Newest versions stay.
    fn compact(&self, before: Revision);

    /// Gives back what time has made useless: history that is too old although nothing is committed any more. Call it
    /// about once a minute; it does a little at a time, but may take a tenth of a second in all.
    fn maintain(&self, now: Instant);

    /// Whether it can write, now and whenever that changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// A consistent copy to a new file, while everything goes on; [`crate::restore`] makes a store of it again.
    /// Blocks for as long as the disk takes.
    fn backup(&self, to: &Path) -> Result<Revision, BackupError>;
}
