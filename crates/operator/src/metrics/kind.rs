//! The metrics of one kind. In: objects that are added, change their phase and are removed. Out: object counts by namespace
//! and phase, for the table of families.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::controller::OVERFLOW;

/// Figures of the cache of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheMetrics {
    /// The number of objects.
    pub objects: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// How often its watch was restarted.
    pub restarts: u64,
}

#[derive(Default)]
pub(super) struct State {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Namespace → phase → objects. Objects without a phase are counted under an empty phase.
    namespaces: BTreeMap<String, BTreeMap<String, u64>>,
    /// Phases that have a label of their own. It only grows, so that an object is removed under the label under which it was
    /// added.
    phases: Vec<String>,
}

/// Limits label values: a `status.phase` with free text would create a series per text.
const MAX_PHASES: usize = 25;

impl Counts {
    fn change(&mut self, namespace: &str, phase: &str, change: fn(&mut u64)) {
        let phase = if phase.is_empty() || self.phases.iter().any(|known| known == phase) {
            phase
        } else if self.phases.len() < MAX_PHASES {
            self.phases.push(phase.into());
            phase
        } else {
            OVERFLOW
        };
        let phases = self.namespaces.entry(namespace.into()).or_default();
        change(phases.entry(phase.into()).or_insert(0));
        phases.retain(|_, count| *count > 0);
        if phases.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

impl State {
    /// Calls `each` with every namespace, every phase in it, and the number of objects.
    pub(super) fn counts(&self, mut each: impl FnMut(&str, &str, u64)) {
        for (namespace, phases) in &self.counts.lock().namespaces {
            for (phase, count) in phases {
                each(namespace, phase, *count);
            }
        }
    }
}

/// The handles of one kind, from [`Metrics::kind`](super::Metrics::kind). Cheap to clone.
#[derive(Clone)]
pub(crate) struct KindMetrics(Arc<State>);

impl fmt::Debug for KindMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KindMetrics")
    }
}

impl KindMetrics {
    pub(super) fn of(state: Arc<State>) -> Self {
        KindMetrics(state)
    }

    /// An object with this `status.phase` was added; an empty phase means none. The namespace of cluster-scoped objects is
    /// empty.
    pub(crate) fn added(&self, namespace: &str, phase: &str) {
        self.0.counts.lock().change(namespace, phase, |count| *count += 1);
    }

    /// An object with this phase was deleted.
    pub(crate) fn removed(&self, namespace: &str, phase: &str) {
        self.0.counts.lock().change(namespace, phase, |count| *count = count.saturating_sub(1));
    }

    /// An object changed its phase. Does nothing if both are the same.
    pub(crate) fn moved(&self, namespace: &str, from: &str, to: &str) {
        if from != to {
            self.added(namespace, to);
            self.removed(namespace, from);
        }
    }
}
