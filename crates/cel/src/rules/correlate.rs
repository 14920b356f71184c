//! Which value an item had before. In: the new value, the old one and the schema. Out: whether a part is unchanged, in which
//! case its errors are not new. Items of lists correlate only by the keys of the list.

use std::cell::OnceCell;

use konverge_schema::{Budget, ItemsByKey};
use serde_json::Value as Json;

use crate::schema::{ListType, Schema};

/// A value beside what it was, as far as that is known.
#[derive(Default)]
pub(super) struct Correlation<'c, 'a> {
    current: Option<Pair<'a>>,
    /// The nearest value around it that has an old one.
    nearest: Option<&'c Pair<'a>>,
}

struct Pair<'a> {
    new: &'a Json,
    old: &'a Json,
    schema: &'a Schema,
    /// Whether both are equal. Every item of a list whose items have no old values asks for the whole list.
    equal: OnceCell<bool>,
}

impl<'a> Correlation<'_, 'a> {
    pub(super) fn root(new: &'a Json, old: &'a Json, schema: &'a Schema) -> Self {
        Self { current: Some(Pair::new(new, old, schema)), nearest: None }
    }

    /// Whether errors here were there before: the value, or one around it, is unchanged.
    pub(super) fn is_unchanged(&self, budget: &Budget) -> bool {
        let pair = self.current.as_ref().or(self.nearest);
        pair.is_some_and(|pair| *pair.equal.get_or_init(|| pair.is_equal(budget)))
    }

    pub(super) fn key(&self, name: &str) -> Correlation<'_, 'a> {
        if self.current.is_some() && self.nearest.is_none() && matches!(name, "apiVersion" | "kind") {
            return Correlation::default();
        }
        self.inner(|current| current.key(name))
    }

    /// The item of a list; `old` is what it was, if that is known.
    pub(super) fn index(&self, item: &'a Json, old: Option<&'a Json>) -> Correlation<'_, 'a> {
        self.inner(|current| Some(Pair::new(item, old?, current.schema.items.as_deref()?)))
    }

    fn inner(&self, part: impl FnOnce(&Pair<'a>) -> Option<Pair<'a>>) -> Correlation<'_, 'a> {
        match &self.current {
            Some(current) => Correlation { current: part(current), nearest: Some(current) },
            None => Correlation { current: None, nearest: self.nearest },
        }
    }
}

impl<'a> Pair<'a> {
    fn new(new: &'a Json, old: &'a Json, schema: &'a Schema) -> Self {
        Self { new, old, schema, equal: OnceCell::new() }
    }

    fn key(&self, name: &str) -> Option<Self> {
        let schema = match self.schema.property(name) {
            Some(property) => &property.schema,
            None => self.schema.additional.as_deref()?,
        };
        Some(Self::new(self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?, schema))
    }

    fn is_equal(&self, budget: &Budget) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) if new.len() != old.len() => false,
            (Json::Array(new), Json::Array(old)) if self.schema.list_type == ListType::Map && !old.is_empty() => {
                let Some(schema) = &self.schema.items else { return false };
                let before = ItemsByKey::new(&self.schema.map_keys, old, budget);
                new.iter()
                    .all(|item| before.find(item).is_some_and(|old| Pair::new(item, old, schema).is_equal(budget)))
            }
            (Json::Array(new), Json::Array(old)) => budget.spend(new.len() as u64) && new == old,
            (Json::Object(new), Json::Object(old)) => {
                new.len() == old.len()
                    && budget.spend(new.len() as u64)
                    && new.keys().all(|name| self.key(name).is_some_and(|pair| pair.is_equal(budget)))
            }
            (new, old) => new == old,
        }
    }
}

/// The old items of a list that is a map, by their keys.
pub(super) fn old_items<'a>(list: &'a Schema, old: Option<&'a Json>, budget: &Budget) -> Option<ItemsByKey<'a>> {
    let old = old?.as_array()?;
    (list.list_type == ListType::Map).then(|| ItemsByKey::new(&list.map_keys, old, budget))
}
