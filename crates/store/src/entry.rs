//! What readers get: one version of one key, and the change from one version to the next. Both are cheap to clone, because key
//! and value are shared. `Debug` does not show the value, which may be a secret, because it ends up in logs.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::Revision;

/// One version of one key.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name under which the value is stored; keys are ordered by their bytes.
    pub key: Arc<str>,
    /// The value, shared with the store: cloning copies no bytes.
    pub value: Bytes,
    /// The commit that wrote this version.
    pub revision: Revision,
    /// The commit that created the key; a key that is created again after a deletion has a new one.
    pub created: Revision,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { key, value, revision, created } = self;
        write!(f, "{key}@{revision} (created {created}, {} bytes)", value.len())
    }
}

/// One committed change of one key, as a watch hands it out. At least one of `before` and `after` is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The commit that did it; all changes of one commit share it.
    pub revision: Revision,
    /// The key that changed.
    pub key: Arc<str>,
    /// The version before; `None`: the key was created.
    pub before: Option<Entry>,
    /// The version after; `None`: the key was deleted.
    pub after: Option<Entry>,
}
