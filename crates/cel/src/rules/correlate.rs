//! Which value an item had before. In: the new value, the old one and the schema. Out: the old value of a part, and whether a
//! part is unchanged, in which case its errors are not new. Items of lists correlate only by the keys of the list.

use serde_json::{Map, Value as Json};

use crate::schema::{ListType, Schema};

/// A value beside what it was, as far as that is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Correlation<'a> {
    current: Option<Pair<'a>>,
    /// The nearest value around it that has an old one.
    nearest: Option<Pair<'a>>,
}

#[derive(Clone, Copy)]
struct Pair<'a> {
    new: &'a Json,
    old: &'a Json,
    schema: &'a Schema,
}

impl<'a> Correlation<'a> {
    pub(super) fn root(new: &'a Json, old: &'a Json, schema: &'a Schema) -> Self {
        Self { current: Some(Pair { new, old, schema }), nearest: None }
    }

    /// Whether errors here were there before: the value, or one around it, is unchanged.
    pub(super) fn is_unchanged(&self) -> bool {
        self.current.or(self.nearest).is_some_and(|pair| pair.is_equal())
    }

    pub(super) fn key(self, name: &str) -> Self {
        let Some(current) = self.current else { return self };
        if self.nearest.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        Self { current: current.key(name), nearest: Some(current) }
    }

    pub(super) fn index(self, item: &'a Json) -> Self {
        let Some(current) = self.current else { return self };
        Self { current: current.item(item), nearest: Some(current) }
    }
}

impl<'a> Pair<'a> {
    fn key(self, name: &str) -> Option<Self> {
        let schema = match self.schema.property(name) {
            Some(property) => &property.schema,
            None => self.schema.additional.as_deref()?,
        };
        Some(Self { new: self.new.as_object()?.get(name)?, old: self.old.as_object()?.get(name)?, schema })
    }

    fn item(self, item: &'a Json) -> Option<Self> {
        let old = old_item(self.schema, item, self.old.as_array()?)?;
        Some(Self { new: item, old, schema: self.schema.items.as_deref()? })
    }

    fn is_equal(self) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) if self.schema.list_type == ListType::Map && !old.is_empty() => {
                new.len() == old.len() && new.iter().all(|item| self.item(item).is_some_and(|pair| pair.is_equal()))
            }
            (Json::Object(new), Json::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.key(name).is_some_and(|pair| pair.is_equal()))
            }
            (new, old) => new == old,
        }
    }
}

/// The old item with the same keys, if the list is a map.
pub(super) fn old_item<'a>(list: &Schema, item: &Json, old: &'a [Json]) -> Option<&'a Json> {
    if list.list_type != ListType::Map || list.map_keys.is_empty() {
        return None;
    }
    let key = |item: &Map<String, Json>, name: &str| item.get(name).filter(|value| is_scalar(value)).cloned();
    let item = item.as_object()?;
    let keys = list.map_keys.iter().map(|name| key(item, name)).collect::<Option<Vec<_>>>()?;
    old.iter().find(|old| {
        let Some(old) = old.as_object() else { return false };
        list.map_keys.iter().zip(&keys).all(|(name, value)| key(old, name).as_ref() == Some(value))
    })
}

fn is_scalar(value: &Json) -> bool {
    matches!(value, Json::Bool(_) | Json::Number(_) | Json::String(_))
}
