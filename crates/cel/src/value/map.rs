//! Maps and objects. Those of an object stay JSON; where there is a schema, only fields that it declares are visible.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::schema::Schema;

use super::{Answer, EvalError, Text, Value, equal};

#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Json {
        map: &'a serde_json::Map<String, Json>,
        schema: &'a Schema,
    },
    /// JSON without a schema.
    Dynamic(&'a serde_json::Map<String, Json>),
    Owned(Arc<BTreeMap<Key<'a>, (Value<'a>, Value<'a>)>>),
}

/// A key, so that numbers of different types are the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Whole(i128),
    Fraction(u64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
}

impl<'a> Key<'a> {
    pub(crate) fn new(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Whole(i128::from(*value)),
            Value::Uint(value) => Self::Whole(i128::from(*value)),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 1e30 => Self::Whole(*value as i128),
            Value::Double(value) => Self::Fraction(value.to_bits()),
            Value::String(text) => Self::String(text.clone()),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone()),
            _ => return None,
        })
    }
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json { map, .. } | Self::Dynamic(map) => map.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    /// The value under a key, if there is one. A field of an object that is null is absent.
    pub(crate) fn find(&self, key: &Value<'a>) -> Option<Answer<'a>> {
        match self {
            Self::Json { .. } => match key {
                Value::String(name) => self.field(name),
                _ => Some(Err("no such overload".into())),
            },
            Self::Dynamic(_) => match key {
                Value::String(name) => self.field(name),
                _ => None,
            },
            Self::Owned(entries) => entries.get(&Key::new(key)?).map(|(_, value)| Ok(value.clone())),
        }
    }

    /// The same for a name that the expression has.
    pub(crate) fn field(&self, name: &str) -> Option<Answer<'a>> {
        match self {
            Self::Json { map, schema } if schema.properties.is_empty() => {
                let value = map.get(name)?;
                Some(Value::from_json(value, schema.additional.as_deref()?))
            }
            Self::Json { map, schema } => {
                let property = schema.property_by_identifier(name)?;
                let value = map.get(&*property.name).filter(|value| !value.is_null())?;
                Some(Value::from_json(value, &property.schema))
            }
            Self::Dynamic(map) => map.get(name).map(|value| Ok(Value::dynamic(value))),
            Self::Owned(entries) => {
                entries.get(&Key::String(Text::Shared(name.into()))).map(|(_, value)| Ok(value.clone()))
            }
        }
    }

    /// The keys; of an object the identifiers of its declared fields.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json { map, schema } if schema.properties.is_empty() => match schema.additional {
                Some(_) => map.keys().map(|key| Value::String(key.as_str().into())).collect(),
                None => Vec::new(),
            },
            Self::Json { map, schema } => map
                .keys()
                .filter_map(|key| schema.property(key))
                .map(|property| {
                    let name = property.escaped.as_deref().unwrap_or(&property.name);
                    Value::String(name.into())
                })
                .collect(),
            Self::Dynamic(map) => map.keys().map(|key| Value::String(key.as_str().into())).collect(),
            Self::Owned(entries) => entries.values().map(|(key, _)| key.clone()).collect(),
        }
    }

    pub(crate) fn equals(&self, other: &Map<'a>) -> Result<bool, EvalError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        match self {
            Self::Json { map, schema } => {
                for (name, value) in *map {
                    let own = match schema.entry(name) {
                        Some(of) if schema.properties.is_empty() || !value.is_null() => {
                            Some(Value::from_json(value, of)?)
                        }
                        Some(_) => None,
                        None => {
                            // Fields without a schema are compared as they are.
                            let Self::Json { map: others, .. } = other else { return Err("no such overload".into()) };
                            if others.get(name).is_some_and(|other| other != value) {
                                return Ok(false);
                            }
                            continue;
                        }
                    };
                    let theirs = match other {
                        Self::Json { map: others, schema: of } => match (others.get(name), of.entry(name)) {
                            (Some(Json::Null), Some(_)) if !of.properties.is_empty() => None,
                            (Some(value), Some(of)) => Some(Value::from_json(value, of)?),
                            _ => None,
                        },
                        owned => owned.field(name).transpose()?,
                    };
                    match (own, theirs) {
                        (None, None) => {}
                        (Some(own), Some(theirs)) if equal(&own, &theirs)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            Self::Dynamic(map) => {
                for (name, value) in *map {
                    match other.field(name).transpose()? {
                        Some(theirs) if equal(&Value::dynamic(value), &theirs)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            Self::Owned(entries) => {
                for (key, value) in entries.values() {
                    match other.find(key).transpose()? {
                        Some(theirs) if equal(value, &theirs)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }
}
