// The trait as agreed; split into files as STYLE.md asks.

/// One number for the whole store; grows by one with each commit.  Revision(0) = before anything.
pub struct Revision(pub u64);

/// One version of one key.
#[derive(Clone)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    /// The commit that wrote this version.
    pub revision: Revision,
    /// The commit that created the key.
    pub created: Revision,
}

pub struct Range<'a> {
    pub prefix: &'a str,
    /// Only keys after this one (exclusive), for paging.
    pub after: Option<&'a str>,
    /// At most so many entries; None = all
    pub limit: Option<usize>,
    /// As of this revision; None = newest
    pub at: Option<Revision>,
}
pub struct Page {
    pub entries: Vec<Entry>,
    /// the revision the page was read at
    pub revision: Revision,
    /// how many more entries follow in the range
    pub remaining: usize,
}

/// What must be true, and what is then done, in one step.
pub struct Commit { pub conditions: Vec<Condition>, pub writes: Vec<Write> }
pub enum Condition { Absent(Arc<str>), Unchanged(Arc<str>, Revision /* of its current version */) }
pub enum Write { Put(Arc<str>, Bytes), Delete(Arc<str>) }

pub enum CommitError {
    /// a condition does not hold; carries what is there now (None = absent)
    Conflict { key: Arc<str>, found: Option<Entry> },
    /// the store can no longer write (disk error); nothing of this commit is promised; message says what to do
    Unavailable(..),
}
pub enum ReadError { Compacted { asked: Revision, oldest: Revision }, Future { asked: Revision, newest: Revision } }

/// One committed change of one key, as a watch hands it out.
#[derive(Clone)]
pub struct Change {
    pub revision: Revision,
    pub key: Arc<str>,
    /// the version before; None = created
    pub before: Option<Entry>,
    /// the version after; None = deleted
    pub after: Option<Entry>,
}

pub trait Store: Send + Sync + 'static {
    fn revision(&self) -> Revision;            // newest committed
    fn oldest(&self) -> Revision;              // oldest readable revision (compacted up to here)
    fn get(&self, key: &str, at: Option<Revision>) -> Result<Option<Entry>, ReadError>;
    fn range(&self, range: Range<'_>) -> Result<Page, ReadError>;
    /// Resolves when durable and visible. Dropping the future does not undo the commit.
    fn commit(&self, commit: Commit) -> BoxFuture<'static, Result<Revision, CommitError>>;
    /// every change of keys under prefix after `after`.
    fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, ReadError>;
    /// forget history before `before` (current versions stay)
    fn compact(&self, before: Revision);
    /// a consistent copy to a file while running
    fn backup(&self, to: &Path) -> Result<Revision, BackupError>;
}

impl Watch {
    /// The next batch of changes (at least one, at most `max`), waiting if there is none.
    /// Cancel-safe. Err(Compacted) = the reader was too slow.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Change>, ReadError>;
    /// Everything up to here was handed out (or did not match): what a bookmark may promise.
    pub fn position(&self) -> Revision;
}
