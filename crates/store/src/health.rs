//! Whether a store can write, for readiness probes, logs and programs that end when it cannot. It never says why a single
//! commit failed: [`crate::CommitError`] does.

use std::sync::Arc;

/// Whether a store can write. Reads always can.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// It can.
    #[default]
    Fine,
    /// It cannot, or only what makes room; it tries again by itself. The text says what is wrong and what to do.
    Failing(Arc<str>),
    /// It never will again in this process: what the disk holds is known only after a restart. The text says why.
    Broken(Arc<str>),
}

impl Health {
    /// What is wrong; `None`: nothing.
    pub fn problem(&self) -> Option<&Arc<str>> {
        match self {
            Health::Fine => None,
            Health::Failing(why) | Health::Broken(why) => Some(why),
        }
    }
}
