//! Objects by key, and indexes over them. In: objects to put, with the sums of their indexed values, and keys to remove.
//! Out: objects by key, by namespace or by an indexed value. Pure; never waits, runs no function of a user, and keeps no
//! text but the objects' own.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::{HashMap, HashSet};
use konverge_core::ObjectKey;

use super::index::{Indexed, Sum, Sums};
use crate::object::Object;

/// A set of objects with its indexes.
#[derive(Default)]
pub(crate) struct Layer {
    /// By namespace, so that who asks for one does not look at the others; what has none is under the empty name.
    spaces: HashMap<Box<str>, HashSet<Slot>>,
    indexes: Vec<Index>,
    len: usize,
    stubs: usize,
    bytes: usize,
}

/// An object in its place. It is its own key: the text it has anyway.
struct Slot {
    object: Arc<Object>,
    /// In which list it was last seen.
    round: AtomicU32,
}

/// What objects are found by: namespace and name.
trait Named {
    fn named(&self) -> (Option<&str>, &str);
}

/// Where objects with a value are.
#[derive(Default)]
struct Index {
    places: HashMap<Sum, Place>,
    /// Under which sums each object is, by its address, which stays as long as it is here. Most kinds of objects have no
    /// value in most indexes, and take nothing.
    placed: HashMap<usize, Sums>,
}

/// Most values lead to one object, and need no set for it.
enum Place {
    One(Arc<Object>),
    /// Boxed, so that a place is as small as one object's: most values lead to one object.
    Many(Box<HashSet<Slot>>),
}

impl Layer {
    /// Adds an index over what is there, which `sums` knows all of, and what will come.
    pub(super) fn add_index(&mut self, sums: impl Fn(&Arc<Object>) -> Sums) {
        let mut index = Index::default();
        for object in self.iter() {
            index.add(object, sums(object));
        }
        self.indexes.push(index);
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.slot(key).map(|slot| &slot.object)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.spaces.values().flatten().map(|slot| &slot.object)
    }

    /// The objects in a namespace.
    pub(super) fn iter_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.spaces.get(namespace).into_iter().flatten().map(|slot| &slot.object)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many of them are stubs.
    pub(super) fn stubs(&self) -> usize {
        self.stubs
    }

