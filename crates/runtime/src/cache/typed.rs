//! A cache seen through a Rust type. In: keys and selectors. Out: decoded objects, made when somebody looks. Keeps only a
//! few of them, because a decoded object takes many times what its text does.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

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
    memo: Arc<Mutex<Memo<K>>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for CacheOf<K> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), memo: self.memo.clone(), kind: PhantomData }
    }
}

impl<K: DeserializeOwned> CacheOf<K> {
    /// Sees a cache as `K`.
    pub fn new(cache: Cache) -> Self {
        Self::keeping(cache, KEPT)
    }

    /// Sees a cache as `K`, and keeps up to so many decoded objects.
    pub fn keeping(cache: Cache, kept: usize) -> Self {
        Self { cache, memo: Arc::new(Mutex::new(Memo::new(kept))), kind: PhantomData }
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
        if let Some(known) = self.memo.lock().get(object) {
            return Ok(known);
        }
        let decoded = Arc::new(object.decode()?);
        self.memo.lock().put(object.clone(), &decoded);
        Ok(decoded)
    }
}

/// The newest decoded objects in two halves: when the young half is full it becomes the old one, and the old one goes.
struct Memo<K> {
    half: usize,
    young: HashMap<ObjectKey, (Arc<Object>, Arc<K>)>,
    old: HashMap<ObjectKey, (Arc<Object>, Arc<K>)>,
}

impl<K> Memo<K> {
    fn new(kept: usize) -> Self {
        Self { half: kept / 2, young: HashMap::new(), old: HashMap::new() }
    }

    /// What was decoded of exactly this object.
    fn get(&mut self, object: &Arc<Object>) -> Option<Arc<K>> {
        let key = object.key();
        if let Some((of, decoded)) = self.young.get(&key) {
            return Arc::ptr_eq(of, object).then(|| decoded.clone());
        }
        let (of, decoded) = self.old.remove(&key)?;
        if !Arc::ptr_eq(&of, object) {
            return None;
        }
        self.put(of, &decoded);
        Some(decoded)
    }

    fn put(&mut self, object: Arc<Object>, decoded: &Arc<K>) {
        if self.half == 0 {
            return;
        }
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(object.key(), (object, decoded.clone()));
    }
}
