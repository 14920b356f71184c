//! Objects that expressions make, `Object.spec{replicas: 1}`, and the JSON of what an expression gives.

use std::collections::BTreeMap;

use serde_json::{Map as JsonMap, Value as Json};

use super::{EvalError, List, Map, Value, equal};

/// An object that an expression made.
#[derive(Clone, Debug)]
pub(crate) struct Constructed<'a> {
    /// `Object.spec`, or `JSONPatch`.
    pub ty: &'a str,
    pub fields: BTreeMap<&'a str, Value<'a>>,
}

impl<'a> Constructed<'a> {
    pub(crate) fn equals(&self, other: &Constructed<'a>) -> Result<bool, EvalError> {
        if self.ty != other.ty || self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for (name, value) in &self.fields {
            match other.fields.get(name) {
                Some(theirs) if equal(value, theirs)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Objects inside whose types do not fit where they stand: `Object{spec: Object.status{}}`.
    pub(crate) fn misplaced(&self) -> Vec<String> {
        let mut found = Vec::new();
        misplaced(self, self.ty, &mut found);
        found
    }
}

fn misplaced(object: &Constructed<'_>, path: &str, found: &mut Vec<String>) {
    if object.ty != path {
        let (ty, why) = (object.ty, "which matches field name path from root Object type");
        found.push(format!("unexpected type name {ty:?}, expected {path:?}, {why}"));
    }
    for (name, value) in &object.fields {
        misplaced_in(value, &format!("{path}.{name}"), found);
    }
}

/// Lists and maps have no names of their own.
fn misplaced_in(value: &Value<'_>, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => misplaced(object, path, found),
        Value::List(List::Owned { items, .. }) => items.iter().for_each(|item| misplaced_in(item, path, found)),
        Value::Map(Map::Owned(entries)) => {
            entries.values().for_each(|(_, value)| misplaced_in(value, path, found));
        }
        _ => {}
    }
}

impl Value<'_> {
    /// The value as JSON; the error says what has none.
    pub(crate) fn to_json(&self) -> Result<Json, EvalError> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => Json::from(*value),
            Self::String(text) => Json::from(&**text),
            Self::List(List::Json { items, .. } | List::Dynamic(items)) => Json::Array(items.to_vec()),
            Self::List(list) => {
                let items = list.values()?;
                Json::Array(items.iter().map(Self::to_json).collect::<Result<_, _>>()?)
            }
            Self::Map(Map::Json { map, .. } | Map::Dynamic(map)) => Json::Object((*map).clone()),
            Self::Map(Map::Owned(entries)) => {
                let mut json = JsonMap::new();
                for (key, value) in entries.values() {
                    let Value::String(name) = key else {
                        return Err(format!("unsupported type conversion from '{}' to string", key.type_name()).into());
                    };
                    json.insert(name.to_string(), value.to_json()?);
                }
                Json::Object(json)
            }
            Self::Object(object) => {
                let mut json = JsonMap::new();
                for (name, value) in &object.fields {
                    json.insert((*name).to_owned(), value.to_json()?);
                }
                Json::Object(json)
            }
            Self::Preserved(json) => (*json).clone(),
            Self::Timestamp(_) | Self::Duration(_) | Self::Bytes(_) => match super::to_string(self)? {
                Value::String(text) => Json::from(&*text),
                _ => Json::Null,
            },
            other => return Err(format!("{} has no JSON form", other.type_name()).into()),
        })
    }
}
