//! What objects can be found by. In: a function that says under which values an object is found. Out: those that a cache has
//! under a value, without a look at all of them.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use konverge_runtime::{Cache, Error, Object, Result};

use crate::kind::Kind;

/// The indexes of an operator: of each kind, by the name that the user gave it.
#[derive(Clone, Default)]
pub(crate) struct Indexes(HashMap<(TypeId, String), Index>);

/// What objects of a kind can be found by.
#[derive(Clone)]
pub(crate) struct Index {
    /// What it is called in caches, which others use too: no two are called the same.
    id: String,
    values: Values,
}

type Values = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

impl Indexes {
    pub fn add<T: Kind>(&mut self, name: String, index: Index) {
        self.0.insert((TypeId::of::<T>(), name), index);
    }

    pub fn of<T: Kind>(&self, name: &str) -> Result<&Index> {
        let found = self.0.get(&(TypeId::of::<T>(), name.to_owned()));
        found.ok_or_else(|| {
            let kind = T::kind(&());
            Error::permanent(format!(
                "there is no index {name:?} of {kind}; give the operator one with .index({name:?}, |object: &{kind}| …)"
            ))
        })
    }
}

impl Index {
    /// Under which values each object is found. One that does not parse is found under none; the watch has reported it.
    pub fn new<T: Kind>(values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let values = move |object: &Object| object.decode().map(|object| values(&object)).unwrap_or_default();
        Self { id: format!("konverge/{}", NEXT.fetch_add(1, Relaxed)), values: Arc::new(values) }
    }

    /// Whether an object is found under a value.
    pub fn finds(&self, object: &Object, value: &str) -> bool {
        (self.values)(object).iter().any(|one| one == value)
    }

    /// What a cache has under a value.
    pub fn find(&self, cache: &Cache, value: &str) -> Vec<Arc<Object>> {
        let values = self.values.clone();
        cache.add_index(&self.id, move |object| values(object));
        cache.by_index(&self.id, value)
    }
}
