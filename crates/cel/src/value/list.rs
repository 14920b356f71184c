//! Lists. Those of an object stay JSON until an item is looked at. Lists that are sets or maps compare and add without regard
//! to order, as their schema says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::escape::escape;
use crate::schema::{ListType, Schema};

use super::map::{Key, Map};
use super::{Answer, EvalError, Value, equal};

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json {
        items: &'a [Json],
        /// Of the list, not of its items.
        schema: &'a Schema,
    },
    /// JSON without a schema.
    Dynamic(&'a [Json]),
    Owned {
        items: Arc<Vec<Value<'a>>>,
        /// Of the list that this one was made from by adding to it.
        schema: Option<&'a Schema>,
    },
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.len(),
            Self::Dynamic(items) => items.len(),
            Self::Owned { items, .. } => items.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Answer<'a>> {
        match self {
            Self::Json { items, schema } => {
                let item = items.get(at)?;
                Some(match &schema.items {
                    Some(of) => Value::from_json(item, of),
                    None => Err("invalid array type, expected Items with a non-empty Schema".into()),
                })
            }
            Self::Dynamic(items) => items.get(at).map(|item| Ok(Value::dynamic(item))),
            Self::Owned { items, .. } => items.get(at).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Answer<'a>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    pub(crate) fn values(&self) -> Result<Vec<Value<'a>>, EvalError> {
        self.iter().collect()
    }

    /// Whether an item equals `value`. An item that cannot be compared is an error only if no other item is equal.
    pub(crate) fn contains(&self, value: &Value<'a>) -> Result<bool, EvalError> {
        let mut failed = None;
        for item in self.iter() {
            match item.and_then(|item| equal(&item, value)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => {
                    failed.get_or_insert(why);
                }
            }
        }
        failed.map_or(Ok(false), Err)
    }

    fn schema(&self) -> Option<&'a Schema> {
        match self {
            Self::Json { schema, .. } => Some(schema),
            Self::Dynamic(_) => None,
            Self::Owned { schema, .. } => *schema,
        }
    }

    pub(crate) fn equals(&self, other: &List<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let Some(schema) = self.schema() else { return in_order(self, other) };
        match schema.list_type {
            ListType::Atomic => in_order(self, other),
            ListType::Set => {
                let own: BTreeSet<Key<'_>> =
                    self.iter().filter_map(|item| item.ok().and_then(|item| Key::new(&item))).collect();
                for item in other.iter() {
                    if !Key::new(&item?).is_some_and(|key| own.contains(&key)) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            ListType::Map => {
                let keys = identifiers(schema);
                let mut own = BTreeMap::new();
                for item in self.iter() {
                    let item = item?;
                    own.insert(key_of(&item, &keys), item);
                }
                for item in other.iter() {
                    let item = item?;
                    match own.get(&key_of(&item, &keys)) {
                        Some(same) if equal(same, &item)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }

    /// The sum of two lists: a union where the first is a set, and a merge where it is a map.
    pub(crate) fn add(&self, other: &List<'a>) -> Answer<'a> {
        let schema = self.schema();
        let mut items = self.values()?;
        match schema.map_or(ListType::Atomic, |schema| schema.list_type) {
            ListType::Atomic => {
                for item in other.iter() {
                    items.push(item?);
                }
            }
            ListType::Set => {
                let mut known: BTreeSet<Option<Key<'_>>> = items.iter().map(Key::new).collect();
                for item in other.iter() {
                    let item = item?;
                    if known.insert(Key::new(&item)) {
                        items.push(item);
                    }
                }
            }
            ListType::Map => {
                let keys = schema.map(identifiers).unwrap_or_default();
                let places: BTreeMap<_, usize> =
                    items.iter().enumerate().map(|(at, item)| (key_of(item, &keys), at)).collect();
                for item in other.iter() {
                    let item = item?;
                    match places.get(&key_of(&item, &keys)) {
                        Some(at) => items[*at] = item,
                        None => items.push(item),
                    }
                }
            }
        }
        Ok(Value::List(List::Owned { items: Arc::new(items), schema }))
    }
}

fn in_order<'a>(one: &List<'a>, other: &List<'a>) -> Result<bool, EvalError> {
    for (one, other) in one.iter().zip(other.iter()) {
        if !equal(&one?, &other?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys of a list that is a map, as kube-apiserver looks them up: escaped, even in the object itself.
fn identifiers(schema: &Schema) -> Vec<String> {
    schema.map_keys.iter().map(|key| escape(key).unwrap_or_else(|| key.to_string())).collect()
}

fn key_of<'a>(item: &Value<'a>, keys: &[String]) -> Vec<Option<Key<'a>>> {
    let Value::Map(Map::Json { map, schema }) = item else { return Vec::new() };
    let value = |key: &String| {
        let (json, schema) = (map.get(key)?, schema.entry(key)?);
        Key::new(&Value::from_json(json, schema).ok()?)
    };
    keys.iter().map(value).collect()
}
