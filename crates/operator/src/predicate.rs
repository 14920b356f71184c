//! Which changes reconcile an object. In: the object as it was and as it is. Out: whether the difference counts.

use std::fmt;
use std::marker::PhantomData;

use konverge_runtime::{Object, Predicate as EnginePredicate};
use serde::de::DeserializeOwned;

/// Says whether a change of an object counts: see [`Operator::when`](crate::Operator::when) and
/// [`Watch::when`](crate::Watch::when).
///
/// A new object always counts, and so do a deletion and its start. A predicate that panics lets the change through:
/// a reconcile too many does no harm, a missing one may.
///
/// ```
/// # use konverge::prelude::*;
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced)]
/// # pub struct ShopSpec { image: String }
/// let image_changed = Predicate::new(|old: &Shop, new: &Shop| old.spec.image != new.spec.image);
/// Operator::<Shop>::new().when(image_changed.or(Predicate::labels_changed()));
/// ```
pub struct Predicate<R> {
    engine: EnginePredicate,
    decoded: PhantomData<fn(&R)>,
}

impl<R: DeserializeOwned + 'static> Predicate<R> {
    /// Any function of the object as it was and as it is. Both are decoded for each change, which costs about as much as
    /// a reconcile that does nothing; the ready-made predicates decode nothing.
    ///
    /// A change from or to a state that does not decode is undecided, and counts: also after [`Predicate::not`], and if
    /// nothing that it is combined with decides.
    pub fn new(counts: impl Fn(&R, &R) -> bool + Send + Sync + 'static) -> Self {
        Self::over(EnginePredicate::undecided_if_none(move |old: &Object, new: &Object| {
            Some(counts(&old.decode().ok()?, &new.decode().ok()?))
        }))
    }
}

impl<R> Predicate<R> {
    fn over(engine: EnginePredicate) -> Self {
        Self { engine, decoded: PhantomData }
    }

    /// Every change counts.
    pub fn always() -> Self {
        Self::over(EnginePredicate::always())
    }

    /// The generation changed: of most kinds that is a change of the spec. Changes of kinds without generations, such as
    /// ConfigMaps, always count.
    pub fn generation_changed() -> Self {
        Self::over(EnginePredicate::generation_changed())
    }

    /// The spec changed, compared as JSON text: for kinds without generations. Changes of objects without a spec always
    /// count, and so do those that a watch of metadata sees.
    pub fn spec_changed() -> Self {
        Self::over(EnginePredicate::spec_changed())
    }

    /// The labels changed.
    pub fn labels_changed() -> Self {
        Self::over(EnginePredicate::labels_changed())
    }

    /// The annotations changed.
    pub fn annotations_changed() -> Self {
        Self::over(EnginePredicate::annotations_changed())
    }

    /// The finalizers changed.
    pub fn finalizers_changed() -> Self {
        Self::over(EnginePredicate::finalizers_changed())
    }

    /// The deletion began. That counts whatever the predicate; this predicate is for controllers that want nothing else.
    pub fn terminating_changed() -> Self {
        Self::over(EnginePredicate::terminating_changed())
    }

    /// The resource version changed: anything did.
    pub fn resource_version_changed() -> Self {
        Self::over(EnginePredicate::resource_version_changed())
    }

    /// Changes that both predicates let through.
    pub fn and(self, other: Self) -> Self {
        Self::over(self.engine.and(other.engine))
    }

    /// Changes that at least one of the predicates lets through.
    pub fn or(self, other: Self) -> Self {
        Self::over(self.engine.or(other.engine))
    }

    /// Changes that this predicate does not let through. A change that it cannot decide counts here, too: see
    /// [`Predicate::new`].
    #[expect(clippy::should_implement_trait, reason = "it stands beside `and` and `or`")]
    pub fn not(self) -> Self {
        Self::over(self.engine.not())
    }

    /// The same over objects as the engine has them.
    pub(crate) fn engine(&self) -> EnginePredicate {
        self.engine.clone()
    }
}

impl<R> Clone for Predicate<R> {
    fn clone(&self) -> Self {
        Self::over(self.engine.clone())
    }
}

impl<R> fmt::Debug for Predicate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicate").finish_non_exhaustive()
    }
}
