//! What is logged, for tests. In: spans and events of a level or a worse one. Out: a line for each. Only what this crate says.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A log that remembers. Clones are the same.
#[derive(Clone)]
pub(crate) struct Said {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Said {
    /// Nothing yet; takes what is at least as bad as `level`.
    pub fn at(level: Level) -> Self {
        Self { level, lines: Arc::default() }
    }

    /// What was said so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("konverge")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.lines.lock().push(format!("{span:?}"));
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        self.lines.lock().push(format!("{event:?}"));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
