//! Decoded objects that are read again and again. In: objects of a cache, which are bytes. Out: the same objects as a Rust
//! type, shared. Within a budget of bytes: an operator whose objects fit decodes each version of an object twice at most,
//! and a larger one keeps as many as fit.
//!
//! An object is kept decoded from the second time on that it is decoded in one version. Most objects are reconciled once
//! after the start and then change before they are looked at again, and cost nothing here.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::object::{DecodeError, Object};

/// About how many times the memory of its text a decoded object takes: a string twice, small fields more.
const TIMES_ITS_TEXT: usize = 2;

/// When the budget is used up, one miss out of this many takes the place of the object that was kept first. All of them
/// would let a scan over more objects than fit throw each one out just before it is read again.
const REPLACE_ONE_OF: u32 = 16;

/// Keeps objects decoded as `K`, within a budget. The values lie with their objects, so they go when the object is replaced,
/// and others that decode the same object as `K` share them.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_runtime::{DecodeCache, Mode, Object};
/// # let resource = kube::api::ApiResource::erase::<ConfigMap>(&());
/// let json = r#"{"metadata":{"name":"colours"},"data":{"sky":"blue"}}"#;
/// let object = Arc::new(Object::parse(&resource, json, Mode::Full).unwrap());
/// let decoded = DecodeCache::<ConfigMap>::new(1 << 20);
/// decoded.decode(&object).unwrap();
/// let (second, third) = (decoded.decode(&object).unwrap(), decoded.decode(&object).unwrap());
/// assert!(Arc::ptr_eq(&second, &third));
/// ```
pub struct DecodeCache<K> {
    budget: usize,
    kept: Mutex<Kept>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Default)]
struct Kept {
    /// The objects that keep a value, the one that was looked at longest ago first, and what each takes.
    objects: VecDeque<(Weak<Object>, usize)>,
    bytes: usize,
    misses: u32,
}

impl<K: DeserializeOwned + Send + Sync + 'static> DecodeCache<K> {
    /// Keeps values of about this many bytes.
    pub fn new(budget: usize) -> Self {
        Self { budget, kept: Mutex::default(), kind: PhantomData }
    }

    /// The object as `K`: the value that is kept, or a new one.
    pub fn decode(&self, object: &Arc<Object>) -> Result<Arc<K>, DecodeError> {
        if let Some(kept) = object.cached_decoded() {
            return Ok(kept);
        }
        let decoded: Arc<K> = Arc::new(object.decode()?);
        if object.mark_decoded() && self.make_room(object) {
            object.cache_decoded(decoded.clone());
        }
        Ok(decoded)
    }

    /// Whether there is room for one more value. Looks at one kept object for each miss: one that is gone gives its room
    /// back.
    fn make_room(&self, object: &Arc<Object>) -> bool {
        let bytes = TIMES_ITS_TEXT * object.size();
        let mut kept = self.kept.lock();
        if bytes > self.budget {
            return false;
        }
        kept.misses = kept.misses.wrapping_add(1);
        let replace = kept.misses.is_multiple_of(REPLACE_ONE_OF);
        while kept.bytes + bytes > self.budget {
            let Some((oldest, taken)) = kept.objects.pop_front() else { break };
            match oldest.upgrade() {
                Some(oldest) if replace => oldest.drop_decoded::<K>(),
                Some(_) => {
                    kept.objects.push_back((oldest, taken));
                    return false;
                }
                None => {}
            }
            kept.bytes -= taken;
        }
        kept.bytes += bytes;
        kept.objects.push_back((Arc::downgrade(object), bytes));
        true
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ApiResource;

    use super::*;
    use crate::object::Mode;

    fn object(name: usize) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{"name":"{name:04}"}},"data":{{"text":"{}"}}}}"#, "x".repeat(1000));
        Arc::new(Object::parse(&ApiResource::erase::<ConfigMap>(&()), &json, Mode::Full).unwrap())
    }

    /// Whether an object is decoded without parsing it.
    fn is_kept(object: &Arc<Object>) -> bool {
        object.cached_decoded::<ConfigMap>().is_some()
    }

    fn budget_for(objects: usize) -> DecodeCache<ConfigMap> {
        DecodeCache::new(objects * TIMES_ITS_TEXT * object(0).size())
    }

    #[test]
    fn what_is_decoded_twice_is_kept() {
        let (cache, one) = (budget_for(1), object(0));
        for expect in [false, true, true] {
            assert_eq!(cache.decode(&one).unwrap().metadata.name.as_deref(), Some("0000"));
            assert_eq!(is_kept(&one), expect);
        }
    }

    #[test]
    fn a_scan_over_more_than_fits_finds_what_is_kept() {
        let (cache, objects) = (budget_for(10), (0..100).map(object).collect::<Vec<_>>());
        let mut hits = Vec::new();
        for _ in 0..6 {
            hits.push(objects.iter().filter(|object| is_kept(object)).count());
            objects.iter().for_each(|object| drop(cache.decode(object).unwrap()));
        }
        assert_eq!(hits, [0, 0, 10, 10, 10, 10]);
        let kept = cache.kept.lock();
        assert!(kept.bytes <= cache.budget && kept.objects.len() == 10);
    }

    #[test]
    fn an_object_that_is_gone_gives_its_room_back() {
        let cache = budget_for(2);
        for round in 0..50 {
            // Each version is another object, and only the newest is there.
            let newest = object(round);
            for _ in 0..2 {
                cache.decode(&newest).unwrap();
            }
            assert!(is_kept(&newest), "{round}");
        }
        let huge = DecodeCache::<ConfigMap>::new(10);
        let one = object(0);
        (0..3).for_each(|_| drop(huge.decode(&one).unwrap()));
        assert!(!is_kept(&one));
    }
}
