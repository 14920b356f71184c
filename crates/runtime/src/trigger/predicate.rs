//! Which changes count. In: an object as it was and as it is. Out: whether to wake anybody. A deletion always counts, and
//! so does its start, when the object gets a deletionTimestamp: cleanups run then. An object that is new counts, too:
//! there is nothing to compare with.

use std::sync::Arc;

use super::guarded;
use crate::cache::Change;
use crate::object::Object;

/// None if it cannot be decided.
type Test = Arc<dyn Fn(&Object, &Object) -> Option<bool> + Send + Sync>;

/// Says of an object as it was and as it is whether the difference counts.
///
/// ```
/// use konverge_runtime::Predicate;
/// let counts = Predicate::generation_changed().or(Predicate::annotations_changed());
/// ```
#[derive(Clone)]
pub struct Predicate(Test);

impl Predicate {
    /// Any function of an object as it was and as it is.
    pub fn new(test: impl Fn(&Object, &Object) -> bool + Send + Sync + 'static) -> Self {
        Self::undecided_if_none(move |before, after| Some(test(before, after)))
    }

    /// The same for a function that cannot decide about every change. An undecided change counts, and the negation of an
    /// undecided predicate is undecided, too: a reconcile too many does no harm.
    pub fn undecided_if_none(test: impl Fn(&Object, &Object) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// Every change counts.
    pub fn always() -> Self {
        Self::new(|_, _| true)
    }

    /// The generation is another one: the spec of most kinds changed, or the object began to be deleted. A kind without
    /// generations always counts.
    pub fn generation_changed() -> Self {
        Self::new(|before, after| after.generation().is_none() || before.generation() != after.generation())
    }

    /// The spec is another one, compared as it is written: for kinds without generations. Objects without a spec, among
    /// them all of which only the metadata is watched, are undecided.
    pub fn spec_changed() -> Self {
        Self::undecided_if_none(|before, after| match (before.pointer("/spec"), after.pointer("/spec")) {
            (None, None) => None,
            (before, after) => Some(before != after),
        })
    }

    /// The labels are others.
    pub fn labels_changed() -> Self {
        Self::new(|before, after| before.labels_json() != after.labels_json())
    }

    /// The annotations are others.
    pub fn annotations_changed() -> Self {
        Self::new(|before, after| before.annotations_json() != after.annotations_json())
    }

    /// The finalizers are others.
    pub fn finalizers_changed() -> Self {
        Self::new(|before, after| !before.finalizers().eq(after.finalizers()))
    }

    /// It began to be deleted. That counts whatever the predicate; this one is for those who want nothing else.
    pub fn terminating_changed() -> Self {
        Self::new(|before, after| before.is_terminating() != after.is_terminating())
    }

    /// The resource version is another one: anything changed.
    pub fn resource_version_changed() -> Self {
        Self::new(|before, after| before.resource_version() != after.resource_version())
    }

    /// Both count it.
    pub fn and(self, other: Self) -> Self {
        Self::undecided_if_none(move |before, after| match (self.0)(before, after) {
            Some(false) => Some(false),
            Some(true) => (other.0)(before, after),
            None => (other.0)(before, after).filter(|counts| !counts),
        })
    }

    /// At least one counts it.
    pub fn or(self, other: Self) -> Self {
        Self::undecided_if_none(move |before, after| match (self.0)(before, after) {
            Some(true) => Some(true),
            Some(false) => (other.0)(before, after),
            None => (other.0)(before, after).filter(|counts| *counts),
        })
    }

    /// This one does not count it.
    #[expect(clippy::should_implement_trait, reason = "it stands beside `and` and `or`")]
    pub fn not(self) -> Self {
        Self::undecided_if_none(move |before, after| (self.0)(before, after).map(|counts| !counts))
    }

    /// Whether a change goes through. One that is not between two states of the same object always does, and so do the
    /// start of a deletion and a change that the predicate cannot decide or panics about: a reconcile too many does no harm, one too few
    /// may.
    pub fn lets_through(&self, change: &Change) -> bool {
        match (change.before(), change.after()) {
            (Some(before), Some(after)) if before.is_terminating() != after.is_terminating() => true,
            (Some(before), Some(after)) => guarded(|| (self.0)(before, after).unwrap_or(true)).unwrap_or_else(|| {
                tracing::error!(key = %change.key(), "a predicate panicked; the change counts");
                true
            }),
            _ => true,
        }
    }
}
