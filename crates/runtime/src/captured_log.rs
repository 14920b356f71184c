//! The log of a test. In: spans and events of this crate, of a level or a worse one. Out: a line for each.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps what is logged. Clones share the lines.
#[derive(Clone)]
pub(crate) struct CapturedLog {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl CapturedLog {
    /// An empty log of lines that are at least as bad as `level`.
    pub(crate) fn at(level: Level) -> Self {
        Self { level, lines: Arc::default() }
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

impl Subscriber for CapturedLog {
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