    /// In which list an object was last seen.
    pub(super) fn round(&self, object: &Object) -> Option<u32> {
        self.slot(object).map(|slot| slot.round.load(Ordering::Relaxed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes the objects take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has the same name as an object.
    pub(super) fn like(&self, object: &Object) -> Option<&Arc<Object>> {
        self.slot(object).map(|slot| &slot.object)
    }

    /// Puts an object in its place and gives back what was there.
    pub(super) fn put(&mut self, object: Arc<Object>, round: u32, indexed: Indexed) -> Option<Arc<Object>> {
        self.bytes += object.size();
        self.stubs += usize::from(object.is_stub());
        let slot = Slot { object: object.clone(), round: AtomicU32::new(round) };
        let before = self.spaces.entry_ref(space(&*object)).or_default().replace(slot).map(|slot| slot.object);
        match &before {
            Some(before) => {
                self.bytes -= before.size();
                self.stubs -= usize::from(before.is_stub());
            }
            None => self.len += 1,
        }
        for (index, sums) in self.indexes.iter_mut().zip(indexed) {
            if let Some(before) = &before {
                index.remove(before);
            }
            index.add(&object, sums);
        }
        before
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let objects = self.spaces.get_mut(space(key))?;
        let object = objects.take(key as &dyn Named)?.object;
        if objects.is_empty() {
            self.spaces.remove(space(key));
        }
        self.len -= 1;
        self.bytes -= object.size();
        self.stubs -= usize::from(object.is_stub());
        for index in &mut self.indexes {
            index.remove(&object);
        }
        Some(object)
    }

    /// Notes that an object was in this list.
    pub(super) fn touch(&self, object: &Object, round: u32) {
        if let Some(slot) = self.slot(object) {
            slot.round.store(round, Ordering::Relaxed);
        }
    }

    /// Those that were not in this list.
    pub(super) fn untouched(&self, round: u32) -> Vec<ObjectKey> {
        let old = self.spaces.values().flatten().filter(|slot| slot.round.load(Ordering::Relaxed) != round);
        old.map(|slot| slot.object.key()).collect()
    }

    /// The objects that an index has under a sum.
    pub(super) fn by_index(&self, at: usize, sum: Sum) -> impl Iterator<Item = &Arc<Object>> {
        self.indexes.get(at).and_then(|index| index.places.get(&sum)).into_iter().flat_map(Place::objects)
    }

    fn slot(&self, named: &(impl Named + 'static)) -> Option<&Slot> {
        self.spaces.get(space(named))?.get(named as &dyn Named)
    }

    /// How many places of how many values are kept, for tests.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        let counts = |index: &Index| {
            let placed: usize = index.placed.values().map(|sums| sums.as_slice().len()).sum();
            let places: usize = index.places.values().map(|place| place.objects().count()).sum();
            assert_eq!(placed, places);
            placed
        };
        self.indexes.iter().map(counts).sum()
    }
}

/// Under which name the namespace of something is kept.
fn space(named: &impl Named) -> &str {
    named.named().0.unwrap_or_default()
}

impl Index {
    fn add(&mut self, object: &Arc<Object>, sums: Sums) {
        for sum in sums.as_slice() {
            self.places
                .entry(*sum)
                .and_modify(|place| place.insert(object))
                .or_insert_with(|| Place::One(object.clone()));
        }
        if sums != Sums::None {
            self.placed.insert(address(object), sums);
        }
    }

    fn remove(&mut self, object: &Arc<Object>) {
        let Some(sums) = self.placed.remove(&address(object)) else { return };
        for sum in sums.as_slice() {
            if self.places.get_mut(sum).is_some_and(|place| place.remove(object)) {
                self.places.remove(sum);
            }
        }
    }
}

/// Tells objects apart that are kept.
pub(crate) fn address(object: &Arc<Object>) -> usize {
    Arc::as_ptr(object).addr()
}

impl Place {
    fn insert(&mut self, object: &Arc<Object>) {
        match self {
            Self::One(one) if one.named() == object.named() => *one = object.clone(),
            Self::One(one) => {
                *self = Self::Many(Box::new([one, object].into_iter().cloned().map(Slot::from).collect()));
            }
            Self::Many(many) => drop(many.replace(object.clone().into())),
        }
    }

    /// Whether nothing is left.
    fn remove(&mut self, object: &Object) -> bool {
        match self {
            Self::One(one) => one.named() == object.named(),
            Self::Many(many) => {
                many.remove(object as &dyn Named);
                many.is_empty()
            }
        }
    }

    fn objects(&self) -> Box<dyn Iterator<Item = &Arc<Object>> + '_> {
        match self {
            Self::One(one) => Box::new(std::iter::once(one)),
            Self::Many(many) => Box::new(many.iter().map(|slot| &slot.object)),
        }
    }
}

impl From<Arc<Object>> for Slot {
    fn from(object: Arc<Object>) -> Self {
        Self { object, round: AtomicU32::new(0) }
    }
}

impl Named for Object {
    fn named(&self) -> (Option<&str>, &str) {
        (self.namespace(), self.name())
    }
}

impl Named for ObjectKey {
    fn named(&self) -> (Option<&str>, &str) {
        (self.namespace(), self.name())
    }
}

impl Named for Slot {
    fn named(&self) -> (Option<&str>, &str) {
        self.object.named()
    }
}

impl Borrow<dyn Named> for Slot {
    fn borrow(&self) -> &(dyn Named + 'static) {
        self
    }
}

impl Hash for dyn Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl PartialEq for dyn Named {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for dyn Named {}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.named().hash(state);
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.named() == other.named()
    }
}

impl Eq for Slot {}
