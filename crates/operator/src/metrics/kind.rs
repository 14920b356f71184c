//! What is known of one kind: objects by namespace and phase, once a change; the size of its cache, when somebody asks.
//! Out: numbers that the table of families shows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::controller::OVERFLOW;

/// Figures of the cache of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// How many objects.
    pub objects: usize,
    /// How many bytes they take.
    pub bytes: usize,
    /// How often its watch had to be tried again.
    pub restarts: u64,
}

#[derive(Default)]
pub(super) struct State {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Namespace → phase → objects; those without a phase are under the empty one.
    namespaces: BTreeMap<String, BTreeMap<String, u64>>,
    /// Phases that have a label of their own. It only grows, so that an object leaves under the label it came with.
    phases: Vec<String>,
}

/// Limits label values: a `status.phase` with free text would create a series per text.
const PHASES: usize = 25;

impl Counts {
    fn change(&mut self, namespace: &str, phase: &str, change: fn(&mut u64)) {
        let phase = if phase.is_empty() || self.phases.iter().any(|known| known == phase) {
            phase
        } else if self.phases.len() < PHASES {
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
    /// Calls with each namespace, each phase in it, and the number of objects.
    pub fn counts(&self, mut each: impl FnMut(&str, &str, u64)) {
        for (namespace, phases) in &self.counts.lock().namespaces {
            for (phase, count) in phases {
                each(namespace, phase, *count);
            }
        }
    }
}

/// The handles of one kind, from [`Metrics::kind`](super::Metrics::kind). Cheap to clone.
#[derive(Clone)]
pub struct KindMetrics(Arc<State>);

impl fmt::Debug for KindMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KindMetrics")
    }
}

impl KindMetrics {
    pub(super) fn of(state: Arc<State>) -> Self {
        KindMetrics(state)
    }

    /// An object appeared, with this `status.phase`; empty for none. The namespace of cluster-wide objects is empty.
    pub fn added(&self, namespace: &str, phase: &str) {
        self.0.counts.lock().change(namespace, phase, |count| *count += 1);
    }

    /// An object is gone that had this phase.
    pub fn removed(&self, namespace: &str, phase: &str) {
        self.0.counts.lock().change(namespace, phase, |count| *count = count.saturating_sub(1));
    }

    /// An object went from one phase to another. Without a difference nothing is done.
    pub fn moved(&self, namespace: &str, from: &str, to: &str) {
        if from != to {
            self.added(namespace, to);
            self.removed(namespace, from);
        }
    }
}
