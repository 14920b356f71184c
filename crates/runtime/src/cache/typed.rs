//! A cache seen through a Rust type. In: keys and selectors. Out: decoded objects, made when somebody looks. They are kept
//! with their object, so they go when it does; and only so many, because a decoded object takes many times what its text
//! does.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use konverge_core::{LabelSelector, ObjectKey};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::Cache;
use crate::object::{DecodeError, Object};

/// How many decoded objects are kept, unless one says otherwise: what reconciles under way read again and again.
const KEPT: usize = 256;

/// A cache whose objects come as `K`.
pub struct CacheOf<K> {
    cache: Cache,
    kept: Arc<Kept>,
    kind: PhantomData<fn() -> K>,
}

/// The objects that keep what was decoded here.
struct Kept {
    most: usize,
    /// The oldest first.
    objects: Mutex<VecDeque<Weak<Object>>>,
}

impl<K> Clone for CacheOf<K> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), kept: self.kept.clone(), kind: PhantomData }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> CacheOf<K> {
    /// Sees a cache as `K`.
    pub fn new(cache: Cache) -> Self {
        Self::keeping(cache, KEPT)
    }

    /// Sees a cache as `K`, and keeps up to so many decoded objects.
    pub fn keeping(cache: Cache, kept: usize) -> Self {
        let kept = Kept { most: kept, objects: Mutex::default() };
        Self { cache, kept: Arc::new(kept), kind: PhantomData }
    }

    /// The cache behind it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// One object; nothing if there is none.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<K>>, DecodeError> {
        self.cache.get(key).map(|object| self.decoded(&object)).transpose()
    }

    /// The objects in a namespace, or in all of them, that a selector selects. One that does not decode is an error of
    /// its own and stops no other.
    pub fn list(&self, namespace: Option<&str>, selector: &LabelSelector) -> Vec<Result<Arc<K>, DecodeError>> {
        self.cache.list(namespace, selector).iter().map(|object| self.decoded(object)).collect()
    }

    /// The objects an index finds under a value.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Result<Arc<K>, DecodeError>> {
        self.cache.by_index(name, value).iter().map(|object| self.decoded(object)).collect()
    }

    /// The objects an owner has.
    pub fn by_owner(&self, uid: &str) -> Vec<Result<Arc<K>, DecodeError>> {
        self.cache.by_owner(uid).iter().map(|object| self.decoded(object)).collect()
    }

    /// An object of the cache, decoded.
    pub fn decoded(&self, object: &Arc<Object>) -> Result<Arc<K>, DecodeError> {
        if let Some(known) = object.cached_decoded() {
            return Ok(known);
        }
        let decoded: Arc<K> = Arc::new(object.decode()?);
        if self.kept.most > 0 {
            object.cache_decoded(decoded.clone());
            self.make_room(object);
        }
        Ok(decoded)
    }

    /// Notes that an object keeps something, and lets the one that has kept its own for longest forget it.
    fn make_room(&self, object: &Arc<Object>) {
        let mut objects = self.kept.objects.lock();
        objects.push_back(Arc::downgrade(object));
        let oldest = if objects.len() > self.kept.most { objects.pop_front() } else { None };
        drop(objects);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.drop_decoded::<K>();
        }
    }
}
