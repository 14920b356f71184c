//! What expressions make: lists, maps and objects. An entry that is written `?entry` is left out if it has no value.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::plan::{MapEntry, Node, StructEntry};
use crate::value::{Constructed, EvalError, Key, Map, Value};

use super::{Evaluated, Evaluator, Fault};

impl<'a> Evaluator<'a, '_> {
    pub(super) fn list(&mut self, items: &'a [Node], optional: &[bool]) -> Result<Vec<Value<'a>>, Fault> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items.iter().zip(optional) {
            match self.node(item)? {
                Value::Optional(Some(inner)) if *optional => values.push((*inner).clone()),
                Value::Optional(None) if *optional => {}
                other if *optional => {
                    let why = format!("cannot initialize optional list element from non-optional value {other}");
                    return Err(EvalError::from(why).into());
                }
                value => values.push(value),
            }
        }
        Ok(values)
    }

    pub(super) fn map(&mut self, entries: &'a [MapEntry]) -> Evaluated<'a> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let key = self.node(&entry.key)?;
            let mut value = self.node(&entry.value)?;
            let of =
                Key::new(&key).ok_or_else(|| EvalError::from(format!("unsupported key type: {}", key.type_name())))?;
            if entry.optional {
                match value {
                    Value::Optional(Some(inner)) => value = (*inner).clone(),
                    Value::Optional(None) => {
                        map.remove(&of);
                        continue;
                    }
                    other => {
                        let why = format!("cannot initialize optional entry '{key}' from non-optional value {other}");
                        return Err(EvalError::from(why).into());
                    }
                }
            }
            map.insert(of, (key, value));
        }
        Ok(Value::Map(Map::Owned(map.into())))
    }

    pub(super) fn structure(&mut self, ty: &'a str, entries: &'a [StructEntry]) -> Evaluated<'a> {
        let mut fields = BTreeMap::new();
        for entry in entries {
            let value = match (self.node(&entry.value)?, entry.optional) {
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (Value::Optional(None), true) => continue,
                (other, true) => {
                    let why =
                        format!("cannot initialize optional entry '{}' from non-optional value {other}", entry.name);
                    return Err(EvalError::from(why).into());
                }
                (value, false) => value,
            };
            if ty == "JSONPatch" && *entry.name != *"value" && !matches!(value, Value::String(_)) {
                let (found, name) = (value.go_type(), &entry.name);
                let why = format!("unexpected type {found} for JSONPatchType '{name}' field");
                return Err(EvalError::from(why).into());
            }
            fields.insert(&*entry.name, value);
        }
        Ok(Value::Object(Arc::new(Constructed { ty, fields })))
    }
}
