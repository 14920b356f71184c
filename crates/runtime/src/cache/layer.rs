//! Objects by key, and indexes over them. In: objects to put and keys to remove. Out: objects by key or by an indexed
//! value. Pure; never waits, and keeps no text but the objects' own.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use konverge_core::ObjectKey;

use crate::object::Object;

/// What an index is over: the values of an object under which it is found.
pub(crate) type Values = Arc<dyn Fn(&Object) -> Vec<String> + Send + Sync>;

/// The index by owners' uids, which every layer has.
pub(crate) const OWNERS: &str = "owner uid";

/// A set of objects with its indexes.
pub(crate) struct Layer {
    objects: HashSet<Slot>,
    indexes: Vec<Index>,
    hasher: DefaultHashBuilder,
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

/// Where objects with a value are. Values are kept as hashes: who looks compares with the object, which has the text.
struct Index {
    name: Arc<str>,
    values: Values,
    places: HashMap<u64, Place>,
}

/// Most values lead to one object, and need no set for it.
enum Place {
    One(Arc<Object>),
    /// Boxed, so that a place is as small as one object's: few of them are many.
    Many(Box<HashSet<Slot>>),
}

impl Layer {
    pub fn new() -> Self {
        let owners: Values = Arc::new(|object| object.owners().map(|owner| owner.uid.into_owned()).collect());
        let owners = Index { name: OWNERS.into(), values: owners, places: HashMap::new() };
        Self { objects: HashSet::new(), indexes: vec![owners], hasher: DefaultHashBuilder::default(), bytes: 0 }
    }

    pub fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| &*index.name == name)
    }

    /// Adds an index over what is there and what will come. One with that name that is there already stays.
    pub fn add_index(&mut self, name: &str, values: Values) {
        if self.has_index(name) {
            return;
        }
        let mut index = Index { name: name.into(), values, places: HashMap::new() };
        for slot in &self.objects {
            index.add(&slot.object, &self.hasher);
        }
        self.indexes.push(index);
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(key as &dyn Named).map(|slot| &slot.object)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter().map(|slot| &slot.object)
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How many bytes the objects take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has the same name as an object.
    pub fn like(&self, object: &Object) -> Option<&Arc<Object>> {
        self.objects.get(object as &dyn Named).map(|slot| &slot.object)
    }

    /// Puts an object in its place and gives back what was there.
    pub fn put(&mut self, object: Arc<Object>, round: u32) -> Option<Arc<Object>> {
        self.bytes += object.size();
        let slot = Slot { object: object.clone(), round: AtomicU32::new(round) };
        let before = self.objects.replace(slot).map(|slot| slot.object);
        if let Some(before) = &before {
            self.bytes -= before.size();
        }
        for index in &mut self.indexes {
            if let Some(before) = &before {
                index.remove(before, &self.hasher);
            }
            index.add(&object, &self.hasher);
        }
        before
    }

    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let object = self.objects.take(key as &dyn Named)?.object;
        self.bytes -= object.size();
        for index in &mut self.indexes {
            index.remove(&object, &self.hasher);
        }
        Some(object)
    }

    /// Notes that an object was in this list.
    pub fn touch(&self, object: &Object, round: u32) {
        if let Some(slot) = self.objects.get(object as &dyn Named) {
            slot.round.store(round, Ordering::Relaxed);
        }
    }

    /// Those that were not in this list.
    pub fn untouched(&self, round: u32) -> Vec<ObjectKey> {
        let old = self.objects.iter().filter(|slot| slot.round.load(Ordering::Relaxed) != round);
        old.map(|slot| slot.object.key()).collect()
    }

    /// The objects that the index `name` finds under `value`; nothing if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Option<Vec<Arc<Object>>> {
        let index = self.indexes.iter().find(|index| &*index.name == name)?;
        let objects = index.places.get(&self.hasher.hash_one(value)).into_iter().flat_map(Place::objects);
        let same = |object: &&Arc<Object>| index.values(object).iter().any(|found| found == value);
        Some(objects.filter(same).cloned().collect())
    }

    /// How many places of how many values are kept, for tests.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.indexes.iter().flat_map(|index| index.places.values()).map(|place| place.objects().count()).sum()
    }
}

impl Index {
    /// The values of an object. Those of a function that panics are none: one bad object never ends the watch.
    fn values(&self, object: &Object) -> Vec<String> {
        std::panic::catch_unwind(AssertUnwindSafe(|| (self.values)(object))).unwrap_or_else(|_| {
            tracing::error!(index = &*self.name, key = %object.key(), "an index function panicked; the object is left out");
            Vec::new()
        })
    }

    fn add(&mut self, object: &Arc<Object>, hasher: &DefaultHashBuilder) {
        for value in self.values(object) {
            self.places
                .entry(hasher.hash_one(value.as_str()))
                .and_modify(|place| place.insert(object))
                .or_insert_with(|| Place::One(object.clone()));
        }
    }

    fn remove(&mut self, object: &Object, hasher: &DefaultHashBuilder) {
        for value in self.values(object) {
            let hash = hasher.hash_one(value.as_str());
            if self.places.get_mut(&hash).is_some_and(|place| place.remove(object)) {
                self.places.remove(&hash);
            }
        }
    }
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
