//! Indexes over caches. In: a function from an object to the values it is found under. Out: the objects that a cache has
//! under a value, without a scan of all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use konverge_runtime::{Cache, Error, Object, Result};
use serde::de::DeserializeOwned;

use crate::api_kind::ApiKind;

/// The indexes of a controller, by kind and by the name that the user gave.
#[derive(Clone, Default)]
pub(crate) struct Indexes(HashMap<(ApiKind, String), Index>);

/// One index.
#[derive(Clone)]
pub(crate) struct Index {
    /// Its name in caches. Controllers share caches, so the name is unique in the process.
    id: String,
    values: Values,
}

type Values = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

impl Indexes {
    pub(crate) fn add(&mut self, kind: ApiKind, name: String, index: Index) {
        self.0.insert((kind, name), index);
    }

    pub(crate) fn get(&self, kind: &ApiKind, name: &str) -> Result<&Index> {
        self.0.get(&(kind.clone(), name.to_owned())).ok_or_else(|| {
            let kind = kind.name();
            Error::permanent(format!(
                "there is no index {name:?} of {kind}; give the operator one with .index({name:?}, |object: &{kind}| …)"
            ))
        })
    }
}

impl Index {
    /// An index by a function of the decoded object. An object that does not decode has no values; the watch has reported
    /// it.
    pub(crate) fn new<T: DeserializeOwned>(values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self::over(move |object| object.decode().map(|object| values(&object)).unwrap_or_default())
    }

    /// An index by a function of the object as the cache has it.
    pub(crate) fn over(values: impl Fn(&Object) -> Vec<String> + Send + Sync + 'static) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: format!("konverge/{}", NEXT.fetch_add(1, Relaxed)), values: Arc::new(values) }
    }

    /// Whether an object is found under a value.
    pub(crate) fn finds(&self, object: &Object, value: &str) -> bool {
        (self.values)(object).iter().any(|one| one == value)
    }

    /// What a cache has under a value.
    pub(crate) fn find(&self, cache: &Cache, value: &str) -> Vec<Arc<Object>> {
        let values = self.values.clone();
        cache.add_index(&self.id, move |object| values(object));
        cache.by_index(&self.id, value)
    }
}
