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
