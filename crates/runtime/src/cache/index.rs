//! Under which values objects are found. In: an object, and the functions of users. Out: sums of those values. The functions
//! run here and nowhere else: once for each version of an object, and never while a cache is locked.

use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crate::object::Object;

/// What an index is over: the values of an object under which it is found.
pub(crate) type Values = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

/// The index by owners' uids, which every cache has.
pub(crate) const OWNERS: &str = "owner uid";

/// A value as indexes keep it: long and keyed, so that two values never have the same one.
pub(crate) type Sum = [u64; 2];

/// The sums of one object in one index. Most objects have one value or none, and need no memory for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    None,
    One(Sum),
    Many(Box<[Sum]>),
}

/// The sums of one object in all indexes, in their order.
pub(crate) type Indexed = Vec<Sums>;

/// A named function.
#[derive(Clone)]
pub(crate) struct Function {
    pub name: Arc<str>,
    pub values: Values,
    pub summer: Summer,
}

/// Makes sums; its clones make the same.
#[derive(Clone, Default)]
pub(crate) struct Summer(RandomState, RandomState);

impl Summer {
    pub(super) fn sum(&self, value: &str) -> Sum {
        [self.0.hash_one(value), self.1.hash_one(value)]
    }
}

impl Function {
    /// The index that every cache has.
    pub(super) fn owners(summer: Summer) -> Self {
        let values: Values = Arc::new(|object| object.owners().map(|owner| owner.uid.into_owned()).collect());
        Self { name: OWNERS.into(), values, summer }
    }

    /// The sums of an object's values. A function that panics finds the object under none: one bad object never ends the
    /// watch.
    pub(super) fn of(&self, object: &Object) -> Sums {
        let values = std::panic::catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            tracing::error!(index = &*self.name, key = %object.key(), "an index function panicked; the object is left out");
            Vec::new()
        });
        match values.as_slice() {
            [] => Sums::None,
            [one] => Sums::One(self.summer.sum(one)),
            many => Sums::Many(many.iter().map(|value| self.summer.sum(value)).collect()),
        }
    }
}

impl Sums {
    pub(super) fn as_slice(&self) -> &[Sum] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}
