//! A revisioned, ordered, watchable key-value store. It knows nothing of Kubernetes.
//!
//! ```text
//!   commit ──▶ one revision for all its keys ──▶ readable ──▶ watchable
//!                         (disk: fsync before any of it)
//! ```
//!
//! Every commit that changes something gets the next [`Revision`], one number for the whole store.
//! Reads may look back to any revision that is not compacted yet; a watch hands out every change
//! after a revision, once, in order, or says that it is too late.
//!
//! ```text
//!   revision, entry, read, commit, health, store   the words and the trait: what a store promises
//!   index                                   the pure machine: keys, versions, history, compaction
//!   hub, watch                              who is woken, and each watcher's own way through the history
//!   ledger                                  index and hub behind one lock: what every backend shows
//!   memory, disk, backup                    where it is kept
//!   conformance                             the trait's definition as a test that every backend runs
//! ```
//!
//! This crate never parses a value, never starts a task, and never acknowledges what is not durable.

mod commit;
mod entry;
mod health;
mod read;
mod revision;
mod store;

mod index;

mod watch;
mod watch_hub;

mod ledger;

mod backup;
mod disk;
mod memory;

pub mod conformance;

pub use backup::{BackupError, RestoreError, restore};
pub use commit::{Commit, CommitError, Condition, Write};
pub use disk::{Disk, DiskStats, OpenError};
pub use entry::{Change, Entry};
pub use health::Health;
pub use index::Retention;
pub use memory::Memory;
pub use read::{Page, Range, ReadError};
pub use revision::Revision;
pub use store::{BoxFuture, Store};
pub use watch::Watch;
